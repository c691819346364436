/* Checks values against schemas. */
import { Validator } from '../dist/vendor/json-schema/index.js';

/** A schema in which `nullable: true` of OpenAPI 3.0 has become a type. @param {unknown} schema */
function withNull(schema) {
  const text = JSON.stringify(schema);
  return !text.includes('"nullable":true') ? schema : JSON.parse(text, (_, value) => {
    const isNullable = value?.nullable === true && [value.type].flat().every(type => typeof type === 'string');
    return isNullable ? { ...value, type: [value.type, 'null'].flat() } : value;
  });
}

/** Says why a value does not fit a JSON Schema, as a sentence for a developer or a model; undefined if it fits.
 * @param {unknown} schema  undefined: any value fits @param {unknown} value @returns {string | undefined} */
export function problemOf(schema, value) {
  if (schema === undefined || schema === null) return undefined;
  try {
    const { valid, errors } = new Validator(/** @type {any} */ (withNull(schema)), '2020-12', false).validate(value);
    if (valid) return undefined;
    const { instanceLocation, error } = errors.at(-1) ?? { instanceLocation: '#', error: 'it does not fit the schema' };
    return `${instanceLocation.slice(1) || '/'}: ${error}`;
  } catch (error) {
    return `its schema cannot be used: ${error instanceof Error ? error.message : error}`;
  }
}

/** Gives a value to the check of a Standard Schema, and returns what that makes of it; undefined if the schema has no
 * check.  problem: why the value does not fit.
 * @param {any} schema @param {unknown} value
 * @returns {Promise<{value: any, problem?: string, issues?: readonly any[]} | undefined>} */
export async function standardCheck(schema, value) {
  const { validate } = schema?.['~standard'] ?? {};
  if (!validate) return undefined;
  const { issues, value: made } = await validate(value);
  if (!issues) return { value: made };
  const [{ message, path = [] }] = issues;
  const at = path.map((/** @type {any} */ one) => `/${String(one?.key ?? one)}`).join('');
  return { value, problem: `${at || '/'}: ${message}`, issues };
}
