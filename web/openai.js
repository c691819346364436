/* plumb/openai: the client with the name that OpenAI's package gives it. */
import { Client } from './client.js';
import { Plumb } from './index.js';

export { PlumbError } from './index.js';

export class OpenAI extends Client {
  /** @param {import('./client.js').ClientOptions} [options] */
  constructor(options) { super(Plumb, options); }
}
export default OpenAI;
