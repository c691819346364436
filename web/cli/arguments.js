/* The options of the commands that are written in JavaScript, and their values.  The options of run and bench, and
 * the messages that refuse wrong values, are those of the C program (src/cli/options.c), whose --help describes
 * them. */

import { distance } from '../base/distance.js';
import {
  JSON_SPACES, KV_TYPES, MAX_CTX, MAX_DRAFT, MAX_SNAPSHOTS, MAX_THREADS, PARAMETERS, PRECISIONS,
} from '../base/parameters.js';
import { EXPECTED_SIZE, parseSize } from '../base/sizes.js';
import { IGNORED, OTHER_NAMES } from './names.js';

/** Ends the process with one line, "plumb: ...", and the exit code. */
export class CommandError extends Error {
  /** @param {string} message @param {number} [code]  2: wrong usage */
  constructor(message, code = 2) {
    super(message);
    this.code = code;
  }
}

/** A kind of value.  parse returns the value of a word, or undefined if the word is not of this kind.  expected: what
 * the error message says that the word is not; refused: what it says instead.
 * @typedef {{parse: (word: string) => any, expected: string, refused?: string}} Kind */
/** @param {number} min @param {number} max @returns {Kind} */
const integer = (min, max) => ({
  parse: word => /^\d+$/.test(word) && Number(word) >= min && Number(word) <= max ? Number(word) : undefined,
  expected: `an integer from ${min} to ${max}`,
});
/** A number as %g of C writes it. @param {number} x */
const printed = x => x === 0 || Math.abs(x) >= 1e-4 && Math.abs(x) < 1e6 ? String(x)
  : x.toExponential().replace(/([+-])(\d)$/, (_, sign, digit) => `${sign}0${digit}`);
