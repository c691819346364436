/* plumb-llm/openai in Node: the client, with the name that it has in OpenAI's package. */
import { Client } from '../serving/client.js';
import { Plumb } from './index.js';

export { PlumbError } from './index.js';

export class OpenAI extends Client {
  /** @param {import('../serving/client.js').ClientOptions} [options] */
  constructor(options) { super(Plumb, options); }
}
export default OpenAI;
