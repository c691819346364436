/** Grammars on a vocabulary of all bytes, in which the tokens of a text are its bytes, and random texts of them. */
import { readFileSync } from 'node:fs';
import { Grammars } from '../../web/engine/grammars.js';
import { root } from './helpers.mjs';

const BYTES = {
  ends: Uint32Array.from({ length: 256 }, (_, i) => i + 1), kinds: new Uint8Array(256),
  texts: Uint8Array.from({ length: 256 }, (_, i) => i),
};

export const byteGrammars = async () => Grammars.create(
  await WebAssembly.compile(readFileSync(`${root}web/dist/plumb-grammar.wasm`)), BYTES, () => -1);

/** How many bytes of a text a grammar allows, and whether it may end there.
 * @param {Grammars} grammars @param {import('../../web/engine/grammars.js').Grammar} grammar @param {string} text
 * @returns {[boolean, boolean]} */
export function follow(grammars, grammar, text) {
  const matcher = grammars.createMatcher(grammar, false), bytes = new TextEncoder().encode(text);
  /** @type {[boolean, boolean]} */
  const found = [matcher.acceptAll(bytes) === bytes.length, matcher.mayEnd()];
  matcher.free();
  return found;
}

/** A random text of a grammar, with white space only where nothing else may be; undefined if it does not end within
 * some bytes.  Where it may end, it does with a chance of one half.
 * @param {Grammars} grammars @param {import('../../web/engine/grammars.js').Grammar} grammar
 * @param {(n: number) => number} pick @param {number} [most]  bytes */
export function randomText(grammars, grammar, pick, most = 800) {
  const matcher = grammars.createMatcher(grammar, false), bytes = [];
  try {
    while (bytes.length < most) {
      const mask = matcher.mask(), all = BYTES.texts.filter(byte => mask[byte >> 3] >> (byte & 7) & 1);
      if (matcher.mayEnd() && (all.length === 0 || pick(2) === 0)) {
        return new TextDecoder().decode(Uint8Array.from(bytes));
      }
      const solid = all.filter(byte => byte > 32), allowed = solid.length > 0 ? solid : all;
      const byte = allowed[pick(allowed.length)];
      matcher.accept(byte);
      bytes.push(byte);
    }
    return undefined;
  } finally {
    matcher.free();
  }
}

/** The grammar of a schema.  Throws a PlumbError if it does not compile.
 * @param {Grammars} grammars @param {unknown} schema @param {number} [flags]  of plumb_wasm_grammar_schema */
export function compiled(grammars, schema, flags = 0) {
  const grammar = { language: /** @type {const} */ ('schema'), text: JSON.stringify(schema), flags };
  const { warnings, free } = grammars.createMatcher(grammar, false);
  free();
  return {
    warnings,
    matches: (/** @type {string} */ text) => follow(grammars, grammar, text).every(Boolean),
    sample: (/** @type {(n: number) => number} */ pick, most = 800) => randomText(grammars, grammar, pick, most),
  };
}
