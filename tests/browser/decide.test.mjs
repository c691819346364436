/** Decisions in Chromium: the bits of their numbers are those of Node. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, test } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { bits, CASES, COMPLAINT, examplesOf, QUESTIONS, SUM } from '../node/decisions.mjs';
import { root } from '../node/helpers.mjs';

let server, browser;
before(async () => {
  server = await serve({ root });
  browser = await launchChrome();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

test('decisions and calibrations have the bits of Node', async () => {
  const page = await browser.newPage();
  await page.route('**/blank.html', route => route.fulfill({ contentType: 'text/html', body: '<!doctype html>' }));
  await page.goto(`${server.url}blank.html`);
  const { answers, fitted } = await page.evaluate(async ([context, questions, examples]) => {
    const { fitCalibration, Plumb } = await import('/web/index.js');
    const model = await Plumb.load('/models/SmolLM2-135M-Instruct.Q4_1.gguf', { contextLength: 1024 });
    const { answers } = await model.decide(context, questions);
    await model.close();
    return { answers, fitted: examples.map(one => fitCalibration(one)) };
  }, [COMPLAINT, QUESTIONS, CASES.map(examplesOf)]);
  assert.equal(createHash('sha256').update(bits(answers) + JSON.stringify(fitted)).digest('hex'), SUM);
});
