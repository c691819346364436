/* An instance of one of the modules in dist, and its memory.
 *
 * Pointers are numbers, 64-bit integers are BigInts.  A pointer that a function of the module returns may arrive as a
 * signed integer; address() makes it an address.  Growing the memory detaches all views of it, or leaves them too short
 * if the memory is shared.  So no view is used after a call that may grow the memory; the getters u8 and view make a
 * new one if it has grown.  Many functions of hosts, such as those of TextDecoder, refuse views of shared memory.  They
 * get copies: slice() makes one that is not shared. */
import { PlumbError } from '../base/errors.js';
import { addressesOf, exportsOf, imported } from './addresses.js';

/** INITIAL_MEMORY of wasm/toolchain.mk, in pages. */
export const INITIAL = 256;
export const PAGE = 1 << 16;
/** Bytes that out holds: Engine.modelInfo needs the most. */
const OUT = 128;

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true });
const encoder = new TextEncoder();

/** The text of bytes in UTF-8. @param {Uint8Array} bytes @returns {string} */
export const decode = bytes => utf8.decode(bytes);

export class Instance {
  /** The exports of the module, which are the C functions; null after Engine.free. @type {any} */
  c;
  memory;
  /** Bytes of an address and of a size_t. */
  word = 4;
  /** Pointer to OUT bytes for what C returns through pointers. */
  out;
  /** The present views of the memory.  Only the getters u8 and view use them, and replace them if it has grown. */
  #u8 = new Uint8Array();
  #view = new DataView(new ArrayBuffer(0));
  /** The buffer that buffer returns.  It grows when needed. */
  #scratch = { ptr: 0, size: 0 };

  /** @param {WebAssembly.Instance} instance
   * @param {WebAssembly.Memory} [memory]  the shared memory of a module with threads
   * @param {import('./addresses.js').Addresses} [addresses]  of a module with 64-bit addresses */
  constructor(instance, memory, addresses) {
    this.c = addresses ? exportsOf(instance.exports, addresses) : instance.exports;
    this.word = addresses ? 8 : 4;
    this.memory = memory ?? /** @type {WebAssembly.Memory} */ (this.c.memory);
    this.c._initialize?.();
    this.out = this.malloc(OUT);
  }

  get u8() {
    if (this.#u8.buffer !== this.memory.buffer) this.#u8 = new Uint8Array(this.memory.buffer);
    return this.#u8;
  }

  get view() {
    if (this.#view.buffer !== this.memory.buffer) this.#view = new DataView(this.memory.buffer);
    return this.#view;
  }

  /** @param {number} n @returns {number} */
  malloc(n) {
    const ptr = this.address(this.c.malloc(n));
    if (!ptr) throw new PlumbError('PLUMB_ERROR_MEMORY', `no memory for ${n} bytes`, { bytes: n });
    return ptr;
  }

  /** A buffer of at least n bytes, valid until the next call of buffer. @param {number} n */
  buffer(n) {
    if (n > this.#scratch.size) {
      this.c.free(this.#scratch.ptr);
      this.#scratch = { ptr: 0, size: 0 };
      this.#scratch = { ptr: this.malloc(n), size: n };
    }
    return this.#scratch.ptr;
  }

  /** What a function of the module has returned, as an address or a size. @param {number} value */
  address(value) { return this.word === 4 ? value >>> 0 : value; }

  /** The 32-bit integer at an address. @param {number} ptr */
  uint32(ptr) { return this.view.getUint32(ptr, true); }

  /** The address or size at an address. @param {number} ptr */
  size(ptr) { return this.word === 4 ? this.uint32(ptr) : Number(this.view.getBigUint64(ptr, true)); }

  /** @param {number} ptr @param {number} value  an address or a size, which is written there */
  setSize(ptr, value) {
    if (this.word === 4) this.view.setUint32(ptr, value, true);
    else this.view.setBigUint64(ptr, BigInt(value), true);
  }

  /** The address or size that is word i of out. @param {number} i */
  result(i) { return this.size(this.out + this.word * i); }

  /** Grows the memory. @param {number} pages */
  grow(pages) { this.memory.grow(/** @type {number} */ (this.word === 4 ? pages : BigInt(pages))); }

  /** The text of a C string; '' for NULL. @param {number} ptr */
  string(ptr) {
    if (!ptr) return '';
    const start = this.address(ptr);
    return decode(this.u8.slice(start, this.u8.indexOf(0, start)));
  }

  /** @param {number} ptr @param {number} n  bytes of UTF-8 @returns {string} */
  text(ptr, n) { return decode(this.u8.slice(ptr, ptr + n)); }

  /** Calls use with a copy of the text in memory, which it frees afterwards. @template T
   * @param {string} text @param {(ptr: number, n: number) => T} use @returns {T} */
  withText(text, use) {
    const bytes = encoder.encode(text);
    return this.withBytes(bytes.length + 1, ptr => {
      this.u8.set(bytes, ptr);
      this.u8[ptr + bytes.length] = 0;
      return use(ptr, bytes.length);
    });
  }

  /** @template T @param {ArrayLike<number>} ids @param {(ptr: number, n: number) => T} use @returns {T} */
  withIds(ids, use) {
    return this.withBytes(4 * ids.length, ptr => {
      new Int32Array(this.memory.buffer, ptr, ids.length).set(ids);
      return use(ptr, ids.length);
    });
  }

  /** @template T @param {number} n @param {(ptr: number) => T} use @returns {T} */
  withBytes(n, use) {
    const ptr = this.malloc(n || 1);
    try {
      return use(ptr);
    } finally {
      this.c.free(ptr);
    }
  }

  /** @param {number} status @param {string} message @returns {PlumbError} */
  error(status, message) {
    const name = this.string(this.c.plumb_status_name(status));
    return new PlumbError(/** @type {import('../base/errors.js').ErrorCode} */ (name), message || name);
  }
}

/** The imports of a module: its memory if instances share it, and the clock with which it measures its kernels.  A
 * compiler may add a notice that the memory has grown, which is ignored because u8 and view notice it themselves, and
 * others that the module never calls.
 * @param {WebAssembly.Module} module @param {WebAssembly.Memory} [memory]
 * @param {Record<string, Function>} [own]  the functions of the module's caller, by name */
export function importsOf(module, memory, own = {}) {
  /** @type {Record<string, Record<string, any>>} */
  const imports = {}, signatures = addressesOf(module)?.imports;
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    (imports[from] ??= {})[name] = kind === 'memory' ? memory
      : name === 'emscripten_notify_memory_growth' ? () => {}
      : Object.hasOwn(own, name) ? imported(own[name], signatures?.[name])
      : name === 'plumb_now' ? () => performance.now()
      : () => { throw new Error(`${from}.${name} was called`); };
  }
  return imports;
}
