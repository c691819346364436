/* What an answer may be: a grammar, a regular expression or a JSON Schema, as options give it. */
import { argumentError } from '../base/errors.js';
import { JSON_SPACES } from '../base/parameters.js';
import { behind } from './bound.js';
import { controlTokens, either, literal, without } from './gbnf.js';

/** @typedef {import('../engine/engine.js').Grammar} Grammar */
/** @typedef {{strict?: boolean, whitespace?: 'compact' | 'pretty' | 'free', order?: 'schema' | 'any'}} SchemaOptions
 *   strict: a keyword that cannot be kept is an error; false: it is ignored, and listed in the `warnings` of the
 *   statistics; default true.  whitespace: none; as JSON.stringify(value, null, 2) writes; or what JSON allows, within
 *   limits; default 'compact'.  order: of the members of objects, as in the schema or any; default 'schema' */
/** @typedef {object} Constraint  what the answer may be, by one of these; an answer that is cut off is the beginning of
 *   such a text
 * @property {string} [grammar]  a grammar in GBNF, llama.cpp's language; the answer is a text of its rule root
 * @property {string} [regex]  a regular expression of JavaScript (with its flag u) that the whole answer matches
 * @property {object | boolean} [schema]  a JSON Schema (2020-12 or draft-07), or a schema of Zod or another library
 *   that gives its JSON Schema; the answer is a JSON text that is valid by it
 * @property {true} [json]  the answer is a JSON object
 * @property {SchemaOptions} [schemaOptions]  for schema and json
 * @property {string[]} [triggers]  the answer is free text until the first of these texts, and behind it what the
 *   option above says; it may also end before
 * @property {string} [begun]  the beginning of such a text, with which the prompt ends; the answer goes on behind it */

/** The key of an option of generate that only beginAnswer gives: the grammar of a whole answer, with its reasoning, and
 * whether that comes only at the beginning.  It is no string, so that callers cannot have it among theirs.
 * @typedef {{grammar: Grammar, isFirst: boolean}} Whole */
export const WHOLE = Symbol('the grammar of a whole answer');
/** The options of which a call may have one. */
export const CONSTRAINTS = /** @type {const} */ (['grammar', 'regex', 'schema', 'json']);

/** Replaces what the options of a call, which were checked, say about the answer by one grammar, if they do.
 * @template {Constraint} O
 * @param {string} where  the function's name, for the message @param {import('./gbnf.js').Vocabulary} model
 * @param {O} options @returns {Promise<Omit<O, keyof Constraint> & {grammar?: Grammar}>} */
export async function withGrammar(where, model, options) {
  const { grammar, regex, schema, json, schemaOptions, triggers, begun, ...rest } = options;
  const whole = /** @type {{[WHOLE]?: Whole}} */ (options)[WHOLE]?.grammar ?? grammarOf(where, options);
  if (begun !== undefined && (!whole || triggers)) {
    throw argumentError(`${where}: begun needs a grammar, a regex, a schema or json, and no triggers`);
  }
  if (!triggers) return { ...rest, grammar: whole && begun ? { ...whole, begun } : whole };
  if (!whole) throw argumentError(`${where}: triggers needs a grammar, a regex, a schema or json`);
  if (triggers.length === 0 || triggers.includes('')) {
    throw argumentError(`${where}: triggers is ${JSON.stringify(triggers)}, expected texts that are not empty`);
  }
  return { ...rest, grammar: triggered(whole, triggers, await controlTokens(model, triggers)) };
}

/** A grammar that is in force only after one of some texts.
 * @param {Grammar} grammar @param {string[]} triggers @param {import('./gbnf.js').Controls} controls
 * @returns {Grammar} */
function triggered(grammar, triggers, controls) {
  const mark = either(triggers.map(trigger => literal(trigger, controls)));
  const [first] = triggers, isToken = triggers.length === 1 && controls.has(first);
  return behind(grammar, free => isToken ? `(!<[${controls.get(first)}]>)*` : free, without(triggers, controls),
    inner => `(${mark} ${inner})?`);
}

