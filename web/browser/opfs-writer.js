/* Writes a copy in the browser's private file system, in a worker of its own, because there each write may take
 * milliseconds, most of all in a private window, whose files are in another process.
 *
 * Each side has one port of a MessageChannel; the worker gets its port as { write: port }.
 *
 *   loader -> worker   { open: NAME }                             takes the lock of the copy
 *                      { block, n, at, slot, slotAt }             writes n bytes of a buffer at `at`, then their slot,
 *                                                                 or without bytes the slots of all bytes so far
 *                      { end: size }                              truncates the file to this size and closes it
 *   worker -> loader   { opened }, { free: block }, { ended }     one answer for each message; { free } returns the
 *                                                                 buffer
 *                      { failed, name }                           the answer to the first message that fails: what
 *                                                                 happened, and the name of the error, "Busy" for a
 *                                                                 Busy.  Nothing more is written or answered
 *
 * A block never crosses the end of a chunk (CHUNK of sums.js), so one slot describes its end.  While the worker writes
 * one block, the next one grows, up to a whole chunk, so that slow writes become few and large.  If BACKLOG messages
 * are unanswered, the download waits too. */
import { reasonOf } from '../base/errors.js';
import { Busy } from '../loader/busy.js';
import { CHUNK } from '../loader/sums.js';

/** How many messages, most of them with a block of CHUNK bytes, may be unanswered before the next block waits. */
const BACKLOG = 16;

/** The loader's side: sends what is written to the worker. */
export class Writer {
  #worker;
  /** @type {MessagePort} */
  #port;
  /** Buffers that the worker has returned. @type {ArrayBuffer[]} */
  #free = [];
  /** The block that is being filled. @type {ArrayBuffer | undefined} */
  #block;
  /** Its bytes so far, and the position of the first one in the file. */
  #n = 0;
  #at = 0;
  /** The slot of the last write to the block, which includes the earlier ones. @type {Uint8Array} */
  #slot = new Uint8Array();
  #slotAt = 0;
  /** The number of messages without an answer. */
  #waiting = 0;
  /** The first failure; every later call throws it. @type {Error | undefined} */
  #failure;
  /** Lets #until look again. */
  #wake = () => {};

