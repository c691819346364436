/* `node tools/addresses.mjs MODULE OTHER`: adds a section "addresses" to a module with 64-bit addresses, by which
 * JavaScript knows the arguments and results of its functions that are addresses or sizes (web/engine/addresses.js).
 * These are 64-bit integers in MODULE and 32-bit ones in OTHER, the same module with 32-bit addresses.
 *
 * The section is JSON: {exports: {NAME: SIGNATURE}, imports: {NAME: SIGNATURE}}.  A signature has a character for each
 * argument and one for the result: "a" for an address or a size, "-" for any other. */
import { readFileSync, writeFileSync } from 'node:fs';

const I32 = 0x7f, I64 = 0x7e;
const SECTION = { type: 1, import: 2, function: 3, export: 7 };
const KIND = { function: 0, table: 1, memory: 2, global: 3 };

/** Reads the sections of a module. */
class Reader {
  #bytes;
  #at;

  /** @param {Uint8Array} bytes @param {number} at */
  constructor(bytes, at) {
    this.#bytes = bytes;
    this.#at = at;
  }

  get isDone() { return this.#at >= this.#bytes.length; }

  byte() { return this.#bytes[this.#at++]; }

  number() {
    let value = 0n, shift = 0n, byte;
    do {
      byte = BigInt(this.byte());
      value |= (byte & 127n) << shift;
      shift += 7n;
    } while (byte & 128n);
    return Number(value);
  }

  bytes() {
    const n = this.number();
    return this.#bytes.subarray(this.#at, this.#at += n);
  }

  text() { return new TextDecoder().decode(this.bytes()); }

  /** @template T @param {() => T} read @returns {T[]} */
  list(read) { return Array.from({ length: this.number() }, read); }

  limits() {
    const flags = this.byte();
    this.number();
    if (flags & 1) this.number();
  }
}

/** The types of the functions that a module exports and imports, by name: those of the arguments, then the result's.
 * @param {Uint8Array} bytes */
function functionsOf(bytes) {
  /** @type {Record<number, Reader>} */
  const sections = {};
  const all = new Reader(bytes, 8);
  while (!all.isDone) {
    const id = all.byte();
    sections[id] = new Reader(all.bytes(), 0);
  }
  const type = sections[SECTION.type];
  const types = type.list(() => {
    type.byte();   // 0x60: a function
    return [type.list(() => type.byte()), type.list(() => type.byte())];
  });
  /** @type {Record<string, number[][]>} */
  const imports = {};
  /** @type {number[][][]} */
  const functions = [];
  const from = sections[SECTION.import];
  from?.list(() => {
    from.text();
    const name = from.text(), kind = from.byte();
    if (kind === KIND.function) functions.push(imports[name] = types[from.number()]);
    else if (kind === KIND.memory) from.limits();
    else if (kind === KIND.global) {
      from.byte();
      from.byte();
    } else {
      from.byte();
      from.limits();
    }
  });
  const own = sections[SECTION.function];
  own.list(() => functions.push(types[own.number()]));
  /** @type {Record<string, number[][]>} */
  const exports = {};
  const to = sections[SECTION.export];
  to.list(() => {
    const name = to.text(), kind = to.byte(), index = to.number();
    if (kind === KIND.function) exports[name] = functions[index];
  });
  return { exports, imports };
}

/** @param {Record<string, number[][]>} wide @param {Record<string, number[][]>} narrow */
function signatures(wide, narrow) {
  return Object.fromEntries(Object.entries(wide).filter(([name]) => narrow[name]).map(([name, [args, results]]) => {
    const other = [...narrow[name][0], narrow[name][1][0]];
    return [name, [...args, results[0]].map((type, i) => {
      if (type === other[i]) return '-';
      if (type === I64 && other[i] === I32) return 'a';
      throw new Error(`${name}: the types of its arguments differ in more than addresses`);
    }).join('')];
  }));
}

const [file, other] = process.argv.slice(2);
const module = readFileSync(file), wide = functionsOf(module), narrow = functionsOf(readFileSync(other));
const missing = Object.keys(narrow.exports).filter(name => name.startsWith('plumb_') && !wide.exports[name]);
if (missing.length > 0) throw new Error(`${file} does not export ${missing.join(', ')}`);
const text = Buffer.from(JSON.stringify({
  exports: signatures(wide.exports, narrow.exports), imports: signatures(wide.imports, narrow.imports),
}));
/** @param {number} n */
const leb = n => {
  const bytes = [];
  for (; n > 127; n >>>= 7) bytes.push(n & 127 | 128);
  return Buffer.from([...bytes, n]);
};
const named = Buffer.concat([leb(9), Buffer.from('addresses'), text]);
writeFileSync(file, Buffer.concat([module, Buffer.from([0]), leb(named.length), named]));
