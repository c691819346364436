/** The chat page cuts answers into Markdown blocks with work proportional to their length.  Ground truth: half of the
 * text, and ordinary prose of the same length, read by the same functions. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blocksOf, htmlOf } from '../../web/chat/conversation/markdown-blocks.js';
import MarkdownIt from '../../web/dist/vendor/markdown-it/markdown-it.esm.min.mjs';

/** Nearly the 80,000 characters of the longest answer that is rendered, or a third of them. */
const LENGTH = process.env.WHOLE ? 78000 : 26000;
/** Texts that are known to take other Markdown libraries time that grows with the square of their length, or more: they
 * open again and again what is never closed, or is closed at the very end. */
const REPEATED = ['*a_', '~~a~ ', '_a__ ', '***a', 'a**b c* ', '*a _b ', '[', '![', '[a](', '[a](b', '[](<b ', '[![',
  '<', '</', '<a ', '<!--', '<?', '<!A ', '<![CDATA[', '&', '>', '> a\n', '- ', '- a\n', '1. a\n', '* a\n  ', '|',
  '|a|b|\n', '`', '`a``b', '\\\n', 'a \n', '\\', 'a\n', '```\n', '~~~\n', '[a]: b\n', '[a]: <', '[a]: b "c\n', '[^',
  'http://a_b*', 'http://', 'www.', 'mailto:', 'a@b.', 'a://', '//a', 'a.com ', '$a ', '$$', '$$\n', '\\(', '\\[',
  '\\[\n', '$a \\( ', '"x\'y ', '\t', '-\t', '===\n'];
const NESTED = [['[', ']'], ['![', '](b)'], ['[![', ')](b)'], ['*a _b ', 'b_ a*'], ['**a', 'a**'], ['~~a', 'a~~'],
  ['$', ' $'], ['\\(', '\\)'], ['> ', '\n'], ['<a', '>'], ['(', ')']];
/** A text of each kind. @param {number} length @returns {string[]} */
const textsOf = length => [
  ...REPEATED.map(one => one.repeat(length / one.length)),
  ...NESTED.map(pair => pair.map(one => one.repeat(length / pair.join('').length)).join('x')),
  `a${' '.repeat(length)}b`, `[a](${'('.repeat(length)}`, `${'|'.repeat(length / 2)}\n${'|-'.repeat(length / 4)}\n`,
  growing(Math.sqrt(2 * length), i => `${'`'.repeat(i)} `),
  growing(Math.sqrt(2 * length), i => `${'>'.repeat(i)}\n`),
  growing(Math.sqrt(length), i => `${'  '.repeat(i)}- a\n`),
];
/** @param {number} n @param {(i: number) => string} piece */
const growing = (n, piece) => Array.from({ length: n }, (_, i) => piece(i)).join('');
const PROSE = 'Some *text* with `code`, **bold** and [a link](https://example.com/x).\n\n- one\n- two\n\n';

/** How often the library looks at its text, through the member `src` of its states, and how many characters our
 * own rules search. @param {string} text */
function workOf(text) {
  const { inline, block } = new MarkdownIt(), { search } = String.prototype, texts = new WeakMap();
  let n = 0;
  const states = [inline.State.prototype, block.State.prototype];
  for (const state of states)
    Object.defineProperty(state, 'src', {
      configurable: true, get() { n++; return texts.get(this); }, set(value) { texts.set(this, value); } });
  String.prototype.search = function (pattern) {
    const place = search.call(this, pattern);
    n += place < 0 ? this.length : place;
    return place;
  };
  try {
    for (const block of blocksOf(text)) htmlOf(block);
  } finally {
    String.prototype.search = search;
    for (const state of states) delete state.src;
  }
  return n;
}

// Harmful texts take at most 400 times as much work as prose.
test('twice the text takes at most 2.5 times the work, and never 500 times as much as prose', () => {
  const halves = textsOf(LENGTH / 2), usual = workOf(PROSE.repeat(LENGTH / PROSE.length));
  assert.ok(usual > LENGTH);
  for (const [i, text] of textsOf(LENGTH).entries()) {
    const half = workOf(halves[i]), found = workOf(text), what = JSON.stringify(text.slice(0, 20));
    assert.ok(found <= 2.5 * half, `${what}: ${found}, half of the text: ${half}`);
    assert.ok(found < 500 * usual, `${what}: ${found}, prose: ${usual}`);
    if (process.env.SHOW) console.log(what, (found / half).toFixed(2), (found / usual).toFixed(1));
  }
});

test('blocks follow each other, and have the whole text but for blank lines and addresses', () => {
  const text = '# a\n\n\nb\nc\n\n[r]: https://a.example\n\n- d\n\n- e\n> f\n\n```\ng\n\n```\nh\n';
  const blocks = blocksOf(text);
  assert.deepEqual(blocks.map(({ start, end }) => text.slice(start, end)),
    ['# a\n\n\n', 'b\nc\n\n[r]: https://a.example\n\n', '- d\n\n- e\n', '> f\n\n', '```\ng\n\n```\n', 'h\n']);
  assert.deepEqual(blocks.map(({ isDeep }) => isDeep), blocks.map(() => false));
});

test('a block that is nested too deep says so: the library leaves out its text', () => {
  for (const [one, levels] of [['> ', 100], ['- ', 50], ['1. ', 50]]) {
    for (const depth of [1, levels - 1, levels, levels + 1, 10 * levels]) {
      const [block, after] = blocksOf(`${one.repeat(depth)}text\n\n***`);
      assert.ok(block.isDeep || htmlOf(block).includes('text'), `${one} ${depth}`);
      assert.ok(!after?.isDeep);
    }
  }
});
