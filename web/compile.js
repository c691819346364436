/* The module in a browser, compiled while it arrives. */
import { PlumbError, reasonOf } from './errors.js';

const url = new URL('./dist/plumb.wasm', import.meta.url);

/** @returns {Promise<WebAssembly.Module>} */
export async function compile() {
  try {
    const response = await fetch(url);
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    // Streaming asks for the right MIME type, which not every server sends.
    const streams = response.headers.get('Content-Type')?.startsWith('application/wasm');
    if (streams) return await WebAssembly.compileStreaming(response);
    return await WebAssembly.compile(await response.arrayBuffer());
  } catch (error) {
    throw new PlumbError('PLUMB_ERROR_IO', `${url}: the engine does not load: ${reasonOf(error)}`,
      { url: url.href });
  }
}