  /** @param {import('../base/protocol.js').WorkerLike} worker @param {string} name */
  constructor(worker, name) {
    const { port1, port2 } = new MessageChannel();
    this.#worker = worker;
    this.#port = port1;
    port1.onmessage = ({ data: { free, failed, name: kind } }) => {
      this.#waiting--;
      if (failed !== undefined) {
        this.#failure ??= kind === 'Busy' ? new Busy() : Object.assign(new Error(failed), { name: kind });
      }
      if (free) this.#free.push(free);
      if (this.#waiting === 0 && this.#n > 0) this.#post();
      this.#wake();
    };
    worker.onDeath(reason => {
      this.#failure ??= new Error(`the worker that writes the copy stopped: ${reason}`);
      this.#wake();
    });
    worker.post({ write: port2 }, [port2]);
    this.#send({ open: name });
  }

  /** Copies the bytes into the block.  Sends it at once if the worker has nothing to do, if the chunk is complete, or
   * if only slots are to be written. @type {import('../loader/copy-store.js').Lock['write']} */
  async write(bytes, at, slot, slotAt) {
    if (this.#n > 0 && (this.#at + this.#n !== at || this.#slotAt !== slotAt || this.#n + bytes.length > CHUNK)) {
      this.#post();
    }
    if (this.#n === 0) {
      await this.#until(() => this.#waiting < BACKLOG);
      this.#block = this.#free.pop() ?? new ArrayBuffer(CHUNK);
      this.#at = at;
    }
    this.#throw();
    new Uint8Array(/** @type {ArrayBuffer} */ (this.#block)).set(bytes, this.#n);
    this.#n += bytes.length;
    [this.#slot, this.#slotAt] = [slot, slotAt];
    if (this.#waiting === 0 || (at + bytes.length) % CHUNK === 0 || bytes.length === 0) this.#post();
  }

  /** Waits until all bytes are in the file. */
  async settle() {
    if (this.#n > 0) this.#post();
    await this.#until(() => this.#waiting === 0);
    this.#throw();
  }

  /** Must be called after the last write: truncates the file and closes it. @param {number} size */
  async end(size) {
    try {
      if (this.#n > 0) this.#post();
      this.#send({ end: size });
      await this.settle();
    } finally {
      this.#port.close();
      this.#worker.terminate();
    }
  }

  /** Sends the block; its buffer moves to the worker. */
  #post() {
    const { buffer: slot } = this.#slot.slice();
    this.#send({ block: this.#block, n: this.#n, at: this.#at, slot, slotAt: this.#slotAt },
      [/** @type {ArrayBuffer} */ (this.#block)]);
    this.#block = undefined;
    this.#n = 0;
  }

  /** @param {any} message @param {any[]} [transfer] */
  #send(message, transfer = []) {
    this.#waiting++;
    this.#port.postMessage(message, transfer);
  }

  /** Waits until done() or a failure. @param {() => boolean} done */
  async #until(done) {
    while (!this.#failure && !done()) await new Promise(resolve => { this.#wake = () => resolve(undefined); });
  }

  #throw() {
    if (this.#failure) throw this.#failure;
  }
}

/** The worker's side. @param {MessagePort} port
 * @param {(name: string) => Promise<{file: any, slots: any}>} open  opens and locks the two files of a copy */
export function serveWriter(port, open) {
  const post = (/** @type {any} */ message, /** @type {any[]} */ transfer = []) => port.postMessage(message, transfer);
  /** @type {{file: any, slots: any} | undefined} */
  let files;
  let last = Promise.resolve();   // messages are handled one after the other
  const close = () => {
    files?.slots.close();
    files?.file.close();   // last, because it holds the lock
    files = undefined;
  };
  const act = async (/** @type {any} */ { open: name, block, n, at, slot, slotAt, end }) => {
    if (name !== undefined) {
      files = await open(name);
      return post({ opened: true });
    }
    if (!files) return;   // an earlier message has failed
    const { file, slots } = files;
    if (block) {
      await writeAll(file, new Uint8Array(block, 0, n), at);
      await writeAll(slots, new Uint8Array(slot), slotAt);
      return post({ free: block }, [block]);
    }
    if (file.getSize() !== end) file.truncate(end);
    close();
    post({ ended: true });
  };
  const receive = async (/** @type {any} */ message) => {
    try {
      await act(message);
    } catch (error) {
      close();
      post({ failed: reasonOf(error), name: error instanceof Busy ? 'Busy' : /** @type {Error} */ (error).name });
    }
  };
  port.onmessage = ({ data }) => { last = last.then(() => receive(data)); };
}

/** What a write to a full storage returns in a private window of Chromium, which does not throw there: its error code
 * -8 (no space) as an unsigned number. */
const NO_SPACE = 2 ** 32 - 8;

/** Writes all bytes, in several steps if the browser writes fewer at once.  Throws a QuotaExceededError if the browser
 * reports that the storage is full, and another error if a write fails for an unknown reason.
 * @param {any} handle  a FileSystemSyncAccessHandle @param {Uint8Array} bytes @param {number} at */
export async function writeAll(handle, bytes, at) {
  for (let n = 0; n < bytes.length;) {
    const left = bytes.length - n, written = handle.write(bytes.subarray(n), { at: at + n });
    if (written === NO_SPACE || !(written > 0 && written <= left) && await isFull(left)) {
      throw new DOMException('the storage is full', 'QuotaExceededError');
    }
    if (!(written > 0 && written <= left)) throw new Error(`the browser wrote ${written} of the last ${left} bytes`);
    n += written;
  }
}

/** Whether the browser's quota has less room than this. @param {number} need  in bytes */
async function isFull(need) {
  const { quota = Infinity, usage = 0 } = await navigator.storage.estimate();
  return quota - usage < need;
}
