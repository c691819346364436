/** Modules with 64-bit addresses in this Node, which may have no such memories. */
import { hasWide } from '../../web/engine/variant.js';
import { addresses } from '../hosts/addresses.mjs';
import { root } from './helpers.mjs';

const host = async () => {
  globalThis.Plumb = (await import('../../web/node/index.js')).Plumb;
  return {
    evaluate: async (/** @type {Function} */ run, /** @type {any} */ value) => run(value),
    locate: (/** @type {string} */ file) => `${root}${file}`, close: async () => {},
  };
};
addresses(`Node ${process.versions.node}`, host, { wide: hasWide(), threads: [1, 2] });
