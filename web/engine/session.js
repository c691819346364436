/* A session of an engine: a sequence of tokens, what was computed for them, and the text that is made of them.  All
 * methods are synchronous. */
import { POOLINGS, PRECISIONS } from '../base/parameters.js';
import { decode } from './instance.js';

/** @typedef {{pointer: number, scale: number, layers?: [number, number]}} AdapterUse  pointer: that of a LoadedAdapter;
 *   layers: the first and the last one that a control vector changes; default: all */

/** @typedef {Exclude<import('../loader/load-options.js').LoadOptions['speculate'], undefined>} Speculation */
/** @typedef {object} Candidate  a token that was possible
 * @property {number} id
 * @property {string} piece  its text, also of a control token; bytes that are not part of a whole character are U+FFFD
 * @property {number[]} bytes  its text as bytes; a character may be spread over several tokens
 * @property {number} logprob  natural logarithm of its probability: of the softmax of the model's logits, before bias,
 *   penalties, filters and temperature; -Infinity for NaN
 * @property {boolean} [allowed]  under a grammar: whether it allowed this token
 * @typedef {Candidate & {top: Candidate[], allowedTokens?: number}} GeneratedToken  top: the likeliest tokens, most
 *   likely first; of equally likely ones the lower id comes first.  allowedTokens: under a grammar, how many tokens of
 *   the vocabulary it allowed in the place of this one */
/** @typedef {object} OwnEngine  what an engine has besides an Instance
 * @property {number} model  pointer to the plumb_model
 * @property {number} bytes
 * @property {Session[]} sessions
 * @property {(pointer: number) => Session} addSession
 * @property {(session: Session) => number} openDraft
 * @property {() => any} modelInfo
 * @property {(id: number, special: boolean) => Uint8Array} pieceBytes
 * @property {(bytes: Uint8Array, use: () => number) => number} exchange
 * @property {(onTap: (tap: import('./traces.js').Tap) => void, feed: () => void) => void} tapping
 * @property {import('./traces.js').Traces} traces
 * @typedef {import('./instance.js').Instance & OwnEngine} Engine */

export class Session {
  #engine;
  /** Pointer to a session of the draft model; 0: none. */
  #draft = 0;
  /** Pointer to a plumb_text, which holds the incomplete character of the text being generated. */
  #text;

  /** @param {Engine} engine @param {number} pointer  to a plumb_session; Engine.addSession calls this */
  constructor(engine, pointer) {
    this.#engine = engine;
    this.pointer = pointer;
    this.#text = engine.malloc(8);
  }

  /** Engine.closeSession calls this. */
  free() {
    this.#engine.c.plumb_session_free(this.pointer);
    this.closeDraft();
    this.#engine.c.free(this.#text);
  }

