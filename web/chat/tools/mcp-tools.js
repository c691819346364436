/* The tools of a server, as they are told to the model.  Nothing of a description is trusted. */
import { visible } from './bounded.js';
import { isSmall } from './kept.js';

/** @typedef {object} Described
 * @property {string} name @property {string} description
 * @property {Record<string, any>} parameters  a JSON Schema
 * @property {string} [problem]  why the tool cannot be used, as the end of a sentence */

/** Characters of a name, of a description and of a schema; how deep a schema nests, and how many values it has. */
const MAX_NAME = 64, MAX_DESCRIPTION = 1000, MAX_SCHEMA = 16000, MAX_DEPTH = 24, MAX_VALUES = 2000;
/** Characters of an argument that is repeated in a header. */
const MAX_HEADER = 1000;

/** A tool as a server, or the storage of the browser, describes it. @param {any} value @returns {Described} */
export function describedTool(value) {
  const { name, description, inputSchema, parameters = inputSchema } = value ?? {};
  const problem = value?.problem !== undefined ? visible(value.problem, 300) : problemOf(name, parameters);
  return {
    name: visible(name ?? '', MAX_NAME) || '(no name)',
    description: description === undefined ? '' : visible(description, MAX_DESCRIPTION),
    ...problem ? { problem, parameters: {} } : { parameters },
  };
}

/** @param {unknown} name @param {any} schema */
function problemOf(name, schema) {
  if (typeof name !== 'string' || !/^[\w.-]{1,64}$/.test(name) || name in Object.prototype) {
    return `its name is reserved, or is not made of 1 to ${MAX_NAME} letters, digits, dots, hyphens and underscores`;
  }
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema) || schema.type !== 'object') {
    return 'its schema is not that of an object';
  }
  if (!isSmall(schema, MAX_DEPTH, MAX_VALUES)) {
    return `its schema nests deeper than ${MAX_DEPTH} levels, or has more than ${MAX_VALUES} values`;
  }
  if (JSON.stringify(schema).length > MAX_SCHEMA) return `its schema has more than ${MAX_SCHEMA} characters`;
  const headers = headerPaths(schema).map(({ header }) => header);
  const isWrong = headers.some(one => !one) || new Set(headers.map(one => one.toLowerCase())).size < headers.length
    || headers.length !== JSON.stringify(schema).split('"x-mcp-header":').length - 1;
  return isWrong ? 'its schema asks for HTTP headers in a way that the protocol forbids' : '';
}

/** The arguments that a schema wants repeated in headers, with their names in it; '' for one that must not be.
 * @param {any} schema @param {string[]} [path] @returns {{path: string[], header: string}[]} */
function headerPaths(schema, path = []) {
  return Object.entries(Object(schema?.properties)).flatMap(([name, one]) => {
    const own = { path: [...path, name] }, header = one?.['x-mcp-header'];
    const isRight = typeof header === 'string' && /^[\w!#$%&'*+.^`|~-]{1,64}$/.test(header)
      && ['integer', 'string', 'boolean'].includes(one?.type);
    return [...header === undefined ? [] : [{ ...own, header: isRight ? header : '' }], ...headerPaths(one, own.path)];
  });
}

/** The headers that repeat arguments of a call. @param {any} schema @param {any} args
 * @param {(value: string | number | boolean) => string} headerText */
export function headersOf(schema, args, headerText) {
  return Object.fromEntries(headerPaths(schema).flatMap(({ path, header }) => {
    const value = path.reduce((/** @type {any} */ one, name) =>
      one && Object.hasOwn(Object(one), name) ? one[name] : undefined, args);
    if (!['string', 'number', 'boolean'].includes(typeof value)) return [];
    if (String(value).length > MAX_HEADER) throw new Error(`${path.join('.')} is longer than ${MAX_HEADER} characters`);
    return [[`Mcp-Param-${header}`, headerText(value)]];
  }));
}
