/** A proxy between a page and a server on this machine: it counts bytes, and breaks connections on request. */
import { createServer, request as ask } from 'node:http';

/**
 * @typedef {{url: string, close: () => Promise<void>, sent: {path: string, bytes: number}[],
 *   breakAt: (path: string, bytes: number, how: 'close' | 'stall') => void}} Proxy
 *   sent: every answer.  breakAt: ends one answer for path after this many bytes of the file
 * @param {string} inner  the server's URL @param {Record<string, string>} headers  of its answers, instead of its own
 * @returns {Promise<Proxy>} */
export async function openProxy(inner, headers) {
  const sent = [];
  let broken;
  const server = createServer((request, response) => {
    const path = request.url.replace(/\?.*/, '');
    const note = { path, bytes: 0 };
    sent.push(note);
    const give = async (status, answered, chunks, first) => {
      response.writeHead(status, { ...answered, ...headers });
      const limit = broken?.path === path && request.method === 'GET' ? broken : undefined;
      for await (let chunk of chunks) {
        const left = limit ? limit.bytes - first - note.bytes : Infinity;
        if (chunk.length > left) chunk = chunk.subarray(0, Math.max(left, 0));
        note.bytes += chunk.length;
        if (!response.write(chunk)) await drained(response);
        if (response.destroyed) return;
        if (limit && first + note.bytes >= limit.bytes) {
          broken = undefined;
          if (limit.how === 'close') setTimeout(() => response.destroy(), 100);   // once that has arrived
          return;
        }
      }
      response.end();
    };
    ask(new URL(request.url, inner), { method: request.method, headers: request.headers }, answer => {
      const [, first = 0] = /^bytes (\d+)-/.exec(answer.headers['content-range'] ?? '') ?? [];
      const { 'cross-origin-opener-policy': _, 'cross-origin-embedder-policy': __, ...others } = answer.headers;
      void give(answer.statusCode, others, answer, Number(first));
      response.once('close', () => answer.destroy());
    }).once('error', () => response.destroy()).end();
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/`, sent,
    breakAt(path, bytes, how) { broken = { path, bytes, how }; },
    close: () => new Promise(resolve => {
      server.close(resolve);
      server.closeAllConnections();
    }),
  };
}

/** @param {import('node:http').ServerResponse} response */
const drained = response => new Promise(resolve => {
  const done = () => resolve(void response.off('drain', done).off('close', done));
  response.on('drain', done).on('close', done);
});
