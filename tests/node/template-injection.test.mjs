/** No text of a chat becomes a control token, wherever it is split.  For each of the 70 templates, a token that the
 * template writes is put into a chat in two pieces that the template may join.  Ground truth: the number of control
 * tokens of the same chat with harmless texts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { capabilitiesOf } from '../../web/template/capabilities.js';
import { patched, prepare } from '../../web/template/inputs.js';
import { renderBounded } from '../../web/template/jinja.js';
import { chatTokens } from '../../web/template/template.js';
import { names, sourceOf } from './template-results.mjs';

const PLACES = ['system', 'name', 'first part', 'second part', 'reasoning', 'answer', 'call', 'argument', 'result',
  'last'];

/** A chat with a text in each place; texts in places that a template refuses are left out.
 * @param {Record<string, string>} at @param {number} less  how much is left out */
const chat = (at, less) => [
  ...less < 3 ? [{ role: 'system', content: at.system }] : [],
  { role: 'user', ...less < 2 && { name: at.name }, content: [
    { type: 'text', text: at['first part'] }, { type: 'text', text: at['second part'] }] },
  ...less < 1 ? [
    { role: 'assistant', content: '', tool_calls: [{ id: 'call00001', type: 'function',
      function: { name: at.call, arguments: JSON.stringify({ x: at.argument }) } }] },
    { role: 'tool', tool_call_id: 'call00001', name: at.call, content: at.result }] : [],
  { role: 'assistant', content: at.answer, ...less < 2 && { reasoning_content: at.reasoning } },
  { role: 'user', content: at.last },
];

/** One token for each character, and one for each control token. @param {string[]} controls */
const vocabularyOf = controls => {
  const pattern = new RegExp(`(${controls.map(text => text.replace(/[^\w\s]/g, '\\$&')).join('|')})`);
  return {
    bos: -1,
    tokenize: async (/** @type {string} */ text, /** @type {any} */ { parseSpecial }) => Int32Array.from(
      (parseSpecial ? text.split(pattern) : [text]).flatMap(part => parseSpecial && controls.includes(part)
        ? [2e6 + controls.indexOf(part)] : Array.from(part, c => Number(c.codePointAt(0))))),
    controls: async (/** @type {Int32Array} */ ids) => controls.map((text, i) => /** @type {[number, string]} */ (
      [2e6 + i, text])).filter(([id]) => ids.includes(id)),
  };
};

const harmless = Object.fromEntries(PLACES.map((place, i) => [place, `Q${i}Q`]));

for (const name of names) {
  test(name, async () => {
    const raw = sourceOf(name), source = patched(raw), can = capabilitiesOf(source);
    const renderer = /** @type {any} */ ({ renderChat: async (/** @type {string} */ _, /** @type {any} */ p) =>
      p.finish(renderBounded(source, { bos_token: '<s>', eos_token: '</s>', ...p.variables, ...p.input })) });
    const prepared = (/** @type {any} */ at, /** @type {number} */ less) =>
      prepare(raw, can, chat(at, less), { enable_thinking: true });
    let less = 0, text = '';
    for (; less < 4 && !text; less++) text = await renderer.renderChat('', prepared(harmless, less)).catch(() => '');
    less--;
    assert.ok(text, 'no chat is accepted');
    const controls = [...new Set(text.match(/<[^<>\s"]{1,40}>|\[\/?[A-Z_]+\]|<\|[^<>\s"]{1,40}/g))]
      .filter(one => /[^\w]$/.test(one) && !/Q\dQ/.test(one)).sort((a, b) => b.length - a.length);
    const vocabulary = vocabularyOf(controls);
    const count = async (/** @type {any} */ at) => (await chatTokens(raw, prepared(at, less), vocabulary, renderer))
      .filter(id => id >= 2e6).length;
    const expected = await count(harmless);
    if (controls.length === 0) return assert.equal(name, 'llama-cpp-rwkv-world');
    const token = controls.findLast(one => one.length > 5) ?? controls[0];
    for (let i = 0; i + 1 < PLACES.length; i++) {
      const [a, b] = PLACES.slice(i), isParts = a === 'first part';
      for (let at = isParts ? 1 : token.length >> 1; at < token.length; at += isParts ? 1 : token.length) {
        const texts = { ...harmless, [a]: `x${token.slice(0, at)}`, [b]: `${token.slice(at)}y` };
        assert.equal(await count(texts), expected, `${a} and ${b}, ${token} split at ${at}`);
      }
    }
  });
}
