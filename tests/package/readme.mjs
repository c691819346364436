/** The examples of the package's README, and those of the repository's README that are marked.  The mark is the comment
 * before an example and says where it runs:
 *
 *   <!-- run: node -->  <!-- run: browser -->  <!-- run: both -->
 *   <!-- run: react --> <!-- run: extension manifest.json -->, a file of a recipe: its first line is a comment with the
 *                       name of the file, or the mark has the name
 *   <!-- types: electron -->, the same, but it is not run
 *
 * Examples of pages (html) run in a browser.  One that uses `model` without loading it continues the first example.  */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { root } from './helpers.mjs';

/** Marks of recipes. */
export const RECIPES = ['next', 'react', 'vue', 'svelte', 'electron', 'extension', 'serviceworker', 'runtimes'];

const PRELUDE = `import { Plumb, PlumbError } from 'plumb-llm';
const model = await Plumb.load('models/SmolLM2-135M-Instruct.Q4_1.gguf');
`;

/** name: that of a file of a recipe.
 * @param {string} file
 * @returns {{file: string, line: number, mark?: string, name?: string, language: string, code: string}[]} */
function examplesOf(file) {
  const text = readFileSync(`${root}${file}`, 'utf8');
  return [...text.matchAll(/(?:<!-- (?:run|types): (\w+)(?: (\S+))? -->\n)?^```(\w+)\n(.*?)^```$/gms)]
    .map(({ 1: mark, 2: name, 3: language, 4: code, index }) => ({
      file, line: text.slice(0, index).split('\n').length, mark, language,
      name: name ?? /^(?:\/\/|<!--) ([\w./-]+)/.exec(code)?.[1],
      code: /\bmodel\.(?!gguf)/.test(code) && !/ model = /.test(code) && language === 'js' && !RECIPES.includes(mark)
        ? PRELUDE + code : code,
    }));
}
export const examples = [...examplesOf('web/README.md'), ...examplesOf('README.md').filter(({ mark }) => mark)];

/** The examples that run in a place. @param {string} place @param {string} [language] */
export const examplesFor = (place, language = 'js') =>
  examples.filter(one => one.language === language && (one.mark === place || one.mark === 'both'));

/** Writes the files of a recipe into a folder. @param {string} recipe @param {string} folder
 * @returns {string[]} their names */
export function writeRecipe(recipe, folder) {
  return examples.filter(({ mark }) => mark === recipe).map(({ line, name, code }) => {
    if (name === undefined) throw new Error(`web/README.md, line ${line}: the example does not name its file`);
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), code);
    return name;
  });
}

/** The expected output of an example, by a word in its code.  A page prints objects in short form. */
const expected = [
  ['process.stdout.write(piece)', /^\S[^]*\{\s+promptTokens: 36,[^]*tokens: \d+,[^]*finishReason: '(?:length|stop)'/],
  ['chat.trimmed', /\w+[^]*(?:role: 'assistant'|\[Object, Object, Object\])[^]*tokens: \d+[^]* 0$/],
  ['continued.restore(', /^[1-9]\d*$/],
  ['model.session(', /^2$/],
  ["from 'plumb-llm/openai'", /^\s*\S+(?:\n[^\n]*){2,}$/],
  ["from 'plumb-llm/fetch'", /^\S/],
  ['Plumb.listCached()', /\bready 98362432 98362432 0\n\[\]\n\[\s*(?:Object|\{[^]*size: 98362432)[^]*\]$/],
  ['Plumb.preflight(', /^true \[\] Smollm2 135M .* true\n1\d{8} \d{9,10} \{ ?decode: [\d.]+, prefill: [\d.]+ ?\}$/],
  ['model.rank(', /^3 384\n0\.\d\d (The cat|Two kittens)[^]*\n-?0\.\d\d Stock prices fell sharply\.$/],
  ['createLanguageModel(', /^(?:yes|no)$/],
  ['model.decide(', /^0\.\d+ (?:billing|support|sales) [^]* [1-5]\.?\d*$/],
  ['chat().object(', /(?:^|\n)(?:France|Italy|Spain)$/],
  ['Invent a person', /^[^]{0,30} \d{1,3}$/],
  ['lastStats.finishReason', /(?:^|\n)abort$/],
  ['helper.run(', /^2\n \+\n 3\n[^]*\nstop 1$/],
  ['Once upon a time there was no GGUF', /^PLUMB_ERROR_MAGIC header at byte 0: magic "Once" is not "GGUF" \{\}$/],
  ['model.tokenize(', /^ \w+\n \w+ -\d+\.\d+ \[ ?'? \w+'?, '? ?[^\n]+\][^]*\nl_out-0 [\d.]+$/],
  ["Plumb.command(['--help'])", /^0 plumb \d+\.\d+\.\d+: GGUF language models[^]*usage: plumb COMMAND/],
];
/** @param {string} code @returns {RegExp} */
export function expectedOf(code) {
  const found = expected.filter(([word]) => code.includes(word));
  if (found.length !== 1) throw new Error(`tests/package/readme.mjs: ${found.length} patterns for:\n${code}`);
  return found[0][1];
}