/** @param {number} min @param {number} max @returns {Kind} */
const real = (min, max) => ({
  parse(word) {
    const value = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(word) ? Number(word) : NaN;
    return value >= min && value <= max ? value : undefined;
  },
  expected: `a number from ${printed(min)} to ${printed(max)}`,
});
/** @type {Kind} */
const seed = {
  parse(word) {
    const value = /^\d+$/.test(word) ? BigInt(word) : -1n;
    if (value < 0n || value >= 1n << 64n) return undefined;
    return value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
  },
  expected: 'an integer from 0 to 18446744073709551615',
};
/** @param {string[]} words @returns {Kind} */
const oneOf = (...words) => ({
  parse: word => words.includes(word) ? word : undefined,
  expected: `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`,
});
/** @type {Kind} */
const text = { parse: word => word, expected: '' };
/** FILE or FILE:SCALE, with the kind that it must have. @param {'lora' | 'control'} kind @returns {Kind} */
const adapter = kind => ({
  parse(word) {
    const [, source = word, scale = 1] = /^(.+):([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)$/is.exec(word) ?? [];
    return { source, scale: Number(scale), kind };
  },
  expected: '',
});
/** @type {Kind} */
const range = {
  parse(word) {
    const [, first, last = first] = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(word) ?? [];
    return Number(first) <= Number(last) ? [Number(first), Number(last)] : undefined;
  },
  expected: 'a range such as 0-3 or 2',
};
/** Bytes, such as 6G. @type {Kind} */
const size = { parse: parseSize, expected: EXPECTED_SIZE };
/** A name on huggingface.co. @type {Kind} */
const hub = { parse: word => `hf:${word}`, expected: '' };
/** 'json', which stands for an object, or a JSON Schema. @type {Kind} */
const format = {
  parse: word => word === 'json' ? '{"type": "object"}' : /^[ \t\r\n]*\{/.test(word) ? word : undefined,
  expected: '', refused: 'is neither json nor a JSON Schema',
};
/** @type {Kind} */
const stop = { parse: word => word === '' ? undefined : word, expected: '', refused: 'the text is empty' };
/** Takes no value. @type {Kind} */
const flag = { parse: () => true, expected: '' };

const U32 = 2 ** 32 - 1;
/** @typedef {{name: string, on: string, kind: Kind, key: string, isList: boolean}} Option  on: the commands that have
 *   the option; key: its name in the parsed values and in the options of Plumb.load and generate; isList: whether it
 *   may be given several times, and its values are collected */
/** @param {string} name @param {string} on @param {Kind} kind @param {string} key @param {boolean} [isList]
 * @returns {Option} */
const option = (name, on, kind, key, isList = false) => ({ name, on, kind, key, isList });

/** The options for how tokens are sampled, and how many. */
export const SAMPLING = [
  option('-n', 'run chat', integer(1, U32), 'maxTokens'),
  ...PARAMETERS.map(({ option: flag, name, isInteger, low, high }) =>
    option(flag, 'run chat', isInteger ? integer(low, high) : real(low, high), name)),
  option('--seed', 'run chat', seed, 'seed'),
  option('--stop', 'run chat', stop, 'stop', true),
];
export const LOAD = [
  option('--ctx', 'run bench chat preflight serve', integer(1, MAX_CTX), 'contextLength'),
  option('--threads', 'run bench chat preflight serve', integer(1, MAX_THREADS), 'threads'),
  option('--precision', 'run bench chat preflight serve', oneOf(...PRECISIONS), 'precision'),
  option('--kv-type', 'run bench chat preflight serve', oneOf(...KV_TYPES), 'kvType'),
  option('--snapshots', 'run bench chat preflight serve', integer(2, MAX_SNAPSHOTS), 'snapshots'),
];
/** The options for what answers compute ahead. */
export const DRAFTS = [
  option('--speculate', 'run chat serve', oneOf('lookup', 'off'), 'speculation'),
  option('--model-draft', 'run chat serve', text, 'draft'),
  option('--draft-max', 'run chat serve', integer(1, MAX_DRAFT), 'most'),
  option('--draft-min', 'run chat serve', integer(0, MAX_DRAFT), 'least'),
];
export const ADAPTERS = [
  option('--lora', 'run bench chat', adapter('lora'), 'given', true),
  option('--control-vector', 'run bench chat', adapter('control'), 'given', true),
  option('--control-vector-layer-range', 'run bench chat', range, 'changedLayers'),
];
const OPTIONS = [
  ...SAMPLING,
  ...LOAD,
  ...DRAFTS,
  ...ADAPTERS,
  option('--shift', 'run chat', integer(1, MAX_CTX / 2), 'sinks'),
  option('--model', 'run bench chat preflight serve', text, 'models', true),
  option('-hf', 'run bench chat preflight serve', hub, 'models', true),
  option('-p', 'run', text, 'prompt'),
  option('--file', 'run', text, 'input'),
  option('--interactive', 'run', flag, 'interactive'),
  option('--chat-template', 'run chat serve', text, 'chatTemplate'),
  option('--chat-template-file', 'run chat serve', text, 'templateFile'),
  option('--format', 'run', format, 'jsonSchema'),
  option('--system', 'run chat', text, 'system'),
  option('--tools', 'run', text, 'tools'),
  option('--raw', 'run', flag, 'raw'),
  option('--grammar', 'run', text, 'grammarFile'),
  option('--gbnf', 'run', text, 'gbnf'),
  option('--json-schema', 'run', text, 'jsonSchema'),
  option('--regex', 'run', text, 'regex'),
  option('--no-strict', 'run', flag, 'noStrict'),
  option('--any-order', 'run', flag, 'anyOrder'),
  option('--whitespace', 'run', oneOf(...JSON_SPACES), 'whitespace'),
  option('--parse-special', 'run', flag, 'parseSpecial'),
  option('--host', 'serve ps', text, 'host'),
  option('--port', 'serve ps', integer(0, 65535), 'port'),
  option('--api-key', 'serve ps', text, 'apiKey'),
  option('--parallel', 'serve', integer(1, 16), 'parallel'),
  option('--queue', 'serve', integer(0, 1 << 16), 'queue'),
  option('--memory', 'serve', size, 'memory'),
  option('--idle', 'serve', integer(1, 1 << 21), 'idle'),
  option('--grace', 'serve', integer(0, 1 << 16), 'grace'),
  option('--embeddings', 'serve', flag, 'embeddings'),
  option('--pull', 'serve', flag, 'pull'),
  option('--cors', 'serve', text, 'origins', true),
  option('--name', 'serve', text, 'names', true),
  option('--log', 'serve', oneOf('text', 'json', 'none'), 'log'),
  option('-p', 'bench', integer(1, 1 << 24), 'promptTokens'),
  option('-n', 'bench', integer(1, 1 << 24), 'decodeTokens'),
  option('-r', 'bench', integer(1, 1000), 'repetitions'),
  option('--json', 'run bench chat pull list rm ps preflight', flag, 'json'),
];

/** The options of commands that only the C program has.  With one of them, it runs the whole command.
 * @type {Record<string, string[]>} */
const IN_C = {
  run: ['--ids', '--batch', '--reference', '--scalar', '--load-state', '--save-state'],
  bench: ['--batch', '--reference', '--scalar'],
};
export const inC = (/** @type {string} */ command) => IN_C[command] ?? [];

/** The option's name in a word such as --ctx=512 or -c, which is another name of it. @param {string} word */
export function nameIn(word) {
  const name = word.startsWith('--') ? word.replace(/=.*/s, '') : word;
  return Object.hasOwn(OTHER_NAMES, name) ? OTHER_NAMES[name] : name;
}

/** Says which of some names is most like a word: of several the first in their order; '' if more than half of the word
 * differs.  src/cli/options.c has the same rule. @param {string} word @param {string[]} names */
export function nearest(word, names) {
  const [best] = names.map(name => ({ name, far: distance(word, name) }))
    .sort((a, b) => a.far - b.far || (a.name < b.name ? -1 : 1));
  return best && best.far * 2 <= word.length ? `; the nearest is ${best.name}` : '';
}

/** The names of the options of a command. @param {string} command */
function namesOf(command) {
  const own = [...OPTIONS.filter(({ on }) => on.split(' ').includes(command)).map(({ name }) => name), ...inC(command)];
  return [...own, ...Object.keys(OTHER_NAMES).filter(other => own.includes(OTHER_NAMES[other]))];
}

/** Picks the values of some options, under their names in Plumb's options.
 * @param {Record<string, any>} values @param {Option[]} options */
export const pick = (values, options) => Object.fromEntries(options.map(({ key }) => [key, values[key]]));

/** The options of Plumb.load for a model that answers. @param {string} command @param {Record<string, any>} values
 * @returns {import('../api/plumb.js').LoadOptions} */
export function loadOptions(command, values) {
  const { speculation, draft, least = 0, most = MAX_DRAFT } = values;
  if (least > most) throw new CommandError(`${command}: --draft-min is above --draft-max`);
  return { ...pick(values, LOAD), draft, speculate: speculation === 'off' ? false : { least, most } };
}

/** Parses the words after the command's name; undefined: they ask for help.  Throws a CommandError.
 * @param {string} command @param {string[]} words
 * @param {(note: string) => void} [note]  gets what is to be printed
 * @returns {{files: string[], values: Record<string, any>} | undefined} */
export function parse(command, words, note = () => {}) {
  /** @type {string[]} */
  const files = [];
  /** @type {Record<string, any>} */
  const values = {};
  const rest = [...words];
  for (let word; (word = rest.shift()) !== undefined;) {
    if (word === '--') {
      files.push(...rest.splice(0));
    } else if (word.length < 2 || word[0] !== '-') {
      files.push(word);
    } else {
      if (word === '--help' || word === '-h') return undefined;
      const equals = word.startsWith('--') ? word.indexOf('=') : -1;
      const name = equals < 0 ? word : word.slice(0, equals), given = equals < 0 ? undefined : word.slice(equals + 1);
      const known = optionOf(command, name) ?? optionOf(command, nameIn(name));
      if (!known && Object.hasOwn(IGNORED, name)) {
        note(`${command}: ${name} has no effect: ${IGNORED[name].why}`);
        if (given === undefined) rest.splice(0, IGNORED[name].values);
        continue;
      }
      if (!known) {
        throw new CommandError(`${command}: unknown option ${name}${nearest(name, namesOf(command))}; see plumb ${
          command} --help`);
      }
      const isFlag = known.kind === flag, where = `${command}: ${known.name}`;
      if (isFlag && given !== undefined) throw new CommandError(`${where} takes no value`);
      const value = isFlag ? '' : given ?? rest.shift();
      if (value === undefined) throw new CommandError(`${where} needs a value`);
      const parsed = valueOf(where, known, value);
      values[known.key] = known.isList ? [...values[known.key] ?? [], parsed] : parsed;
    }
  }
  const { models = [], ...others } = values;
  const parsed = command === 'run' ? splitPrompt(files, others, models.length > 0) : { files, values: others };
  return { ...parsed, files: [...models, ...parsed.files] };
}

/** @param {string} command @param {string} name */
const optionOf = (command, name) => OPTIONS.find(one => one.name === name && one.on.split(' ').includes(command));

/** Without -p, the words after the model's files are the prompt.
 * @param {string[]} words @param {Record<string, any>} values @param {boolean} hasModel  --model has named it */
function splitPrompt(words, values, hasModel) {
  if (values.prompt !== undefined || words.length === 0) return { files: words, values };
  if (hasModel) return { files: [], values: { ...values, prompt: words.join(' ') } };
  const after = words.findIndex((word, i) => i > 0 && !word.endsWith('.gguf'));
  if (after < 0) return { files: words, values };
  return { files: words.slice(0, after), values: { ...values, prompt: words.slice(after).join(' ') } };
}

/** @param {string} where @param {Option} option @param {string} word */
export function valueOf(where, { kind }, word) {
  const value = kind.parse(word);
  if (value !== undefined) return value;
  const refused = kind.refused ?? `is not ${kind.expected}`;
  throw new CommandError(`${where}: ${word === '' && kind.refused ? refused : `"${word}" ${refused}`}`);
}
