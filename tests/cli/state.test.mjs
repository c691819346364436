/* --save-state and --load-state: a saved session goes on with the same tokens, also one that another host has saved. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { ids, native, output, plumb, smol, temporary, test } from './plumb.mjs';

const run = ['run', smol, '--ctx', '256', '-n', '5', '--temp', '0', '--ids', '--raw', '-p'];
const text = 'Once upon a time there was a fox.';

test('what a prompt has in common with a saved session is not computed again, and gives the same tokens', async () => {
  const file = temporary('state.bin', ''), more = `${text} It was red and`;
  const whole = ids(await output([...run, more]));
  for (const words of [undefined, native].slice(0, native ? 2 : 1)) {
    await output([...run, text, '--save-state', file], '', words);
    const { out, err, code } = await plumb([...run, more, '--load-state', file]);
    assert.deepEqual([code, ids(out)], [0, whole], err);
    assert.match(err, /, 9 tokens of the prompt reused/);
  }
});

test('a file that is no session of the model is refused in one line', async () => {
  const file = temporary('state.bin', '');
  await output([...run, text, '--save-state', file]);
  const bytes = readFileSync(file);
  bytes[bytes.length - 100] ^= 1;
  const cases = [
    [[], bytes, /PLUMB_ERROR_METADATA: byte \d+, in section kv {3}29 from byte \d+: its bytes have the digest/],
    [[], bytes.subarray(0, 1000), /PLUMB_ERROR_TRUNCATED: byte 1000, in section logs 0 from byte \d+: the file ends/],
    [[], Buffer.from('{}'), /PLUMB_ERROR_TRUNCATED: byte 2: the file ends here, and 6 more bytes must follow/],
    [['--kv-type', 'f32'], readFileSync(file), /PLUMB_ERROR_ARGUMENT: .*type i16 .* but this session has f32/],
  ];
  for (const [options, content, message] of cases) {
    writeFileSync(file, content);
    const { code, err } = await plumb([...run, text, '--load-state', file, ...options]);
    assert.equal(code, 1);
    assert.match(err, message);
  }
  assert.match((await plumb([...run, text, '--load-state', 'missing.bin'])).err, /missing\.bin: PLUMB_ERROR_IO/);
});
