/** plumb's masks in Node, for the benchmarks of grammars. */
import { readFileSync } from 'node:fs';
import { Engine } from '../../web/engine/engine.js';
import { Grammars } from '../../web/engine/grammars.js';

/** The value below which a share of all lies; the median without one. @param {number[]} all */
export const shareOf = (all, share = 0.5) =>
  all.toSorted((a, b) => a - b)[Math.min(all.length - 1, Math.floor(all.length * share))];

/** KIND_CONTROL of wasm/vocabulary.h. */
const CONTROL = 1;

const moduleOf = name => WebAssembly.compile(readFileSync(`web/dist/${name}.wasm`));

/** plumb with only a vocabulary. @param {string} file */
export async function plumb(file) {
  const engine = await Engine.create(await moduleOf('plumb')), bytes = readFileSync(file);
  engine.begin(bytes.length);
  for (let at = 0; !engine.hasHeader;) {
    at += engine.fill(target => {
      const piece = bytes.subarray(at, at + target.length);
      target.set(piece);
      return piece.length;
    });
  }
  engine.loadVocabulary();
  const vocabulary = engine.vocabulary(), n = vocabulary.ends.length;
  const grammars = await Grammars.create(await moduleOf('plumb-grammar'), vocabulary, () => -1);
  let compilations = 0;
  /** @type {import('../../web/engine/grammars.js').Grammar} */
  let grammar;
  /** @type {ReturnType<Grammars['createMatcher']> | undefined} */
  let matcher;
  return {
    name: 'plumb', n,
    pieces: () => Array.from(vocabulary.ends, (end, id) => vocabulary.kinds[id] & CONTROL ? new Uint8Array()
      : vocabulary.texts.subarray(id > 0 ? vocabulary.ends[id - 1] : 0, end)),
    isEnd: id => engine.endsTurn(id),
    tokenize: value => [...engine.tokenize(value)],
    /** Spaces at the end make each text another one, so that it is not among those that are kept. */
    async compile(schema, flags = 0) {
      matcher?.free();
      matcher = undefined;
      grammar = { language: 'schema', text: JSON.stringify(schema) + ' '.repeat(++compilations), flags };
      matcher = grammars.createMatcher(grammar);
    },
    begin() {
      matcher?.free();
      matcher = grammars.createMatcher(grammar);
    },
    /** The mask in the memory of the module. */
    ownMask: () => matcher.mask(),
    /** A copy, as the others give one, and as the engine needs it. */
    async mask() {
      return new Int32Array(matcher.mask().slice().buffer);
    },
    accept(id) {
      matcher.accept(id);
      return true;
    },
  };
}