  /** @param {number} status */
  #check(status) {
    if (status === 0) return;
    throw this.#engine.error(status, this.#engine.string(this.#engine.c.plumb_session_error(this.pointer)));
  }

  /** A session that holds what this one holds, and shares it. @returns {Session} */
  fork() {
    this.#check(this.#engine.c.plumb_session_fork(this.#engine.out, this.pointer));
    return this.#engine.addSession(this.#engine.result(0));
  }

  /** Whether the engine can feed both sessions at once. @param {Session} other */
  joins(other) { return Boolean(this.#engine.c.plumb_session_joins(this.pointer, other.pointer)); }

  /** Makes this session hold the longest beginning of a prompt that it or another session holds, and returns how many
   * tokens that is; see reuse. @param {Int32Array} ids @returns {number} */
  reuseAny(ids) {
    const { c } = this.#engine;
    return this.#engine.withIds(ids, (ptr, n) => {
      const common = (/** @type {Session} */ from) =>
        /** @type {number} */ (c.plumb_session_common(this.pointer, from.pointer, ptr, n));
      let best = /** @type {Session} */ (this), most = common(this);
      for (const one of this.#engine.sessions) {
        const n = common(one);
        if (n > most) [best, most] = [one, n];
      }
      if (best === this) return c.plumb_session_reuse(this.pointer, ptr, n);
      this.#check(c.plumb_session_adopt(this.pointer, best.pointer, most));
      return most;
    });
  }

  /** @returns {number} the maximum number of tokens that the session can hold */
  get contextLength() { return this.#engine.c.plumb_session_n_ctx(this.pointer); }
  /** @returns {number} how many tokens of a prompt the session computes at once */
  get batch() { return this.#engine.c.plumb_session_n_batch(this.pointer); }
  /** @returns {boolean} whether that is more than the model was trained for */
  get exceedsTraining() { return Boolean(this.#engine.c.plumb_session_exceeds_training(this.pointer)); }
  /** @returns {number} tokens in the session */
  get position() { return this.#engine.c.plumb_session_n_past(this.pointer); }

  /** @returns {number} tokens that a full session has dropped */
  get dropped() { return this.#engine.c.plumb_session_n_dropped(this.pointer); }

  /** What a full session does: plumb_session_set_shift. @param {number} keep  0: feeding it is an error */
  setShift(keep) { this.#check(this.#engine.c.plumb_session_set_shift(this.pointer, keep)); }

  /** Keeps the longest common prefix of the session's tokens and ids, forgets the tokens after it, and returns how many
   * are kept: none if the prefix must be computed again.  The last id is never part of it, so that feeding that id
   * computes its logits.
   * @param {Int32Array} ids @returns {number} */
  reuse(ids) { return this.#engine.withIds(ids, (ptr, n) => this.#engine.c.plumb_session_reuse(this.pointer, ptr, n)); }

  /** Forgets all tokens. */
  clear() { this.#check(this.#engine.c.plumb_session_rewind(this.pointer, 0)); }

  /** How many tokens the session and a prompt have in common at their start. @param {Int32Array} ids */
  common(ids) {
    const ptr = this.#engine.address(this.#engine.c.plumb_session_tokens(this.pointer));
    const held = new Int32Array(this.#engine.memory.buffer, ptr, this.position);
    const differs = held.findIndex((id, i) => id !== ids[i]);
    return differs < 0 ? held.length : differs;
  }

  /** Keeps the first tokens and forgets the others.  Returns those of the first tokens that the caller must feed again,
   * because the session no longer has what it needs to go on after them.  These are none, some or all of them.
   * @param {number} position  how many tokens to keep @returns {Int32Array} */
  rewind(position) {
    // Nothing is forgotten, it is an error, or reuse would compare with tokens that were dropped, too.
    if (position >= this.position || this.dropped > 0) {
      this.#check(this.#engine.c.plumb_session_rewind(this.pointer, position));
      return new Int32Array(0);
    }
    const ptr = this.#engine.address(this.#engine.c.plumb_session_tokens(this.pointer));
    const ids = new Int32Array(this.#engine.memory.buffer, ptr, position + 1).slice();
    return ids.subarray(this.reuse(ids), position);
  }

  /** Lets the encoder of a model that has one read a text, and forgets all tokens unless it is the same text as before.
   * @param {ArrayLike<number>} ids */
  encode(ids) {
    this.#engine.withIds(ids, (ptr, n) => this.#check(this.#engine.c.plumb_session_encode(this.pointer, ptr, n)));
  }

  /** @param {ArrayLike<number>} ids */
  feed(ids) {
    this.#engine.withIds(ids, (ptr, n) => this.#check(this.#engine.c.plumb_session_feed(this.pointer, ptr, n)));
  }

  /** Lets later feeds compute ahead what is likely to follow, which changes no result; false: no longer.
   * @param {Speculation} how */
  speculate(how) {
    const { c } = this.#engine, isOn = how !== false, { least = 0, most = 0 } = how === 'lookup' || !isOn ? {} : how;
    if (isOn) this.#draft ||= this.#engine.openDraft(this);
    this.#check(c.plumb_wasm_session_speculate(this.pointer, Number(isOn), least, most, isOn ? this.#draft : 0));
  }

  /** Frees the session of the draft model.  No draft may be asked for later, unless speculate is called again. */
  closeDraft() {
    this.#engine.c.plumb_session_free(this.#draft);
    this.#draft = 0;
  }

  /** How many tokens were computed ahead so far, and how many of them were then fed. */
  get drafts() {
    const { c } = this.#engine;
    return { drafted: Number(c.plumb_session_n_drafted(this.pointer)),
      accepted: Number(c.plumb_session_n_accepted(this.pointer)) };
  }

  /** Whether feeding these tokens computes nothing, because all of them were computed ahead.
   * @param {ArrayLike<number>} ids */
  isAhead(ids) {
    const { c } = this.#engine;
    return this.#engine.withIds(ids, (ptr, n) => c.plumb_session_n_ahead(this.pointer, ptr, n)) === ids.length;
  }

  /** How many bytes save() returns now; 0 if it cannot. @returns {number} */
  get savedBytes() { return this.#engine.c.plumb_wasm_session_save_bytes(this.pointer); }

  /** What the session holds, as bytes. @returns {Uint8Array<ArrayBuffer>} */
  save() {
    const bytes = new Uint8Array(this.savedBytes);
    this.#check(this.#engine.exchange(bytes, () => this.#engine.c.plumb_wasm_session_save(this.pointer)));
    return bytes;
  }

  /** Replaces what the session holds by what save() has returned. @param {Uint8Array} bytes */
  restore(bytes) {
    this.#check(this.#engine.exchange(bytes, () => this.#engine.c.plumb_wasm_session_restore(this.pointer)));
  }

  /** Computes embeddings of the first of some texts, as many as are fast to compute at once, and forgets all tokens.
   * @param {Int32Array[]} texts  the tokens of each @param {typeof POOLINGS[number]} pooling
   * @returns {{length: number, vectors: Float32Array[]}}  length: elements of a vector; with pooling 'none' an array of
   *   vectors has those of all tokens of a text, one after the other */
  embed(texts, pooling) {
    const c = this.#engine.c, session = this.pointer, kind = POOLINGS.indexOf(pooling);
    const ids = new Int32Array(texts.reduce((n, text) => n + text.length, 0));
    texts.reduce((at, text) => (ids.set(text, at), at + text.length), 0);
    const n = this.#engine.withIds(ids, at => this.#engine.withIds(texts.map(({ length }) => length), lengths =>
      Number(c.plumb_session_embed(session, at, lengths, texts.length, kind))));
    if (n < 0) this.#check(n);
    const { out } = this.#engine;
    let ptr = this.#engine.address(c.plumb_session_embedding(session, out, out + 4));
    const length = this.#engine.uint32(out + 4);
    const vectors = texts.slice(0, n).map(text => {
      const elements = (pooling === 'none' ? text.length : 1) * length;
      const vector = new Float32Array(this.#engine.memory.buffer, ptr, elements).slice();
      ptr += 4 * elements;
      return vector;
    });
    return { length, vectors };
  }

  /** A copy of the logits after the last token that was fed. @returns {Float32Array<ArrayBuffer>} */
  logits() {
    const n = this.#engine.c.plumb_model_n_vocab(this.#engine.model);
    const ptr = this.#engine.address(this.#engine.c.plumb_session_logits(this.pointer));
    return new Float32Array(/** @type {ArrayBuffer} */ (this.#engine.memory.buffer), ptr, n).slice();
  }

  /** The log-probabilities of tokens, by the logits after the last token that was fed. @param {number[]} ids */
  logprobs(ids) {
    const { c, out } = this.#engine, logits = this.#engine.address(c.plumb_session_logits(this.pointer));
    const logSum = c.plumb_logits_top(logits, c.plumb_model_n_vocab(this.#engine.model), 0, out);
    return ids.map(id => this.#logprob(logits, id, logSum));
  }

  /** @param {number} logits  pointer @param {number} id @param {number} logSum */
  #logprob(logits, id, logSum) {
    const logit = this.#engine.view.getFloat32(logits + 4 * id, true);
    return Number.isNaN(logit) ? -Infinity : logit - logSum;
  }

  /** Describes a token that was sampled from the session's logits, and the likeliest ones.
   * @param {number} id @param {number} n  how many of the likeliest tokens to describe, at most 20
   * @param {Uint8Array} [allowed]  the set of tokens that a grammar allowed, if there is one
   * @returns {GeneratedToken} */
  describeToken(id, n, allowed) {
    const c = this.#engine.c, logits = this.#engine.address(c.plumb_session_logits(this.pointer));
    const logSum = c.plumb_logits_top(logits, c.plumb_model_n_vocab(this.#engine.model), n, this.#engine.out);
    const ids = Array.from({ length: n }, (_, i) => this.#engine.view.getInt32(this.#engine.out + 4 * i, true));
    const describe = (/** @type {number} */ id) => {
      const bytes = this.#engine.pieceBytes(id, true);
      return { id, piece: decode(bytes), bytes: [...bytes], logprob: this.#logprob(logits, id, logSum),
        ...allowed && { allowed: Boolean(allowed[id >> 3] & 1 << (id & 7)) } };
    };
    return { ...describe(id), top: ids.filter(id => id >= 0).map(describe),
      ...allowed && { allowedTokens: allowed.reduce((sum, byte) => sum + bitsOf(byte), 0) } };
  }

  // ---- the text ----

  /** Begins a new text for pushToken. */
  beginText() { this.#engine.u8.fill(0, this.#text, this.#text + 8); }

  /** Adds a token to the text and returns the characters that are now complete.
   * @param {number} id @param {boolean} [special]  as in piece @returns {string} */
  pushToken(id, special = false) {
    const piece = this.#engine.pieceBytes(id, special), n = piece.length;
    const cap = 3 * n + 12;   // the most that plumb_text_push writes
    const ptr = this.#engine.buffer(n + cap);   // the piece, then the text it makes
    this.#engine.u8.set(piece, ptr);
    const length = this.#engine.c.plumb_text_push(this.#text, ptr, n, ptr + n, cap);
    return decode(this.#engine.u8.slice(ptr + n, ptr + n + length));
  }

  /** Ends the text: returns U+FFFD if its last character is incomplete, otherwise ''. @returns {string} */
  flushText() {
    const ptr = this.#engine.buffer(12);
    return decode(this.#engine.u8.slice(ptr, ptr + this.#engine.c.plumb_text_flush(this.#text, ptr, 12)));
  }

  // ---- adapters, taps and what is known ----

  /** Makes the session use these adapters.  It forgets its tokens, unless they are the same as before.
   * @param {AdapterUse[]} uses */
  setAdapters(uses) {
    const { word } = this.#engine, bytes = word === 4 ? 16 : 24;   // of a plumb_adapter_use
    this.#engine.withBytes(bytes * uses.length, ptr => {
      uses.forEach(({ pointer, scale, layers: [first, last] = [0, 2 ** 32 - 1] }, i) => {
        const use = ptr + bytes * i + word;   // behind the address
        this.#engine.setSize(use - word, pointer);
        this.#engine.view.setFloat32(use, scale, true);
        this.#engine.view.setUint32(use + 4, first, true);
        this.#engine.view.setUint32(use + 8, Math.min(last, 2 ** 32 - 1), true);
      });
      this.#check(this.#engine.c.plumb_session_set_adapters(this.pointer, ptr, uses.length));
    });
  }

  /** Properties of the model and of the session. */
  info() {
    const c = this.#engine.c;
    return {
      ...this.#engine.modelInfo(),
      contextLength: this.contextLength,
      position: this.position,
      batch: this.batch,
      threads: /** @type {number} */ (c.plumb_session_n_thread(this.pointer)),
      kernels: this.#engine.string(c.plumb_session_kernels(this.pointer)),
      precision: PRECISIONS[c.plumb_session_precision(this.pointer)],
      sessionBytes: Number(c.plumb_session_bytes(this.pointer)),
      savedBytes: this.savedBytes,
      memoryBytes: this.#engine.bytes,
    };
  }

  /** Feeds ids, and calls onTap with what each step computed.
   * @param {Int32Array} ids @param {(tap: import('./traces.js').Tap) => void} onTap
   * @param {Int32Array} [text]  what an encoder reads first, which begins with ids */
  feedTapped(ids, onTap, text) {
    this.#engine.tapping(onTap, () => this.#check(this.#engine.withIds(text ?? ids, ptr =>
      this.#engine.c.plumb_wasm_feed_tapped(this.pointer, ptr, ids.length, text?.length ?? 0))));
  }

  /** What a trace says of the session, and of its model. @returns {import('./traces.js').Run} */
  traceRun() {
    const c = this.#engine.c;
    c.plumb_wasm_taps(this.pointer, this.#engine.out, this.#engine.out + 4);
    return {
      order: this.#engine.uint32(this.#engine.out), hasOutputNorms: this.#engine.u8[this.#engine.out + 4] !== 0,
      kernels: this.#engine.string(c.plumb_session_kernels(this.pointer)),
      precision: PRECISIONS[c.plumb_session_precision(this.pointer)], layers: this.#engine.modelInfo().layers,
      vocabulary: c.plumb_model_n_vocab(this.#engine.model), bos: c.plumb_token_bos(this.#engine.model),
    };
  }

  /** Feeds ids [at, end) and returns what every step computed.
   * @param {Int32Array} ids  the whole prompt; the session holds the first `at` of them @param {number} at
   * @param {number} end @param {import('./traces.js').TraceOptions} options
   * @returns {import('./traces.js').TraceDocument} */
  trace(ids, at, end, options) {
    const text = at === 0 && this.#engine.modelInfo().hasEncoder ? ids : undefined;
    return this.#engine.traces.record(this.traceRun(), ids, options, onTap =>
      this.feedTapped(ids.subarray(at, end), onTap, text));
  }
}

/** How many bits of a byte are set. @param {number} byte */
function bitsOf(byte) {
  let n = 0;
  for (; byte > 0; byte &= byte - 1) n++;
  return n;
}
