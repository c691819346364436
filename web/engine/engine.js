/* One model and its sessions in one instance of plumb.wasm or of one of its variants.  Apart from this file, only
 * threads.js knows exports of the module and its memory: it provides a shared memory and runs threads in it.  There is
 * no I/O and no timer, and everything except Engine.create is synchronous.  It is the same in Node, in a page and in a
 * worker; host.js calls it. */
import { PlumbError } from '../base/errors.js';
import { biasPairs } from '../base/options.js';
import { KV_TYPES, PARAMETERS, POOLINGS, PRECISIONS } from '../base/parameters.js';
import { addressesOf } from './addresses.js';
import { Grammars } from './grammars.js';
import { decode, importsOf, INITIAL, Instance, PAGE } from './instance.js';
import { Session } from './session.js';
import { Traces } from './traces.js';
import { hasWide } from './variant.js';

/** Bytes of a thread's stack.  It can be smaller than the engine's stack, because a thread runs only kernels. */
const STACK = 1 << 18;
/** DIGEST: bytes of a digest's state.  DIGESTED: how many bytes are copied into the module's memory at once to be
 * digested, few enough to stay in the processor's cache. */
const DIGEST = 72, DIGESTED = 1 << 16;
/** PLUMB_SIZE_UNKNOWN and the plumb_token_flags of include/plumb.h. */
const SIZE_UNKNOWN = -1n, ADD_SPECIAL = 1, PARSE_SPECIAL = 2, CONTINUES = 4;
/** Engine.rehearse allocates the memory of the weights in pieces of this many bytes. */
const PIECE = 1 << 20;
/** Words of a plumb_feed, each as large as an address. */
const FEED = 5;
/** Bytes for the tables of layers and weights that plumb_model_end makes; what they leave is used by a session. */
const TABLES = 2 ** 17;
/** The most bytes of headers that are kept for another engine. */
const KEPT = 2 ** 28;
/** What checkRoom keeps free for all besides weights, keys and values: vocabulary, scratch, tables. */
const BESIDES = 2 ** 27;
/** The names of the numbers that plumb_wasm_model_info writes, in its order. */
const INFO = /** @type {const} */ ([
  'parameters', 'weightBytes', 'layers', 'embedding', 'heads', 'headsKV', 'headDim', 'feedForward', 'vocabulary',
  'trainedContext', 'dimensions', 'hasLogits', 'pooling', 'hasEncoder', 'decoderStart',
]);
/** The longest array that metadata shows; longer ones (such as the vocabulary) are described as {type, count}. */
const SHOWN_ELEMENTS = 64;

/** Which hosts have what the modules with 64-bit addresses need. */
export const HOSTS64 = 'which Chrome has from version 133 on, Firefox from 146, Safari from 27.3 and Node from 24';

/** @typedef {string | number | bigint | boolean} Scalar
 * @typedef {Scalar | Scalar[] | {type: string, count: number}} MetadataValue */
/** @typedef {object} SessionArgs
 * @property {number} [contextLength]  tokens; default: the engine's
 * @property {typeof import('../base/parameters.js').PRECISIONS[number]} [precision]
 * @property {typeof import('../base/parameters.js').KV_TYPES[number]} [kvType]
 * @property {number} [snapshots]  default: the engine's
 * @property {boolean} [reserve]  whether the memory of all tokens is taken at once; default: that of the first session
 *   is */
/** @typedef {object} OwnSampling
 * @property {Record<number, number> | Map<number, number>} [logitBias]  added to a token's logit; -Infinity forbids it
 * @property {number | bigint} [seed]  the same seed gives the same text on every host; default: a random one
 * @typedef {import('../base/parameters.js').SamplingParameters & OwnSampling} Sampling  as plumb_sampling */

/** @typedef {object} Room
 * @property {number} limit  bytes that the module's memory can have
 * @property {number} [total]  bytes of all files, if there are several
 * @property {boolean} [lacksWide]  whether the limit is so low because this host has no 64-bit addresses */
/** @typedef {import('./grammars.js').Grammar} Grammar */
/** @typedef {import('./session.js').AdapterUse} AdapterUse
 * @typedef {import('./session.js').GeneratedToken} GeneratedToken */

/** Takes the bytes of a file, and writes them where C says that they go. */
class FileSink {
  #engine; #window; #commit; #keep;

  /** @param {Engine} engine
   * @param {(data: number, len: number) => void} window  calls plumb_*_window, and throws if that fails
   * @param {(n: number) => void} commit @param {(bytes: Uint8Array) => void} [keep]  gets all bytes */
  constructor(engine, window, commit, keep) {
    this.#engine = engine;
    this.#window = window;
    this.#commit = commit;
    this.#keep = keep;
  }

  /** Where the next bytes go, and how many fit there. */
  get window() {
    const engine = this.#engine;
    this.#window(engine.out, engine.out + engine.word);
    return { ptr: engine.result(0), space: engine.result(1) };
  }

