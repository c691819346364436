/* Digests of a copy, so that a bit that flips on disk is detected when the copy is loaded.  A file is divided into
 * chunks of CHUNK bytes, of which the last may be shorter, and each chunk has a digest.  The engine computes them while
 * the file streams (src/engine/base/digest.h).
 *
 * While a copy is written, its digests are stored beside it in slots of 16 bytes.  Slot i describes the bytes from
 * i * CHUNK on: it has the position where they end (a big-endian 64-bit float), and their digest.  The slot of an
 * incomplete chunk is written again after each write of bytes, and never before them.  So if a process is killed, the
 * slots prove the bytes that it left, up to the end that the last slot gives.  The digests of a complete copy are in
 * its metadata, as hex digits: 16 for each chunk.  In this folder "sums" are digests as hex digits; "sha256" is the
 * checksum of a file. */
import { hex } from '../base/hex.js';

/** Bytes in a chunk. */
export const CHUNK = 1 << 22;
/** Bytes in a slot. */
const SLOT = 16;

/** @typedef {object} Digest  computes digests in an engine, one at a time
 * @property {() => void} begin
 * @property {(bytes: Uint8Array) => unknown} update
 * @property {() => Uint8Array} end  the digest so far, 8 bytes; update may be called again afterwards */

/** The digest of an engine that may be replaced by another one. @param {() => {digest: Digest}} engine
 * @returns {Digest} */
export const digestOf = engine => ({
  begin: () => engine().digest.begin(),
  update: bytes => engine().digest.update(bytes),
  end: () => engine().digest.end(),
});

/** The error for a copy whose bytes are not those that were downloaded. */
export class Damaged extends Error {
  /** @param {number} from @param {number} to */
  constructor(from, to) { super(`the bytes from ${from} to ${to} are not those that were downloaded`); }
}

/** Computes the digests of a file whose bytes arrive in order.  If they come from a copy, it compares the digests with
 * those that were stored. */
export class Sums {
  /** Bytes so far. */
  at = 0;
  /** The digests of complete chunks. @type {string[]} */
  #whole = [];

  /** @param {Digest} digest
   * @param {string[]} [expected]  the digests that the first `size` bytes must have; update throws Damaged if they
   *   differ.  The digests of later bytes are only computed
   * @param {number} [size]  how many bytes the expected digests describe; the last chunk may be incomplete */
  constructor(digest, expected = [], size = 0) {
    this.digest = digest;
    this.expected = expected;
    this.size = size;
    digest.begin();
  }

  /** @param {Uint8Array} bytes */
  update(bytes) {
    for (const piece of pieces(bytes, this.at)) this.#add(piece);
  }

  /** Reads on to the end of the present chunk, or to the end of the bytes with expected digests if that comes first,
   * and checks the digest.  Called when the engine has refused bytes of that chunk, because damage may be the reason.
   * @param {(at: number, end: number) => Promise<Uint8Array | null>} next  gets some bytes from `at` on; null or an
   *   empty array: there are no more */
  async endChunk(next) {
    const end = Math.min(Math.ceil(this.at / CHUNK) * CHUNK, this.size);
    while (this.at < end) {
      const bytes = await next(this.at, end);
      if (!bytes?.length) throw new Damaged(end - 1 - (end - 1) % CHUNK, end);   // from the start of the chunk
      this.update(bytes.subarray(0, end - this.at));
    }
  }

  /** Does what update does, and yields the pieces to write, each with its position, its slot, and the position of that.
   * @param {Uint8Array} bytes */
  *slots(bytes) {
    for (const piece of pieces(bytes, this.at)) {
      const at = this.at;
      this.#add(piece);
      const i = Math.floor(at / CHUNK);   // if the piece completes the chunk, #add has stored its digest
      yield { piece, at, slot: slotOf(this.at, this.#whole[i] ?? hex(this.digest.end())), slotAt: i * SLOT };
    }
  }

  /** The slots of all bytes so far. */
  allSlots() {
    const all = this.all(), slots = new Uint8Array(all.length * SLOT);
    for (const [i, sum] of all.entries()) slots.set(slotOf(Math.min((i + 1) * CHUNK, this.at), sum), i * SLOT);
    return slots;
  }

  /** The digests of all bytes so far. */
  all() { return this.at % CHUNK ? [...this.#whole, hex(this.digest.end())] : this.#whole; }

  /** @param {Uint8Array} piece  bytes of one chunk */
  #add(piece) {
    this.digest.update(piece);
    this.at += piece.length;
    const i = Math.ceil(this.at / CHUNK) - 1;   // the chunk of the piece
    if (this.at === this.size || this.at < this.size && this.at % CHUNK === 0) {
      if (hex(this.digest.end()) !== this.expected[i]) throw new Damaged(i * CHUNK, this.at);
    }
    if (this.at % CHUNK > 0) return;
    this.#whole.push(hex(this.digest.end()));
    this.digest.begin();
  }
}

/** Cuts bytes where chunks end.
 * @param {Uint8Array} bytes @param {number} at  the position of the first one in the file */
function* pieces(bytes, at) {
  for (let i = 0, n; i < bytes.length; i += n) {
    n = Math.min(bytes.length - i, CHUNK - (at + i) % CHUNK);
    yield bytes.subarray(i, i + n);
  }
}

/** The bytes of all slots of a file. @param {number} size  of the file */
export const slotBytes = size => Math.ceil(size / CHUNK) * SLOT;

/** Parses slots, which are untrusted: it stops at the first one that makes no sense.  Returns how many bytes of the
 * file they describe (`at`), and the digests of those.
 * @param {Uint8Array} slots @param {number} size  of the file */
export function parseSlots(slots, size) {
  const view = new DataView(slots.buffer, slots.byteOffset, slots.length);
  /** @type {string[]} */
  const sums = [];
  let at = 0;
  // A slot that does not end its chunk is the last one.
  for (let i = 0; at === i * CHUNK && (i + 1) * SLOT <= slots.length; i++) {
    const end = view.getFloat64(i * SLOT);
    if (!(Number.isSafeInteger(end) && end > at && end <= Math.min(size, at + CHUNK))) break;
    sums.push(hex(slots.subarray(i * SLOT + 8, (i + 1) * SLOT)));
    at = end;
  }
  return { at, sums };
}

/** The digests of a complete file from its metadata, or undefined if the text is invalid. @param {string} text
 * @param {number} size */
export function parseSums(text, size) {
  const n = Math.ceil(size / CHUNK);
  if (text.length !== 16 * n || !/^[0-9a-f]*$/.test(text)) return undefined;
  return Array.from({ length: n }, (_, i) => text.slice(16 * i, 16 * i + 16));
}

/** The 16 bytes of a slot. @param {number} end  where its bytes end in the file @param {string} sum */
function slotOf(end, sum) {
  const slot = new Uint8Array(SLOT), view = new DataView(slot.buffer);
  view.setFloat64(0, end);
  view.setBigUint64(8, BigInt(`0x${sum}`));
  return slot;
}
