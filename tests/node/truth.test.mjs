/** The real models in Node. */
import { Plumb } from '../../web/node/index.js';
import { truth } from '../hosts/truth.mjs';
import { root } from './helpers.mjs';

truth('Node', async () => {
  Object.assign(globalThis, { Plumb });
  return {
    evaluate: async (run, value) => run(value),
    locate: file => `${root}${file}`,
    close: () => globalThis.model?.close(),
  };
});