  /** Calls put, which writes the next bytes straight to their place and returns how many it wrote, 0 if it has no more.
   * Returns that number.  If the part needs no more bytes, put is not called, and the result is -1.
   * @param {(target: Uint8Array) => number} put */
  fill(put) {
    const { ptr, space } = this.window;
    if (space === 0) return -1;
    const target = this.#engine.u8.subarray(ptr, ptr + space), n = put(target);
    if (n > 0) {
      this.#keep?.(target.subarray(0, n));
      this.#commit(n);
    }
    return n;
  }

  /** Feeds a chunk; returns false if the part does not need all of its bytes. @param {Uint8Array} chunk */
  write(chunk) {
    for (let at = 0; at < chunk.length;) {
      const n = this.fill(target => {
        const piece = chunk.subarray(at, at + target.length);
        target.set(piece);
        return piece.length;
      });
      if (n < 0) return false;
      at += n;
    }
    return true;
  }
}

export class Engine extends Instance {
  /** Pointer to the plumb_model. */
  #model = 0;
  /** The open sessions.  All of them share the pass of the first one. @type {Set<Session>} */
  #sessions = new Set();
  /** Pointer to the state of the digest; 0 until the first digest begins. */
  #digest = 0;
  /** @type {Grammars | undefined} */
  #grammars;
  /** @type {Traces | undefined} */
  #traces;
  /** Pointer to the plumb_model that drafts; 0: there is none. */
  #draft = 0;
  /** What the taps of a feed call. @type {((tap: import('./traces.js').Tap) => void) | undefined} */
  #onTap;
  /** The bytes of a saved session, of which the first `at` are written or read.
   * @type {{bytes: Uint8Array, at: number}} */
  #saved = { bytes: new Uint8Array(), at: 0 };
  /** Pointer to the set of tokens that a grammar allows; 0 until there was one. */
  #mask = 0;
  /** Whether rehearse was called. */
  #rehearsed = false;
  /** Whether exhaust was called. */
  #exhausted = false;

  /** Instantiates a module. @param {WebAssembly.Module} module
   * @param {WebAssembly.Memory} [memory]  the shared memory of a module with threads */
  static async create(module, memory) {
    /** @type {Engine | undefined} */
    let created;
    const imports = importsOf(module, memory, {
      plumb_on_tap: (/** @type {import('./traces.js').RawTap} */ ...tap) => created?.tapped(...tap),
      plumb_on_write: (/** @type {number} */ ptr, /** @type {number} */ n) => created?.wrote(ptr, n),
      plumb_on_read: (/** @type {number} */ ptr, /** @type {number} */ n) => created?.read(ptr, n),
    });
    created = new Engine(await WebAssembly.instantiate(module, imports), memory, addressesOf(module));
    return created;
  }

