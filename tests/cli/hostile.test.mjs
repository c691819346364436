/* No command prints characters of a file that a terminal would obey, or that change the order of what it shows. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { plumb, temporary, test } from './plumb.mjs';

const hidden = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;

/** The tiny model with other texts, each as long in bytes as the old one. @param {Record<string, string>} changes */
function changed(changes) {
  const bytes = readFileSync('tests/vectors/synth/f32.gguf');
  for (const [old, text] of Object.entries(changes)) {
    assert.equal(Buffer.byteLength(text), Buffer.byteLength(old));
    const at = bytes.indexOf(old);
    assert.ok(at > 0, old);
    bytes.write(text, at);
  }
  return bytes;
}

test('control and bidi characters in keys, tensors and tokens are escaped by every command', async () => {
  const path = temporary('hostile.gguf', changed({
    'synthetic llama F32': 'a\u202e\u009b31m\x1b[2J\u2066xyz', 'general.name': 'general\u202e\u009b',
    '<|end|>': '\u202e\u009b\x1bx', 'blk.1.attn_k.weight': 'blk.1k\u202e\u009b\x1b.weight',
  }));
  const model = 'tests/vectors/synth/f32.gguf';
  for (const [args, expected] of [
    [['inspect', path], String.raw`\xe2\x80\xae\xc2\x9b`], [['inspect', path, '--json'], String.raw`\u202e\u009b`],
    [['weights', path, model], String.raw`\xe2\x80\xae\xc2\x9b`],
    [['weights', path, model, '--json'], String.raw`\u202e`],
    [['selfcheck', path], 'x'], [['selfcheck', path, '--json'], 'x'], [['tokenize', path, 'a'], 'a'],
    [['tokenize', path, '\u202e\u009b\x1bx', '--parse-special'], String.raw`   256  "\xe2\x80\xae\xc2\x9b\x1bx"`],
    [['tokenize', path, '\u202e\u009b\x1bx', '--parse-special', '--json'], String.raw`"\u202e\u009b\u001bx"`],
    [['run', path, 'x', '--raw'], ''],
  ]) {
    const { out, err } = await plumb(args);
    assert.doesNotMatch(out + err, hidden, args.join(' '));
    assert.ok((out + err).includes(expected), `${args.join(' ')}: ${out}${err}`);
  }
});
