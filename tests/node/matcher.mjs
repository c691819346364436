/** Texts and grammars, byte by byte, in plumb-grammar.wasm alone: no model is needed. */
import { readFileSync } from 'node:fs';
import { Grammars } from '../../web/engine/grammars.js';
import { root } from './helpers.mjs';

/** The flag of plumb_wasm_grammar_schema for members in any order. */
export const ANY_ORDER = 2;
const END = 256, bytes = Uint8Array.from({ length: 256 }, (_, byte) => byte);
const grammars = await Grammars.create(
  new WebAssembly.Module(readFileSync(`${root}web/dist/plumb-grammar.wasm`)),
  { ends: Uint32Array.from({ length: END + 1 }, (_, id) => Math.min(id + 1, 256)), texts: bytes,
    kinds: Uint8Array.from({ length: END + 1 }, (_, id) => id === END ? 3 : 0) },
  () => -1,
);

/** A schema's matcher.  Throws a PlumbError if the schema does not compile.
 * @param {unknown} schema @param {number} [flags] */
export function compile(schema, flags = ANY_ORDER) {
  const given = { language: /** @type {const} */ ('schema'), text: JSON.stringify(schema), flags };
  const { warnings, free } = grammars.createMatcher(given, false);
  free();
  return {
    warnings,
    /** Whether a text is one of the grammar's. @param {string} text */
    matches(text) {
      const matcher = grammars.createMatcher(given, false), ids = Buffer.from(text);
      const isWhole = matcher.acceptAll(ids) === ids.length && matcher.mayEnd();
      matcher.free();
      return isWhole;
    },
    /** A text of the grammar, of random bytes of those that may follow; undefined if it is longer than most.
     * @param {() => number} random  from 0 to 1 @param {number} [most] */
    sample(random, most = 300) {
      const matcher = grammars.createMatcher(given, false), text = [];
      try {
        for (;;) {
          if (matcher.mayEnd() && random() < 0.25) return Buffer.from(text).toString();
          const mask = matcher.mask(), allowed = bytes.filter(byte => mask[byte >> 3] >> (byte & 7) & 1);
          if (allowed.length === 0) return Buffer.from(text).toString();
          if (text.length === most) return undefined;
          const byte = allowed[Math.floor(random() * allowed.length)];
          matcher.accept(byte);
          text.push(byte);
        }
      } finally {
        matcher.free();
      }
    },
  };
}

/** The numbers of a generator that gives the same ones for the same seed (mulberry32). @param {number} seed */
export function randomOf(seed) {
  return () => {
    let t = seed += 0x6d2b79f5;
    t = Math.imul(t ^ t >>> 15, t | 1);
    t ^= t + Math.imul(t ^ t >>> 7, t | 61);
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32;
  };
}