  /** @param {WebAssembly.Instance} instance @param {WebAssembly.Memory} [memory]
   * @param {import('./addresses.js').Addresses} [addresses] */
  constructor(instance, memory, addresses) {
    super(instance, memory, addresses);
    this.#model = this.c.plumb_model_create();
    if (!this.#model) throw new PlumbError('PLUMB_ERROR_MEMORY', 'no memory for a model');
  }

  /** Frees the model and the session, and drops the instance.  What else was allocated in its memory is not freed.
   * @returns {number | undefined}  how many bytes at the start of the memory to zero before another instance uses it,
   *   besides the static data, which must always be zeroed (threads.js); undefined if no other may use it, because this
   *   one is broken or has grown the memory to its limit */
  free() {
    const c = this.c;
    if (!c) return undefined;
    this.c = null;
    try {
      c.plumb_threads_dismiss?.();   // a browser needs 2 s to end a worker that still waits in the module
      for (const { pointer } of this.#sessions) c.plumb_session_free(pointer);
      c.plumb_model_free(this.#model);
      c.plumb_model_free(this.#draft);
      if (this.#exhausted) return undefined;
      // The next engine would work with any bytes in its heap, since memory from malloc may have any content.  They are
      // zeroed so that it computes on the same memory as a first engine does.  After a rehearsal they are not: it has
      // left most of them unwritten, and zeroing them would make the system provide all of that memory.
      return this.#rehearsed ? 0 : this.address(c.plumb_wasm_heap_end());
    } catch {
      return undefined;   // after a trap the instance's state is unknown, so all of it is dropped
    }
  }

  // ---- memory ----

  /** Bytes of linear memory that the engine uses, in whole pages.  A memory that an earlier engine has used may be
   * larger than that. */
  get bytes() {
    const used = Math.ceil(this.address(this.c.plumb_wasm_heap_end()) / PAGE) * PAGE;
    return Math.max(used, INITIAL * PAGE);
  }

  /** Grows the memory as far as this host allows, without writing to it. @returns {number}  its size in bytes */
  exhaust() {
    this.#exhausted = true;
    for (let pages = 1 << 17; pages > 0; pages >>= 1) {
      try {
        this.grow(pages);
      } catch {
        // The next attempt asks for half as much.
      }
    }
    return this.memory.buffer.byteLength;
  }

  /** Calls write(ptr, capacity) with larger and larger buffers until the length that it returns fits.  Throws if it
   * returns a negative status.  The buffer is that of buffer.
   * @param {number} guess  the capacity of the first buffer, in elements
   * @param {(ptr: number, cap: number) => number} write
   * @param {number} [unit]  bytes per element */
  #fillBuffer(guess, write, unit = 1) {
    for (let cap = guess; ;) {
      const ptr = this.buffer(cap * unit);
      const n = write(ptr, cap);
      if (n < 0) throw this.#modelError(n);
      if (n <= cap) return { ptr, n };
      cap = n;
    }
  }

  /** Pointer to the plumb_model. */
  get model() { return this.#model; }

  // ---- errors ----

  /** @param {number} status */
  #modelError(status) { return this.error(status, this.string(this.c.plumb_model_error(this.#model))); }

  /** @param {number} status */
  #checkModel(status) {
    if (status !== 0) throw this.#modelError(status);
  }

  // ---- loading ----

  /** What begin and write have got since keepHeader, for handOver; undefined: it is not kept.
   * @type {{parts: {size?: number, bytes: Uint8Array[]}[], length: number} | undefined} */
  #kept;
  #readsHeadersOnly = false;

  /** Keeps a copy of what arrives from now on, until handOver or forgetHeader. */
  keepHeader() { this.#kept = { parts: [], length: 0 }; }

  forgetHeader() { this.#kept = undefined; }

  /** Whether handOver is possible. */
  get keepsHeader() { return this.#kept !== undefined; }

  /** @param {Uint8Array} bytes */
  #keep(bytes) {
    if (!this.#kept) return;
    this.#kept.parts.at(-1)?.bytes.push(bytes.slice());
    this.#kept.length += bytes.length;
    if (this.#kept.length > KEPT) this.#kept = undefined;
  }

  /** Lets another engine read what this one has read, with the state of the digest, and so continue in its place.
   * @param {Engine} next */
  handOver(next) {
    if (this.#readsHeadersOnly) next.headersOnly();
    for (const { size, bytes } of this.#kept?.parts ?? []) {
      next.begin(size);
      for (const piece of bytes) next.write(piece);
    }
    if (this.#digest) {
      next.#digest ||= next.malloc(DIGEST);
      next.u8.set(this.u8.subarray(this.#digest, this.#digest + DIGEST), next.#digest);
    }
    this.#kept = undefined;
  }

  /** Starts the next part. @param {number} [size]  bytes of this part and all later ones; undefined: unknown */
  begin(size) {
    this.#kept?.parts.push({ size, bytes: [] });
    this.#checkModel(this.c.plumb_model_begin(this.#model, size === undefined ? SIZE_UNKNOWN : BigInt(size)));
  }

  #file = new FileSink(this, (data, len) => this.#checkModel(this.c.plumb_model_window(this.#model, data, len)),
    n => this.#checkModel(this.c.plumb_model_commit(this.#model, n)), bytes => this.#keep(bytes));

  /** As FileSink.fill, of the present part. @param {(target: Uint8Array) => number} put */
  fill(put) {
    let n = 0;
    return this.#unlessTooLarge(() => this.#file.fill(target => n = put(target)), () => n);
  }

  /** Why weights were refused that do not fit into these addresses, although handOver is possible. */
  refused = /** @type {unknown} */ (undefined);

  /** @template T @param {() => T} take  gives bytes to the module @param {() => T} kept  the result if it refuses the
   *   weights behind a header that is kept, of which the bytes are a part @returns {T} */
  #unlessTooLarge(take, kept) {
    try {
      return take();
    } catch (error) {
      const isTooLarge = error instanceof PlumbError && error.code === 'PLUMB_ERROR_MEMORY' && this.hasHeader;
      if (!this.#kept || !isTooLarge) throw error;
      this.refused = error;
      return kept();
    }
  }

  /** Whether the present part needs more bytes. */
  get needsBytes() { return this.#file.window.space > 0; }

  /** As FileSink.write. @param {Uint8Array} chunk */
  write(chunk) {
    const before = this.#kept?.length ?? 0;
    return this.#unlessTooLarge(() => this.#file.write(chunk), () => {
      this.#keep(chunk.subarray((this.#kept?.length ?? 0) - before));
      return true;
    });
  }

  /** Whether the keys and the tensor directory of the first part are complete. */
  get hasHeader() { return Boolean(this.c.plumb_model_has_header(this.#model)); }

  /** Builds the vocabulary, which needs hasHeader; end() does so if it was not called before. */
  loadVocabulary() { this.#checkModel(this.c.plumb_model_load_vocab(this.#model)); }

  /** Grows the memory in one step for the n bytes that are still to come, and for the tables that end() makes of them.
   * Without this the tensors would grow it in some hundred steps.  V8 counts each step as new memory of the whole
   * size, and collects garbage: a fetch in Node took 600 ms instead of 370.  If there is too little memory, this does
   * nothing; the tensor that does not fit reports it. @param {number} n */
  reserve(n) {
    const more = n - this.#file.window.space;   // the window is allocated already
    const most = this.word === 4 ? 2 ** 32 - 1 : Number.MAX_SAFE_INTEGER;
    if (more > 0 && more <= most) this.c.free(this.c.malloc(Math.min(more + TABLES, most)));
  }

  /** Ends loading, after the last part. */
  end() { this.#checkModel(this.c.plumb_model_end(this.#model)); }

  /** Makes the model read headers only: at the end of a header, fill and write report that no more bytes are needed. */
  headersOnly() {
    this.#readsHeadersOnly = true;
    this.#checkModel(this.c.plumb_model_headers_only(this.#model));
  }

  /** Replaces end after headersOnly, and makes all checks that need no weights.  The memory grows as in a load.  All
   * weights are zero and share one buffer (plumb_model_rehearse).
   * @returns {{fits: boolean, canRun: boolean}}  fits: whether there is memory for all weights; canRun: whether that
   *   buffer could be allocated; without it a session can be opened, but not fed */
  rehearse() {
    this.#rehearsed = true;
    const weights = this.#weightBytes();
    this.reserve(weights);
    this.#checkModel(this.c.plumb_model_rehearse(this.#model, this.out));
    const bufferBytes = this.uint32(this.out);
    let fits = true;
    // The rest of the weights' size is allocated in pieces, as a load allocates tensors.  It is never freed, so that
    // the memory of a session comes after that of all weights.
    for (let allocated = bufferBytes; fits && allocated < weights; allocated += PIECE) {
      fits = this.c.malloc(Math.min(PIECE, weights - allocated)) !== 0;
    }
    return { fits, canRun: bufferBytes > 0 };
  }

  /** Bytes of all tensors in the directories read so far. */
  #weightBytes() { return this.types().reduce((sum, { bytes }) => sum + bytes, 0); }

  /** Throws if the model cannot fit, or kvType does not fit its heads, before gigabytes are downloaded for nothing.
   * Needs the header.  It counts only weights, keys and values, so a model that passes may still turn out not to fit.
   * @param {Room} room @param {SessionArgs} session  that will be opened */
  checkRoom({ limit, total = 0, lacksWide }, session) {
    const { kvType = 'i16' } = session;
    this.#checkModel(this.c.plumb_model_check_kv(this.#model, KV_TYPES.indexOf(kvType)));
    const { weights, kv } = this.#needs(total, session);
    if (weights + kv <= limit) return;
    // The load would have taken another module if it had known all sizes when it had read the header.
    const more = lacksWide ? `; more needs memory with 64-bit addresses, ${HOSTS64}`
      : this.word === 4 && hasWide() ? '; memory64: true allows more' : '';
    throw new PlumbError('PLUMB_ERROR_MEMORY', `no memory for ${weights} bytes of weights and ${kv} bytes of `
      + `keys and values: a module can use at most ${limit} bytes here${more}; choose a shorter contextLength, kvType `
      + "'q8_0' or a smaller model", { weights, kv, limit });
  }

  /** Whether the model needs a module with 64-bit addresses, so that there is room for what checkRoom does not count.
   * @param {Room} room @param {SessionArgs} session */
  needsWide({ limit, total = 0 }, session) {
    const { weights, kv } = this.#needs(total, session);
    return weights + kv + BESIDES > limit;
  }

  /** @param {number} total @param {SessionArgs} session */
  #needs(total, { contextLength = 0, kvType = 'i16', snapshots }) {
    return { weights: Math.max(this.#weightBytes(), total), kv: this.kvBytes(contextLength, kvType, snapshots) };
  }

  /** The tokens that a session holds by default.  end or rehearse must have been called.
   * @param {SessionArgs['kvType']} [type] @returns {number} */
  defaultContext(type = 'i16') { return this.c.plumb_model_default_ctx(this.#model, KV_TYPES.indexOf(type)); }

  /** Bytes of the keys and values of a session.  Needs the header.
   * @param {number} contextLength  tokens; 0: the fewest that openSession has by default
   * @param {typeof KV_TYPES[number]} type @param {number} [snapshots]
   * @returns {number} */
  kvBytes(contextLength, type, snapshots = 0) {
    return this.c.plumb_model_kv_bytes(this.#model, contextLength, 0, KV_TYPES.indexOf(type), snapshots);
  }

  /** Each type in the tensor directories read so far, how many tensors have it, and their bytes; most bytes first.
   * @returns {{type: string, tensors: number, bytes: number}[]} */
  types() {
    /** @type {Map<string, {type: string, tensors: number, bytes: number}>} */
    const all = new Map();
    for (let i = 0n; this.c.plumb_wasm_model_tensor(this.#model, i, this.out, this.out + 8) === 0; i++) {
      const type = this.string(this.result(0));
      const sum = all.get(type) ?? { type, tensors: 0, bytes: 0 };
      sum.tensors++;
      sum.bytes += this.view.getFloat64(this.out + 8, true);
      all.set(type, sum);
    }
    return [...all.values()].sort((a, b) => b.bytes - a.bytes);
  }

  /** Digests bytes with XXH64, in place if they are in this memory.  There is only one digest: begin() forgets the
   * bytes so far.
   * @type {import('../loader/sums.js').Digest} */
  digest = {
    begin: () => {
      this.#digest ||= this.malloc(DIGEST);
      this.c.digest_begin(this.#digest);
    },
    update: bytes => {
      const c = this.c;
      if (bytes.buffer === this.memory.buffer) {
        c.digest_update(this.#digest, bytes.byteOffset, bytes.length);
        return;
      }
      const ptr = this.buffer(DIGESTED);
      for (let at = 0; at < bytes.length; at += DIGESTED) {
        const piece = bytes.subarray(at, at + DIGESTED);
        this.u8.set(piece, ptr);
        c.digest_update(this.#digest, ptr, piece.length);
      }
    },
    end: () => {
      const view = new DataView(new ArrayBuffer(8));
      view.setBigUint64(0, this.c.digest_end(this.#digest));
      return new Uint8Array(view.buffer);
    },
  };

  /** Allocates a stack for an instance in a worker, and returns its upper end. */
  createStack() { return Math.floor((this.malloc(STACK) + STACK) / 16) * 16; }

  /** Tells the module that its workers have begun to serve or will at once, so that sessions opened from now on have n
   * threads.
   * @param {number} n  threads, including the caller's */
  setThreads(n) { this.c.plumb_threads_ready(n); }

  /** Opens a session.  All but the first share its threads and scratch, and allocate K and V when they need them, so
   * that feeding them may fail with PLUMB_ERROR_MEMORY.
   * @param {SessionArgs} [args] @returns {Session} */
  openSession({ contextLength = 0, precision = 'exact16', kvType = 'i16', snapshots = 0, reserve } = {}) {
    const [first] = this.#sessions;
    // The zeros after contextLength: the default batch, all threads of setThreads.
    this.#checkModel(this.c.plumb_wasm_session_create(this.out, this.#model, contextLength, 0, 0,
      PRECISIONS.indexOf(precision), KV_TYPES.indexOf(kvType), snapshots, first?.pointer ?? 0,
      Number(!(reserve ?? !first))));
    return this.addSession(this.result(0));
  }

  /** @param {number} pointer  to a plumb_session, which the engine frees from now on @returns {Session} */
  addSession(pointer) {
    const session = new Session(this, pointer);
    this.#sessions.add(session);
    return session;
  }

  /** @param {Session} session */
  closeSession(session) {
    this.#sessions.delete(session);
    session.free();
  }

  /** The first session. */
  get session() { return this.sessions[0]; }

  /** The sessions that are open, the first one first. */
  get sessions() { return [...this.#sessions]; }

  /** Feeds tokens to several sessions at once: plumb_sessions_feed.
   * @param {{session: Session, ids: ArrayLike<number>, wantsLogits: boolean}[]} feeds
   * @returns {{done: number[], failed?: {session: Session, error: PlumbError}}}  done: how many tokens of each were
   *   fed; failed: a session that cannot be fed */
  feedTogether(feeds) {
    const all = feeds.reduce((n, { ids }) => n + ids.length, 0), { word } = this, bytes = FEED * word;
    return this.withBytes(bytes * feeds.length + 4 * all, first => {
      let at = first + bytes * feeds.length;
      feeds.forEach(({ session, ids, wantsLogits }, i) => {
        new Int32Array(this.memory.buffer, at, ids.length).set(ids);
        [session.pointer, at, ids.length, wantsLogits ? 1 : 0].forEach((value, k) =>
          this.setSize(first + bytes * i + word * k, value));
        at += 4 * ids.length;
      });
      const status = this.c.plumb_sessions_feed(first, feeds.length, this.out);
      const done = feeds.map((_, i) => this.size(first + bytes * i + 4 * word));
      if (status === 0) return { done };
      const { session } = feeds[this.result(0)], message = this.string(this.c.plumb_session_error(session.pointer));
      return { done, failed: { session, error: this.error(status, message) } };
    });
  }

  // ---- adapters ----

  /** A sink for the bytes of an adapter of the model, which end() checks.  free must be called if it is not used any
   * more. */
  createAdapter() {
    const c = this.c;
    let pointer = 0;
    const check = (/** @type {number} */ status) => {
      if (status !== 0) throw this.error(status, this.string(c.plumb_adapter_error(pointer)));
    };
    const file = new FileSink(this, (data, len) => check(c.plumb_adapter_window(pointer, data, len)),
      n => check(c.plumb_adapter_commit(pointer, n)));
    return {
      digest: this.digest,
      begin: (/** @type {number | undefined} */ size) => {
        const bytes = size === undefined ? SIZE_UNKNOWN : BigInt(size);
        this.#checkModel(c.plumb_adapter_create(this.out, this.#model, bytes));
        pointer = this.result(0);
      },
      fill: (/** @type {(target: Uint8Array) => number} */ put) => file.fill(put),
      write: (/** @type {Uint8Array} */ chunk) => file.write(chunk),
      /** @returns {'lora' | 'control'} */
      end: () => {
        check(c.plumb_adapter_end(pointer));
        return c.plumb_adapter_is_control(pointer) ? 'control' : 'lora';
      },
      get pointer() { return pointer; },
      free: () => c.plumb_adapter_free(pointer),
    };
  }

  // ---- a draft model ----

  /** A sink for the bytes of a smaller model with the same vocabulary, which drafts from then on. */
  createDraft() {
    const c = this.c, pointer = c.plumb_model_create();
    if (!pointer) throw new PlumbError('PLUMB_ERROR_MEMORY', 'no memory for a draft model');
    const check = (/** @type {number} */ status) => {
      if (status !== 0) throw this.error(status, this.string(c.plumb_model_error(pointer)));
    };
    const file = new FileSink(this, (data, len) => check(c.plumb_model_window(pointer, data, len)),
      n => check(c.plumb_model_commit(pointer, n)));
    return {
      digest: this.digest,
      begin: (/** @type {number | undefined} */ size) =>
        check(c.plumb_model_begin(pointer, size === undefined ? SIZE_UNKNOWN : BigInt(size))),
      fill: (/** @type {(target: Uint8Array) => number} */ put) => file.fill(put),
      write: (/** @type {Uint8Array} */ chunk) => file.write(chunk),
      /** Throws if it cannot draft for the model. */
      end: () => {
        check(c.plumb_model_end(pointer));
        this.#draft = pointer;
        try {
          this.session.speculate('lookup');
          this.session.speculate(false);
        } catch (error) {
          this.session.closeDraft();
          this.#draft = 0;
          throw error;
        }
      },
      free: () => c.plumb_model_free(pointer),
    };
  }

  /** Opens a session of the draft model. @param {Session} session  for which it drafts
   * @returns {number}  a pointer; 0: there is no draft model, or no memory */
  openDraft({ pointer, contextLength }) {
    if (!this.#draft) return 0;
    this.c.plumb_wasm_session_create(this.out, this.#draft, contextLength, 0, 0,
      this.c.plumb_session_precision(pointer), 0, 0, 0, 1);
    return this.result(0);
  }

  // ---- what was loaded ----

  /** Properties of the model.  end or rehearse must have been called. */
  modelInfo() {
    const numbers = this.out + 8;
    this.#checkModel(this.c.plumb_wasm_model_info(this.#model, this.out, numbers));
    const named = /** @type {Record<typeof INFO[number], number>} */ (
      Object.fromEntries(INFO.map((name, i) => [name, this.view.getFloat64(numbers + 8 * i, true)])));
    return {
      architecture: this.string(this.result(0)), ...named,
      hasLogits: named.hasLogits !== 0, hasEncoder: named.hasEncoder !== 0, pooling: POOLINGS[named.pooling],
    };
  }

  /** All keys of the file; arrays of more than 64 elements as {type, count}. */
  metadata() {
    const c = this.c, model = this.#model;
    /** @type {Record<string, MetadataValue>} */
    const all = {};
    for (let i = 0n; i < c.plumb_model_n_key(model); i++) {
      const type = this.string(c.plumb_model_key_type(model, i));
      const count = Number(c.plumb_model_key_count(model, i));
      const value = (/** @type {number} */ j) => {
        const { ptr, n } = this.#fillBuffer(256, (buf, cap) => {
          const length = this.address(c.plumb_model_key_value(model, i, BigInt(j), buf, cap));
          return length < cap ? length : length + 1;   // it also writes a final 0, which it does not count
        });
        return scalar(type, decode(this.u8.slice(ptr, ptr + n)));
      };
      all[this.string(c.plumb_model_key_name(model, i))] = !type.startsWith('array') ? value(0)
        : count > SHOWN_ELEMENTS ? { type, count } : Array.from({ length: count }, (_, j) => value(j));
    }
    return all;
  }

  // ---- tokenizer ----

  /** @param {string} text @param {{addSpecial?: boolean, parseSpecial?: boolean, continues?: boolean}} [options]
   *   continues: the text continues another one */
  tokenize(text, { addSpecial, parseSpecial, continues } = {}) {
    const flags = (addSpecial ? ADD_SPECIAL : 0) | (parseSpecial ? PARSE_SPECIAL : 0) | (continues ? CONTINUES : 0);
    return this.withText(text, (chars, length) => this.#ids(length + 8, (ids, cap) =>
      this.c.plumb_tokenize(this.#model, chars, length, flags, ids, cap)));
  }

  /** The ids that a function of C writes. @param {number} guess  how many
   * @param {(ptr: number, cap: number) => bigint} write */
  #ids(guess, write) {
    const { ptr, n } = this.#fillBuffer(guess, (ids, cap) => Number(write(ids, cap)), 4);
    return new Int32Array(this.memory.buffer, ptr, n).slice();
  }

  /** The tokens of a prompt that a chat template made. @param {import('./templates.js').Prompt} prompt */
  tokenizePrompt({ text, marks }) {
    return this.withBytes(2 * text.length, chars => {
      this.u8.set(text, chars);
      this.u8.set(marks, chars + text.length);
      return this.#ids(text.length + 8, (ids, cap) => this.c.plumb_tokenize_marked(this.#model, chars,
        chars + text.length, text.length, ADD_SPECIAL | PARSE_SPECIAL, ids, cap));
    });
  }

  /** The tokens of a text to embed or, with a query, of the two to rank.
   * @param {string} text @param {{query?: string, parseSpecial?: boolean, most?: number}} options  most: tokens; the
   *   last ones of a longer text are left out; default: no limit */
  tokenizeInput(text, { query, parseSpecial, most = 0 }) {
    return this.withText(query ?? '', (queryChars, queryLength) => this.withText(text, (chars, length) =>
      this.#ids(queryLength + length + 8, (ids, cap) => this.c.plumb_tokenize_input(this.#model,
        query === undefined ? 0 : queryChars, queryLength, chars, length, parseSpecial ? PARSE_SPECIAL : 0, most, ids,
        cap))));
  }

  /** @param {ArrayLike<number>} ids @param {boolean} special */
  detokenize(ids, special) {
    for (let i = 0; i < ids.length; i++) this.#checkToken(ids[i]);
    return this.withIds(ids, (array, length) => {
      const { ptr, n } = this.#fillBuffer(64 + 8 * length, (buf, cap) =>
        Number(this.c.plumb_detokenize(this.#model, array, length, special, buf, cap)));
      return decode(this.u8.slice(ptr, ptr + n));
    });
  }

  /** The text of one token; '' for a control token if special is false. @param {number} id @param {boolean} special */
  piece(id, special) {
    this.#checkToken(id);
    return decode(this.pieceBytes(id, special));
  }

  /** Throws if a token is outside the vocabulary.  The C functions below leave no message about it, because their model
   * is const.
   * @param {number} id */
  #checkToken(id) {
    const n = this.c.plumb_model_n_vocab(this.#model);
    if (id >= 0 && id < n) return;
    throw new PlumbError('PLUMB_ERROR_TOKEN', `token ${id} is outside the vocabulary of ${n} tokens`,
      { token: id, vocabulary: n });
  }

  /** A copy of the bytes of a token's text. @param {number} id @param {boolean} special  as in piece */
  pieceBytes(id, special) {
    const { ptr, n } = this.#piece(id, special);
    return this.u8.slice(ptr, ptr + n);
  }

  /** Writes the bytes of a token's text to the buffer of buffer. @param {number} id
   * @param {boolean} special  as in piece */
  #piece(id, special) {
    return this.#fillBuffer(256, (buf, cap) => Number(this.c.plumb_token_piece(this.#model, id, special, buf, cap)));
  }

  /** @returns {number}  -1: none */
  get bos() { return this.c.plumb_token_bos(this.#model); }
  /** @returns {number}  -1: none */
  get eos() { return this.c.plumb_token_eos(this.#model); }
  /** @param {number} id */
  endsTurn(id) { return Boolean(this.c.plumb_token_is_eog(this.#model, id)); }

  // ---- what the module calls ----

  /** Calls use, which lets the module write or read the bytes of a saved session. @template T
   * @param {Uint8Array} bytes @param {() => T} use @returns {T} */
  exchange(bytes, use) {
    this.#saved = { bytes, at: 0 };
    try {
      return use();
    } finally {
      this.#saved = { bytes: new Uint8Array(), at: 0 };
    }
  }

  /** What the module calls as plumb_on_write. @param {number} ptr @param {number} n */
  wrote(ptr, n) {
    const start = this.address(ptr), length = this.address(n);
    this.#saved.bytes.set(this.u8.subarray(start, start + length), this.#saved.at);
    this.#saved.at += length;
  }

  /** What the module calls as plumb_on_read. @param {number} ptr @param {number} n */
  read(ptr, n) {
    const { bytes, at } = this.#saved, piece = bytes.subarray(at, at + this.address(n));
    this.u8.set(piece, this.address(ptr));
    this.#saved.at += piece.length;
    return piece.length;
  }

  /** What the module calls as plumb_on_tap. @param {import('./traces.js').RawTap} tap */
  tapped(...[name, layer, pos, tokens, heads, n, data]) {
    this.#onTap?.({ name: this.string(name), layer, pos: pos >>> 0, tokens, heads, n,
      data: new Float32Array(this.memory.buffer, this.address(data), tokens * heads * n) });
  }

  /** Calls feed, and onTap with what each step of it computed.
   * @param {(tap: import('./traces.js').Tap) => void} onTap @param {() => void} feed */
  tapping(onTap, feed) {
    /** @type {unknown[]} */
    const thrown = [];   // no exception may pass through the module
    this.#onTap = tap => {
      try {
        if (thrown.length === 0) onTap(tap);
      } catch (error) {
        thrown.push(error);
      }
    };
    try {
      feed();
    } finally {
      this.#onTap = undefined;
    }
    if (thrown.length > 0) throw thrown[0];
  }

  get hasTraces() { return this.#traces !== undefined; }

  /** Makes traces possible.  Must be called once, before trace. @param {WebAssembly.Module} module  plumb-trace.wasm */
  async loadTraces(module) {
    this.#traces = await Traces.create(module, id => {
      if (id < 0 || id >= this.c.plumb_model_n_vocab(this.#model)) return undefined;
      return this.pieceBytes(id, true);
    });
  }

  get traces() { return /** @type {Traces} */ (this.#traces); }

  // ---- sampler ----

  get hasGrammars() { return this.#grammars !== undefined; }

  /** Makes grammars possible.  Must be called once, before a sampler is created with a grammar.
   * @param {WebAssembly.Module} module  plumb-grammar.wasm */
  async loadGrammars(module) {
    this.#grammars = await Grammars.create(module, this.vocabulary(), text => {
      const ids = this.tokenize(text, { parseSpecial: true });
      return ids.length === 1 ? ids[0] : -1;
    });
  }

  /** All tokens, as wasm/vocabulary.h has them. @returns {import('./grammars.js').Vocabulary} */
  vocabulary() {
    const c = this.c, n = c.plumb_model_n_vocab(this.#model);
    return this.withBytes(5 * n, ends => {
      const kinds = ends + 4 * n, { ptr, n: length } = this.#fillBuffer(8 * n, (texts, cap) =>
        c.plumb_wasm_vocabulary(this.#model, ends, kinds, texts, cap));
      return {
        ends: new Uint32Array(this.u8.slice(ends, kinds).buffer), kinds: this.u8.slice(kinds, kinds + n),
        texts: this.u8.slice(ptr, ptr + length),
      };
    });
  }

  /** A pointer to a copy of a set of tokens. @param {Uint8Array} mask */
  #copyMask(mask) {
    this.#mask ||= this.malloc(mask.length);
    this.u8.set(mask, this.#mask);
    return this.#mask;
  }

  /** @param {Session} session  whose logits are sampled
   * @param {Sampling & {grammar?: Grammar}} options  checked by the caller; with a grammar, loadGrammars must have
   *   succeeded
   * @param {boolean} [describes]  whether the tokens are described, so that what the grammar allowed is kept */
  createSampler(session, options, describes = false) {
    const c = this.c;
    const grammars = /** @type {Grammars} */ (this.#grammars);
    const matcher = options.grammar && grammars.createMatcher(options.grammar, describes);
    const bias = biasPairs(options.logitBias);
    const sampler = this.withBytes(8 * (PARAMETERS.length + bias.length), ptr => {
      PARAMETERS.forEach(({ name, standard }, i) => this.view.setFloat64(ptr + 8 * i,
        /** @type {Record<string, any>} */ (options)[name] ?? standard, true));
      const pairs = ptr + 8 * PARAMETERS.length;
      bias.forEach(([token, value], i) => {
        this.view.setInt32(pairs + 8 * i, token, true);
        this.view.setFloat32(pairs + 8 * i + 4, value, true);
      });
      const status = c.plumb_wasm_sampler_create(this.out, c.plumb_model_n_vocab(this.#model), ptr, bias.length, pairs,
        BigInt(options.seed ?? 0), this.out + this.word);
      if (status === 0) return this.result(0);
      const error = this.error(status, this.string(this.result(1)));
      matcher?.free();
      throw error;
    });
    return {
      warnings: matcher?.warnings ?? [],
      /** @param {number} token */
      accept: token => c.plumb_sampler_accept(sampler, token),
      /** The next token, from the session's logits, and within the grammar if there is one; -1 if none is possible.
       * @returns {number} */
      sample: () => {
        const mask = matcher ? this.#copyMask(matcher.mask()) : 0;
        const id = c.plumb_sampler_sample_allowed(sampler, c.plumb_session_logits(session.pointer), mask);
        if (id >= 0) matcher?.accept(id);
        return id;
      },
      /** The tokens that must follow by the grammar, which are not sampled but accepted: those of its forced text but
       * the last, since that one may be merged with what follows.  None if there are fewer than two, which would save
       * nothing. */
      forced: () => {
        const text = matcher?.forced();
        const ids = text ? this.tokenize(text, { continues: true }).subarray(0, -1) : [];
        return ids.length >= 2 ? [...ids].slice(0, matcher?.acceptAll(ids)) : [];
      },
      /** With each call the set of tokens that the grammar allowed in the place of the next token, from the first on;
       * undefined without a grammar. */
      nextSet: () => matcher?.sets.shift(),
      /** Tells the grammar of tokens that are not sampled. @param {number[]} ids */
      follow: ids => { matcher?.acceptAll(ids); },
      /** Whether there is a grammar, and what was sampled is complete. */
      isComplete: () => matcher?.mayEnd() ?? false,
      free: () => {
        matcher?.free();
        c.plumb_sampler_free(sampler);
      },
    };
  }
}

/** The value of a metadata key, from its text.
 * @param {string} type  "uint32", "array of string"... @param {string} text @returns {Scalar} */
function scalar(type, text) {
  if (type.endsWith('string')) return text;
  if (type.endsWith('bool')) return text === 'true';
  const value = Number(text);
  return type.includes('int') && !Number.isSafeInteger(value) ? BigInt(text) : value;
}
