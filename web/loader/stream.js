/* Chunks of a byte stream, one after the other. */

/** The readers that are in use.  What waits for a Blob's next bytes with a BYOB reader keeps neither the reader nor the
 * stream alive in Chromium (156): once they are collected, no bytes come and no error.  (WebKit bug 302685 was that of
 * all readers.) */
const inUse = new Set();

/** Bytes of a stream that are read at once, at most: they fit in a processor's cache. */
const BUFFER = 1 << 18;

/** @param {ReadableStream<Uint8Array>} stream @param {boolean} [oneBuffer]  for all chunks, where the stream can fill
 *   what it is given: new memory for each costs as much time as the bytes.  A chunk is valid until the next is read
 * @returns {{read: () => Promise<{done: boolean, value?: Uint8Array}>, cancel: () => Promise<void>}} */
function chunkReader(stream, oneBuffer) {
  let reader = /** @type {ReadableStreamBYOBReader | undefined} */ (undefined);
  try {
    if (oneBuffer) reader = stream.getReader({ mode: 'byob' });
  } catch {
    // Not in every browser.
  }
  if (!reader) return stream.getReader();
  const from = reader;
  let buffer = new ArrayBuffer(BUFFER);
  return {
    async read() {
      const { done, value } = await from.read(new Uint8Array(buffer));
      if (value) buffer = value.buffer;
      return { done, value };
    },
    cancel: () => from.cancel(),
  };
}

/** As for await over the stream, which Safari does not have.
 * @param {ReadableStream<Uint8Array>} stream @param {boolean} [oneBuffer]
 * @param {<T>(coming: Promise<T>) => Promise<T>} [watch]  what waits for each chunk: it may fail before one comes */
export async function* streamChunks(stream, oneBuffer, watch = coming => coming) {
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
