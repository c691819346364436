/* Reads the chunks of a byte stream, one after the other. */

/** The readers that are in use; being listed here keeps them alive.  A BYOB reader ("bring your own buffer") fills a
 * buffer that the caller gives it.  In Chromium 156, while such a reader waits for bytes of a Blob, neither it nor the
 * stream is kept alive.  If they are garbage-collected, neither bytes nor an error ever arrive.  (WebKit bug 302685 was
 * the same for all readers.) */
const inUse = new Set();

/** The maximum bytes that are read from a stream at once.  They fit into a processor's cache. */
const BUFFER = 1 << 18;

/** @param {ReadableStream<Uint8Array>} stream
 * @param {boolean} [oneBuffer]  whether to use one buffer for all chunks if the stream supports it, because allocating
 *   memory for a chunk takes as long as reading its bytes.  A chunk is then valid until the next one is read
 * @returns {{read: () => Promise<{done: boolean, value?: Uint8Array}>, cancel: () => Promise<void>}} */
function chunkReader(stream, oneBuffer) {
  let reader = /** @type {ReadableStreamBYOBReader | undefined} */ (undefined);
  try {
    if (oneBuffer) reader = stream.getReader({ mode: 'byob' });
  } catch {
    // BYOB readers are not available in every browser.
  }
  if (!reader) return stream.getReader();
  const from = reader;
  let buffer = new ArrayBuffer(BUFFER);
  return {
    async read() {
      const { done, value } = await from.read(new Uint8Array(buffer));
      if (value) buffer = value.buffer;   // the read has detached the old ArrayBuffer; this one has the same memory
      return { done, value };
    },
    cancel: () => from.cancel(),
  };
}

/** Does the same as `for await` over the stream, which Safari does not support.
 * @param {ReadableStream<Uint8Array>} stream @param {boolean} [oneBuffer]
 * @param {<T>(pending: Promise<T>) => Promise<T>} [watch]  waits for each chunk, and may reject before it arrives */
export async function* streamChunks(stream, oneBuffer, watch = pending => pending) {
  const reader = chunkReader(stream, oneBuffer);
  let ended = false;
  inUse.add(reader);
  try {
    for (;;) {
      const { done, value } = await watch(reader.read());
      ended = done;
      if (done || !value) return;
      yield value;
    }
  } catch (error) {
    ended = true;
    throw error;
  } finally {
    inUse.delete(reader);
    if (!ended) await reader.cancel().catch(() => {});
  }
}
