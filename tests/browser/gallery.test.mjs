/** The gallery, and its pages of a schema and of the diagnosis; search.test.mjs and the tests of the chat page click
 * through the others.  The samples are of the second engine (tests/reference/samples.py). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import Ajv from 'ajv';
import addFormats from 'ajv-formats';
import { root } from '../node/helpers.mjs';
import { examineAll, setUp, tabTo, usable, visits } from './chat-page.mjs';

const where = await setUp(), samples = `${root}web/examples/diagnose/samples`;
const visit = Object.fromEntries(['chat/', 'examples/schema/', 'examples/diagnose/'].map(path =>
  [path, visits({ ...where, path: `web/${path}` }, {})]));

test('the chat page leads to the gallery, whose cards lead to pages that are there', async () => {
  const page = await visit['chat/']('');
  await page.getByRole('link', { name: 'what else runs in a tab' }).click();
  await page.waitForURL('**/web/examples/');
  await page.locator('#cards a').first().waitFor();
  await examineAll(page, 'gallery');
  const targets = await page.locator('#cards a').evaluateAll(links => links.map(({ href }) => href));
  assert.deepEqual(targets.map(url => url.slice(where.url.length)),
    ['web/chat/', 'web/examples/search/', 'web/examples/schema/', 'web/examples/diagnose/']);
  for (const url of targets) assert.equal((await fetch(url)).status, 200, url);
});

test('an answer fits the schema, as ajv judges it; a schema that cannot be kept is named', async () => {
  const page = await visit['examples/schema/']('');
  await usable(page);
  for (const sample of ['A character', 'A recipe']) {
    await page.getByRole('button', { name: sample }).click();
    await page.click('#ask:enabled');
    await page.waitForFunction(() => document.querySelector('#answer-figures').textContent.startsWith('It fits'));
    const schema = JSON.parse(await page.inputValue('#schema'));
    const value = JSON.parse(await page.locator('#answer-json pre').textContent());
    const ajv = addFormats(new Ajv({ strict: false }));
    assert.ok(ajv.validate(schema, value), JSON.stringify([value, ajv.errors]));
  }
  await examineAll(page, 'schema');
  await page.fill('#schema', '{"type": "array", "uniqueItems": true}');
  await page.getByText('/uniqueItems').waitFor();
  assert.ok(await page.locator('#ask').isDisabled());
});

test('a sample and own files are diagnosed: the mistake and where they part, or why there is neither', async () => {
  const page = await visit['examples/diagnose/']('');
  await usable(page);
  const diagnosed = async verdict => {
    await page.locator('.verdict', { hasText: verdict }).waitFor();
    await page.waitForSelector('#result iframe');
    await page.waitForSelector('#result button:enabled');
    return page.frameLocator('#result iframe').locator('body').textContent();
  };
  await page.getByRole('button', { name: 'one wrong layer' }).click();
  assert.match(await diagnosed('has no causal mask: it sees all keys of the batch, only in layer 2'),
    /They first diverge at kq_soft_max-2/);
  await examineAll(page, 'diagnose');
  await page.getByRole('button', { name: 'A right engine' }).click();
  await diagnosed('agrees with the truth');
  await page.getByLabel('Choose a dump').setInputFiles({ name: 'x.json', mimeType: '', buffer: Buffer.from('{}') });
  await page.getByRole('button', { name: 'Diagnose and compare' }).click();
  await page.getByText('There is no model yet. Choose one above, or a sample.').waitFor();
  await page.getByLabel('Choose a model (GGUF)').setInputFiles(`${samples}/model.gguf`);
  await page.getByText('This file cannot be compared.').waitFor();
  await page.getByLabel('Choose a dump').setInputFiles({ name: 'theirs.json', mimeType: '',
    buffer: readFileSync(`${samples}/rope.json`) });
  assert.match(await diagnosed('rope.pairing=halves reproduces their numbers'), /They first diverge at Qcur_rope-0/);
});

test('with the keyboard alone a schema is answered, and a sample diagnosed; Tab reaches its button', async () => {
  const schema = await visit['examples/schema/']('');
  await usable(schema);
  await tabTo(schema, 'button', 'A recipe');
  await schema.keyboard.press('Enter');
  await tabTo(schema, '#ask');
  await schema.keyboard.press('Enter');
  await schema.waitForFunction(() => document.querySelector('#answer-figures').textContent.startsWith('It fits'));

  const diagnose = await visit['examples/diagnose/']('');
  await usable(diagnose);
  await tabTo(diagnose, 'button', 'one wrong layer');
  await diagnose.keyboard.press('Space');
  await diagnose.locator('.verdict', { hasText: 'only in layer 2' }).waitFor();
  await diagnose.waitForSelector('#result button:enabled');
  await tabTo(diagnose, '#result button');
});
