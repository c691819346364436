/** Model.trace. Ground truth: llama.cpp's activations of the same file and tokens (tests/cli/dump.mjs). */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { tokens, valuesOf } from '../cli/dump.mjs';
import { fails, tinyPath } from './helpers.mjs';

describe('trace', () => {
  /** @type {import('../../web/api/plumb.js').Model} */
  let model;
  before(async () => { model = await Plumb.load(tinyPath); });
  after(() => model.close());

  test('every tap is reported, within 2e-4 of llama.cpp\'s mean and RMS', async () => {
    const trace = await model.trace(tokens, { values: Infinity });
    assert.deepEqual(trace.tokens, tokens);
    assert.equal(trace.taps.length, 35 * tokens.length);
    for (const name of ['embd', 'Vcur-0', 'ffn_inp-0', 'l_out-1', 'result_norm']) {
      for (const token of tokens.keys()) {
        const row = valuesOf(name, token), n = row.length;
        const tap = trace.taps.find(one => one.name === name && one.token === token);
        const rms = Math.sqrt(row.reduce((sum, x) => sum + x * x, 0) / n);
        assert.ok(Math.abs(tap.rms - rms) <= 2e-4 * rms, `${name} of token ${token}: ${tap.rms}, theirs ${rms}`);
        assert.ok(Math.abs(tap.mean - row.reduce((sum, x) => sum + x, 0) / n) <= 2e-4 * rms, name);
        assert.equal(tap.values.length, n);
        row.forEach((x, i) => assert.ok(Math.abs(tap.values[i] - x) <= 2e-3 * rms, `${name}[${token}][${i}]`));
      }
    }
  });

  test('patterns, layers and the number of values select; onTap gets the records of the document', async () => {
    const heard = [];
    const ids = Array.from({ length: 100 }, (_, i) => i);   // more than one batch
    const trace = await model.trace(ids, { taps: 'l_out,result_output', layers: [1, Infinity], values: 3,
      onTap: tap => heard.push(tap) });
    assert.deepEqual(new Set(trace.taps.map(tap => tap.name)), new Set(['l_out-1', 'result_output']));
    assert.deepEqual(trace.taps.filter(tap => tap.name === 'l_out-1').map(tap => tap.token), ids);
    for (const { name, values, places, max } of trace.taps) {
      const isLogits = name === 'result_output';   // the ten largest too
      assert.ok(isLogits ? values.length >= 10 && values.length <= 13 : values.length === 3, `${name}: ${values}`);
      assert.deepEqual(places?.slice(0, 3), isLogits ? [0, 1, 2] : undefined);
      if (isLogits) assert.equal(Math.max(...values), max);
    }
    assert.deepEqual(heard, trace.taps);
  });

  test('the session continues after the prompt, and taps are off again', async () => {
    const ids = [5, 6, 7];
    const untraced = await model.rewind().then(() => model.feed(ids)).then(() => model.step(8));
    await model.trace(ids);
    assert.deepEqual(await model.step(8), untraced);
  });

  test('invalid options, tokens and lengths are refused', async () => {
    await fails(() => model.trace([1], { tap: '*' }), 'PLUMB_ERROR_ARGUMENT', /unknown option "tap"/);
    await fails(() => model.trace([1], { taps: 'Qcurr' }), 'PLUMB_ERROR_ARGUMENT',
      /unknown tap "Qcurr"; known taps are embd,/);
    await fails(() => model.trace([1], { layers: [0, 999] }), 'PLUMB_ERROR_ARGUMENT', /the model has \d+ layers/);
    await fails(() => model.trace([1], { layers: [2, 1] }), 'PLUMB_ERROR_ARGUMENT', /pair of layers/);
    await fails(() => model.trace([]), 'PLUMB_ERROR_ARGUMENT', /a non-empty array of \{role, content\}/);
    await fails(() => model.trace(new Int32Array(0)), 'PLUMB_ERROR_ARGUMENT', /trace: there are no tokens/);
    await fails(() => model.trace([100000]), 'PLUMB_ERROR_TOKEN', /100000/);
    await fails(() => model.trace(Array(600).fill(1)), 'PLUMB_ERROR_CONTEXT', /512/);
  });

  test('an abort ends it', async t => {
    const model = await Plumb.load(tinyPath, { worker: false });   // a worker might already compute the next tokens
    t.after(() => model.close());
    const abort = new AbortController();
    let last = 0;
    const onTap = ({ token }) => { abort.abort(last = token); };
    await assert.rejects(model.trace(Array(500).fill(1), { signal: abort.signal, onTap }), reason => reason === 0);
    assert.ok(last < 8, `${last + 1} tokens: an abort waits for the tokens that are computed at once`);
  });
});