/** @param {string} where @param {Constraint} options @returns {Grammar | undefined} */
function grammarOf(where, options) {
  const given = CONSTRAINTS.filter(name => options[name] !== undefined);
  if (given.length > 1) throw argumentError(`${where}: give only one of ${given.join(' and ')}`);
  const { grammar, regex, schema, json, schemaOptions } = options;
  if (schemaOptions && schema === undefined && !json) throw argumentError(`${where}: schemaOptions needs a schema`);
  if (grammar !== undefined) return { language: 'gbnf', text: grammar, flags: 0 };
  if (regex !== undefined) return { language: 'regex', text: regex, flags: 0 };
  if (schema === undefined && !json) return undefined;
  const { strict = true, whitespace = 'compact', order = 'schema' } = schemaOptions ?? {};
  const flags = Number(!strict) + 2 * Number(order === 'any') + 4 * JSON_SPACES.indexOf(whitespace);
  const value = schema === undefined ? { type: 'object' } : jsonSchemaOf(where, schema);
  return { language: 'schema', text: jsonText(where, value), flags };
}

/** The JSON Schema of a library, with objects that have no other members than their properties, where it allows any:
 * libraries drop or ignore them.  Parts of allOf need each other's members, so a schema with allOf remains as it is.
 * @param {unknown} schema @returns {unknown} */
function closed(schema) {
  const text = JSON.stringify(schema);
  return JSON.parse(text, text.includes('"allOf"') ? undefined : (_, value) =>
    value?.type === 'object' && value.properties && !('additionalProperties' in value || 'patternProperties' in value)
      ? { ...value, additionalProperties: false } : value);
}

/** The JSON Schema of a schema: itself, or what a library's schema gives (https://standardschema.dev, Zod 4).
 * @param {string} where @param {any} schema @returns {unknown} */
export function jsonSchemaOf(where, schema) {
  const standard = schema['~standard'];
  try {
    if (standard?.jsonSchema) return closed(standard.jsonSchema.input({ target: 'draft-2020-12' }));
    if (typeof schema.toJSONSchema === 'function') return closed(schema.toJSONSchema({ io: 'input' }));
  } catch (error) {
    throw argumentError(`${where}: the schema gives no JSON Schema: ${error instanceof Error ? error.message : error}`);
  }
  if (standard || typeof schema === 'function') {
    throw argumentError(`${where}: the schema of ${standard?.vendor ?? 'this function'} gives no JSON Schema: it has `
      + "neither ['~standard'].jsonSchema nor toJSONSchema()");
  }
  return schema;
}

/** Tools whose parameters are JSON Schemas, whatever schemas they were given with.
 * @param {string} where @param {any[]} tools @returns {any[]} */
export const plainTools = (where, tools) => tools.map(tool => {
  const { parameters, name } = Object(tool?.function);
  if (Object(parameters) !== parameters) return tool;
  return { ...tool, function: { ...tool.function, parameters: jsonSchemaOf(`${where}: tool ${name}`, parameters) } };
});

/** @param {string} where  the function's name, for the message @param {unknown} value */
export function jsonText(where, value) {
  try {
    return JSON.stringify(value);
  } catch (error) {   // a cycle, a BigInt
    throw argumentError(`${where}: the schema is not JSON: ${error instanceof Error ? error.message : error}`);
  }
}

/** Checks what OpenAI asks of a strict schema: objects list all of their properties as required and allow no others.
 * @param {string} where @param {any} schema */
export function checkStrict(where, schema) {
  /** @type {[any, string][]} */
  const open = [[schema, '']];
  const seen = new Set();
  for (let next = open.pop(); next; next = open.pop()) {
    const [value, path] = next;
    if (typeof value !== 'object' || value === null || seen.has(value)) continue;
    seen.add(value);
    const { properties } = value;
    if (properties !== undefined || [value.type].flat().includes('object')) {
      const at = `${where}${path}: strict: true `;
      if (value.additionalProperties !== false) throw argumentError(`${at}requires additionalProperties: false`);
      const required = new Set(Array.isArray(value.required) ? value.required : []);
      const missing = Object.keys(Object(properties)).find(name => !required.has(name));
      if (missing !== undefined) {
        throw argumentError(`${at}requires all properties in required, but ${JSON.stringify(missing)} is missing`);
      }
    }
    const below = (/** @type {any} */ one, /** @type {string[]} */ ...keys) =>
      open.push([one, [path, ...keys.map(key => key.replaceAll('~', '~0').replaceAll('/', '~1'))].join('/')]);
    for (const name of ['properties', '$defs', 'definitions', 'anyOf', 'oneOf', 'allOf', 'prefixItems']) {
      for (const [key, one] of Object.entries(Object(value[name]))) below(one, name, key);
    }
    below(value.items, 'items');
  }
}
