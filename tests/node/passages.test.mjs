/** How the search page splits notes into passages.  Ground truth: by hand. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { passagesOf } from '../../web/chat/documents/passages.js';

const textsOf = text => passagesOf(text).map(({ start, end }) => text.slice(start, end));
const bytes = text => Buffer.byteLength(text);

test('paragraphs are passages, and a heading belongs to the next one', () => {
  assert.deepEqual(textsOf('  # Bread\n\nKnead it.\n \n\nBake it.\n- one\n- two\n\nEnd'),
    ['# Bread\n\nKnead it.', 'Bake it.\n- one\n- two', 'End']);
  assert.deepEqual(textsOf('Title\n\nA sentence.\r\n\r\nAnother.'), ['Title\n\nA sentence.', 'Another.']);
  for (const empty of ['', ' \n\n\t ']) assert.deepEqual(textsOf(empty), []);
});

test('a long paragraph is split between sentences, and a long sentence between words or characters', () => {
  const sentences = Array.from({ length: 60 }, (_, i) => `This is sentence number ${i} of a long paragraph.`);
  const parts = textsOf(sentences.join(' '));
  assert.equal(parts.join(' '), sentences.join(' '), 'nothing is lost');
  assert.ok(parts.length > 2 && parts.every(part => part.endsWith('.') && bytes(part) <= 900));
  const words = 'word '.repeat(1000).trim();
  assert.equal(textsOf(words).join(' '), words);
  assert.ok(textsOf(words).every(part => bytes(part) <= 900 && /^word( word)*$/.test(part)));
  const faces = '😀'.repeat(1000);
  assert.equal(textsOf(faces).join(''), faces, 'pairs of surrogates are not cut');
  assert.deepEqual(textsOf(faces).map(bytes), [900, 900, 900, 900, 400]);
  const japanese = '猫は窓のそばで眠っている。'.repeat(50);
  assert.equal(textsOf(japanese).join(''), japanese);
  assert.ok(textsOf(japanese).every(part => part.endsWith('。') && bytes(part) <= 900));
});

test('positions are in order and within the text, for texts of white space and marks as well', () => {
  for (const text of ['\n'.repeat(1e5), `${' \n'.repeat(1e5)}.${' '.repeat(1e5)}x`, '. '.repeat(1e5),
    '\ud83d\n\n\ude00', `Head\n${'\n'.repeat(1e5)}end`]) {
    let at = 0;
    for (const { start, end } of passagesOf(text)) {
      assert.ok(start >= at && end > start && end <= text.length && end - start <= 900);
      at = end;
    }
  }
});

/** Texts of what passages are cut at, and of other characters, long ones among them. */
const texts = fc.array(fc.oneof(fc.constantFrom('\n', '\n\n', ' ', '. ', '。', '# Head\n', '- ', '\t', '\r\n', '\u2028'),
  fc.string({ unit: 'binary', maxLength: 12 }), fc.tuple(fc.constantFrom('word ', 'x', '猫', '😀', '\ud83d'),
    fc.nat(600)).map(([text, n]) => text.repeat(n))), { maxLength: 30 }).map(parts => parts.join(''));

test('any text: passages have all but white space, once and in order, none is too long, no pair is cut', () => {
  const inked = (/** @type {string} */ text) => text.replace(/\s+/g, '');
  fc.assert(fc.property(texts, text => {
    let at = 0, all = '';
    for (const { start, end } of passagesOf(text)) {
      const part = text.slice(start, end);
      assert.ok(start >= at && end > start && part === part.trim());
      const long = bytes(part.replace(/\p{Cs}/gu, 'ab'));   // half of a pair counts as two bytes
      assert.ok(long <= 900, `${long} bytes`);
      if (part.length > 1) assert.equal(/^[\udc00-\udfff]/.test(part) && /[\ud800-\udbff]$/.test(all), false);
      all += part;
      at = end;
    }
    assert.equal(inked(all), inked(text));
  }), { seed: 1, numRuns: process.env.WHOLE ? 20000 : 300 });
});
