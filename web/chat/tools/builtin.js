/* The tools that the page has of its own. */
import { calculate } from './calculator.js';
import { fetchPage, pageRequest } from './web-page.js';

/** A tool as the page runs it.
 * @typedef {object} Tool
 * @property {string} name  what the model calls it
 * @property {string} label  what the reader sees
 * @property {string} [description]  for the model
 * @property {Record<string, any>} parameters  a JSON Schema
 * @property {(args: any) => Request | Promise<Request>} [request]  what a call would send, about which the reader is
 *   asked first; undefined: it sends nothing
 * @property {(args: any, signal?: AbortSignal, request?: Request) => string | Promise<string>} run */
/** What a call sends.
 * @typedef {object} Request
 * @property {string} address
 * @property {string} sent  all that the page writes of the request: its body, then its headers
 * @property {number} bytes  of its body */

/** @param {Record<string, any>} properties */
const object = properties => ({ type: 'object', properties, required: Object.keys(properties),
  additionalProperties: false });

/** @type {(Tool & {about: string})[]} */
export const BUILTIN = [
  {
    name: 'calculate', label: 'Calculator', about: 'Computes with numbers. It sends nothing.',
    description: 'Computes the value of an arithmetic expression, such as (3 + 4) * 2^3 or sqrt(2) / 3.',
    parameters: object({ expression: { type: 'string', minLength: 1, maxLength: 200 } }),
    run: ({ expression }) => calculate(expression),
  },
  {
    name: 'current_time', label: 'Date and time', about: 'Tells the date and the time of this computer. It sends '
      + 'nothing.',
    description: 'Tells the current date and time, with the weekday and the time zone.', parameters: object({}),
    run: () => String(new Date()),
  },
  {
    name: 'fetch_page', label: 'Web pages', about: 'Reads the text of an address on the web. Each time you are asked, '
      + 'and see the address. Many servers do not allow pages of other sites to read theirs.',
    description: 'Reads the text of a web page.',
    parameters: object({ url: { type: 'string', minLength: 8, maxLength: 1000, description: 'begins with https://' } }),
    request: ({ url }) => pageRequest(url),
    run: ({ url }, signal) => fetchPage(url, signal),
  },
];
