/** Stop strings. Ground truth: the definition, by trying every length of the whole text. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StopFilter } from '../../web/engine/stop.js';
import { random } from './helpers.mjs';

/** The shortest prefix that ends in a stop string, without the longest stop string that it ends in. */
function byDefinition(text, stops) {
  for (let end = 1; end <= text.length; end++) {
    const ending = stops.filter(stop => text.slice(0, end).endsWith(stop));
    const longest = Math.max(...ending.map(stop => stop.length));
    if (ending.length > 0) return { text: text.slice(0, end - longest), stopped: true };
  }
  return { text, stopped: false };
}

function filtered(pieces, stops) {
  const filter = new StopFilter(stops);
  let text = '';
  for (const piece of pieces) {
    text += filter.push(piece);
    if (filter.stopped) break;
  }
  return { text: text + filter.flush(), stopped: filter.stopped };
}

test('a stop string is cut with everything after it, also if it arrives in pieces', () => {
  assert.deepEqual(filtered(['Hello E', 'N', 'D and more'], ['END']), { text: 'Hello ', stopped: true });
  assert.deepEqual(filtered(['Hello EN'], ['END']), { text: 'Hello EN', stopped: false });
  assert.deepEqual(filtered(['aaab'], ['aab']), { text: 'a', stopped: true });
  assert.deepEqual(filtered(['abcd'], ['abcd', 'c']), { text: 'ab', stopped: true });
  assert.deepEqual(filtered(['x\n\nUser:'], ['\n\nUser:', 'User:']), { text: 'x', stopped: true });
});

test('text that cannot become a stop string is not held back', () => {
  const filter = new StopFilter(['\n\nUser:']);
  assert.equal(filter.push('one'), 'one');
  assert.equal(filter.push('two\n'), 'two');
  assert.equal(filter.push('three'), '\nthree');
});

test('4,000 random texts in random pieces give the result of the definition', () => {
  const pick = random(1);
  const word = longest => Array.from({ length: 1 + pick(longest) }, () => 'ab'[pick(2)]).join('');
  for (let i = 0; i < 4000; i++) {
    const stops = Array.from({ length: 1 + pick(3) }, () => word(5));
    const pieces = Array.from({ length: 1 + pick(6) }, () => word(4));
    const expected = byDefinition(pieces.join(''), stops);
    assert.deepEqual(filtered(pieces, stops), expected, `${JSON.stringify(pieces)} with ${JSON.stringify(stops)}`);
  }
});
