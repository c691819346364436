/* Checks values against JSON Schemas. */
import { Validator } from '../dist/vendor/json-schema/index.js';

/** Says why a value does not fit a schema, as a sentence for a developer or a model; undefined if it fits.
 * @param {unknown} schema  undefined: any value fits @param {unknown} value @returns {string | undefined} */
export function problemOf(schema, value) {
  if (schema === undefined || schema === null) return undefined;
  try {
    const { valid, errors } = new Validator(/** @type {any} */ (schema), '2020-12', false).validate(value);
    if (valid) return undefined;
    const { instanceLocation, error } = errors.at(-1) ?? { instanceLocation: '#', error: 'it does not fit the schema' };
    return `${instanceLocation.slice(1) || '/'}: ${error}`;
  } catch (error) {
    return `its schema cannot be used: ${error instanceof Error ? error.message : error}`;
  }
}
