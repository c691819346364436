/** The examples of the package's README, each marked with where it runs by the comment before it:
 *
 *   <!-- run: node -->  <!-- run: browser -->  <!-- run: both -->
 *
 * Examples of pages (html) may be marked.  One that names `model` without loading it goes on from the first.  */
import { readFileSync } from 'node:fs';
import { root } from './helpers.mjs';

const text = readFileSync(`${root}web/README.md`, 'utf8');
const PRELUDE = `import { Plumb, PlumbError } from 'plumb';
const model = await Plumb.load('models/SmolLM2-135M-Instruct.Q4_1.gguf');
`;

/** @type {{line: number, mark: string | undefined, language: string, code: string}[]} */
export const examples = [...text.matchAll(/(?:<!-- run: (\w+) -->\n)?^```(\w+)\n(.*?)^```$/gms)]
  .map(({ 1: mark, 2: language, 3: code, index }) => ({
    line: text.slice(0, index).split('\n').length, mark, language,
    code: /\bmodel\.(?!gguf)/.test(code) && !/ model = /.test(code) && language === 'js' ? PRELUDE + code : code,
  }));

/** Those that run at a place. @param {string} place @param {string} [language] */
export const examplesFor = (place, language = 'js') =>
  examples.filter(one => one.language === language && (one.mark === place || one.mark === 'both'));
