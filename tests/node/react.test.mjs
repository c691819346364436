/** The hook of the guide in web/README.md, in React. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { createElement, StrictMode } from 'react';
import renderer, { act } from 'react-test-renderer';
import { Plumb } from '../../web/node/index.js';
import { root, tinyPath } from './helpers.mjs';

globalThis.IS_REACT_ACT_ENVIRONMENT = true;

test('the hook of the guide loads a model, frees it, and loads another one', async t => {
  t.mock.method(console, 'error', text => assert.match(String(text), /react-test-renderer is deprecated/));
  const folder = mkdtempSync(join(root, 'build', 'react-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const [, code] = /## React\n\n```jsx\n([^]*?)```/.exec(readFileSync(`${root}web/README.md`, 'utf8'));
  writeFileSync(join(folder, 'hook.mjs'), code.replace("'plumb-llm'", "'../../web/node/index.js'"));
  const { useModel } = await import(join(folder, 'hook.mjs'));
  const models = [], { load } = Plumb;
  t.mock.method(Plumb, 'load', async (...args) => {
    const model = await load.apply(Plumb, args);
    models.push(model);
    await wait(100);   // so that React shows the progress
    return model;
  });
  const seen = [], options = { worker: false, threads: 1 };
  const Shows = ({ source }) => {
    const state = useModel(source, options);
    seen.push(state);
    return state.error?.code ?? state.model?.metadata['general.architecture'] ?? 'loading';
  };
  const element = source => createElement(StrictMode, null, createElement(Shows, { source }));
  const shown = async text => {
    for (let i = 0; i < 200 && tree.toJSON() !== text; i++) await act(() => wait(20));
    assert.equal(tree.toJSON(), text);
  };
  const isClosed = async model => assert.rejects(model.feed([1]), { code: 'PLUMB_ERROR_STATE' });
  let tree;
  await act(async () => { tree = renderer.create(element(tinyPath)); });
  await shown('llama');
  assert.ok(seen.some(({ progress }) => progress?.phase), 'no progress');
  const current = seen.at(-1).model;
  assert.equal((await current.feed([1, 2])).length, 260);
  for (const model of models) if (model !== current) await isClosed(model);   // StrictMode mounts twice
  await act(async () => { tree.update(element('/none.gguf')); });
  await shown('PLUMB_ERROR_IO');
  await isClosed(current);
  await act(async () => { tree.update(element(tinyPath)); });
  await shown('llama');
  const last = seen.at(-1).model;
  await act(async () => { tree.unmount(); });
  await wait(200);
  await isClosed(last);
});
