/** A port that nobody listens on, for programs that do not accept port 0. */
import { createServer } from 'node:net';

/** @returns {Promise<number>} */
export const freePort = () => new Promise((resolve, reject) => {
  const server = createServer().once('error', reject).listen(0, '127.0.0.1', () => {
    const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
    server.close(() => resolve(port));
  });
});
