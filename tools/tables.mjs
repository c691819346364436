/* Writes web/base/parameters.js, which has the tables of include/plumb.h for JavaScript, and web/cli/names.js, which
 * has those of src/cli/names.h and the commands of options.c.
 *
 *   node tools/tables.mjs     (`make docs`) */
import { readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

/** The rows of PLUMB_SAMPLING_TABLE. @param {string} header  plumb.h */
function samplingRows(header) {
  const [table] = /#define PLUMB_SAMPLING_TABLE(.*\\\n)*.*/.exec(header) ?? [''];
  const text = table.replace(/ *\\\n */g, ' '), number = '([-+.\\w]+)', string = '(NULL|"[^"]*")';
  const row = new RegExp(`ROW\\((float|uint32_t), (\\w+), ${number}, ${number}, ${number}, `
    + `\\((?:${number}, ${number})?\\), ${string}, ${string}, ${number}, ${string}, ${string}\\)`, 'g');
  const rows = [...text.matchAll(row)].map(([, type, field, low, high, standard, openaiLow = low, openaiHigh = high,
    option, label, step, hint, sentence]) => ({
    name: field.replace(/_(\w)/g, (_, letter) => letter.toUpperCase()), field, isInteger: type !== 'float', low, high,
    standard, openai: [openaiLow, openaiHigh], option: literal(option), label: literal(label), step,
    hint: literal(hint), sentence: sentence.slice(1, -1),
  }));
  if (rows.length === 0 || rows.length !== text.split('ROW(').length - 1) {
    throw new Error('PLUMB_SAMPLING_TABLE of include/plumb.h has a row that tools/tables.mjs cannot read');
  }
  return rows;
}

/** A string of C in JavaScript. @param {string} text */
const literal = text => text === 'NULL' ? 'undefined' : `'${text.slice(1, -1)}'`;

/** The line of a property in a typedef, or two. */
const property = (type, name, { sentence, standard }, [low, high]) =>
  ` * @property {${type}} [${name}]  ${sentence}; ${low} to ${high}; default ${standard}`
    .replace(/^(.{1,117}) (.+)$/, (line, first, rest) => line.length > 117 ? `${first}\n *   ${rest}` : line);

/** The names of an enum's values from 0 on, as an array of JavaScript. */
function namesOf(header, name, prefix) {
  const body = new RegExp(`typedef enum ${name} \\{([^}]*)\\}`).exec(header)?.[1] ?? '';
  const names = [...body.matchAll(new RegExp(`\\b${prefix}_(\\w+)\\b(?! = -)`, 'g'))];
  if (names.length === 0) throw new Error(`${name} of include/plumb.h is not there`);
  return `/** @type {const} */ ([${names.map(([, one]) => `'${one.toLowerCase()}'`).join(', ')}])`;
}

const maximum = (header, name) => new RegExp(`\\bPLUMB_${name} = (\\d+)`).exec(header)?.[1];

/** The text of web/base/parameters.js. @param {string} header  plumb.h */
export function parameters(header) {
  const rows = samplingRows(header);
  return `/* tools/tables.mjs writes this file from include/plumb.h: change that, then \`make docs\`. */

/** @typedef {object} SamplingParameters
${rows.map(row => property('number', row.name, row, [row.low, row.high])).join('\n')} */
/** @typedef {object} CompletionSampling
${rows.map(row => property('number | null', row.field, row, row.openai)).join('\n')} */

/** The parameters of sampling, in the order of plumb_sampling.  field: the name in C and in OpenAI's API; openai: its
 * range there; option: on the command line; label, step, hint: on the chat page, if it is there. */
export const PARAMETERS = [
${rows.map(({ name, field, isInteger, low, high, standard, openai, option, label, step, hint }) =>
  `  { name: '${name}', field: '${field}', isInteger: ${isInteger}, low: ${low}, high: ${high}, standard: ${standard},
    openai: [${openai.join(', ')}], option: ${option}, label: ${label}, step: ${step}, hint: ${hint} },`).join('\n')}
];

export const MAX_CTX = ${maximum(header, 'MAX_CTX')};
export const MAX_THREADS = ${maximum(header, 'MAX_THREADS')};
export const MAX_SNAPSHOTS = ${maximum(header, 'MAX_SNAPSHOTS')};
export const MAX_DRAFT = ${maximum(header, 'MAX_DRAFT')};

/* The names of the values of enums, from 0 on. */
export const PRECISIONS = ${namesOf(header, 'plumb_precision', 'PLUMB_PRECISION')};
export const KV_TYPES = ${namesOf(header, 'plumb_kv_type', 'PLUMB_KV')};
export const POOLINGS = ${namesOf(header, 'plumb_pooling', 'PLUMB_POOLING')};
export const JSON_SPACES = ${namesOf(header, 'plumb_json_space', 'PLUMB_JSON')};
`;
}

/** The rows of a table of names.h, as arrays of texts and numbers. @param {string} header @param {string} table */
function rowsOf(header, table) {
  const [text] = new RegExp(`#define ${table}\\(ROW\\)(.*\\\\\n)*.*`).exec(header) ?? [''];
  const rows = [...text.matchAll(/ROW\((.*)\)/g)].map(([, row]) => JSON.parse(`[${row}]`));
  if (rows.length === 0) throw new Error(`${table} of src/cli/names.h is not there`);
  return rows;
}

/** The text of web/cli/names.js. @param {string} header  names.h @param {string} source  options.c */
export function names(header, source) {
  const commands = [...source.matchAll(/\[COMMAND_\w+\] = \{ "(\w+)",/g)].map(([, name]) => name);
  const others = rowsOf(header, 'OTHER_NAMES'), ignored = rowsOf(header, 'IGNORED_OPTIONS');
  return `/* tools/tables.mjs writes this file from names.h and options.c in src/cli: change those, \`make docs\`. */

/** The commands of the C program. */
export const C_COMMANDS = [
${commands.map(name => `'${name}'`).join(', ').replace(/(.{1,116})(?:, |$)/g, '  $1,\n')}];

/** Other names of options, as llama.cpp and ollama have them. @type {Record<string, string>} */
export const OTHER_NAMES = {
${others.map(([other, name]) => `  '${other}': '${name}',`).join('\n')}
};

/** Options that have no effect here. @type {Record<string, {values: number, why: string}>} */
export const IGNORED = {
${ignored.map(([name, values, why]) => `  '${name}': { values: ${values}, why: '${why}' },`).join('\n')}
};
`;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  writeFileSync('web/base/parameters.js', parameters(readFileSync('include/plumb.h', 'utf8')));
  writeFileSync('web/cli/names.js', names(readFileSync('src/cli/names.h', 'utf8'),
    readFileSync('src/cli/options.c', 'utf8')));
}
