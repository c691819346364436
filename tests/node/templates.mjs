/** Chat templates in instances of plumb-template.wasm, as the engine has them, and llama.cpp's 70 templates. */
import { readdirSync, readFileSync } from 'node:fs';
import { decode, importsOf } from '../../web/engine/instance.js';
import { Template } from '../../web/engine/templates.js';
import { root } from './helpers.mjs';

const folder = `${root}tests/vectors/templates/sources/`;
/** llama.cpp's templates, by name. @type {Map<string, string>} */
export const TEMPLATES = new Map(readdirSync(folder).sort()
  .map(name => [name.replace(/\.jinja$/, ''), readFileSync(folder + name, 'utf8')]));

const code = new WebAssembly.Module(readFileSync(`${root}web/dist/plumb-template.wasm`));
/** @type {Map<string, Template>} */
const made = new Map();

/** @param {string} [source] */
export function templateOf(source = '') {
  const template = made.get(source) ?? new Template(new WebAssembly.Instance(code, importsOf(code)),
    { source, bos: '<s>', eos: '</s>' });
  made.set(source, template);
  return template;
}

/** How the models of a template write their answers. @param {string} [source] */
export const formatOf = source => templateOf(source).format;

/** The prompt that a template makes of a chat.
 * @param {string} source @param {any[]} messages @param {Record<string, any>} [variables]
 * @param {Date} [now]  in UTC */
export const promptOf = (source, messages, { addGenerationPrompt = true, ...variables } = {}, now = new Date()) =>
  decode(templateOf(source).render(JSON.stringify({
    ...variables, messages, add_generation_prompt: addGenerationPrompt }), now).text);
