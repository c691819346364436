/** Dictation and reading aloud in the chat page.  Headless browsers have no microphone and no voices, so a stand-in of
 * the browser's own classes gives the words and the voices; what the page does with them is real. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TINY, answer, examineAll, open, openForAll, setUp, state } from './chat-page.mjs';

const where = await setUp();

/** The browser's classes: `heard` has the recognition that listens, `spoken` what was read aloud. */
function standIn() {
  globalThis.SpeechRecognition = class extends EventTarget {
    static available = async () => globalThis.pack ?? 'available';
    static install = async () => { globalThis.pack = 'available'; return true; };
    start() { globalThis.heard = this; }
    stop() { this.onend(); }
    abort() { this.onend(); }
    say(...words) { this.onresult({ results: words.map(transcript => [{ transcript }]) }); }
  };
  globalThis.spoken = [];
  globalThis.SpeechSynthesisUtterance = class { constructor(text) { this.text = text; } };
  globalThis.voices = [{ name: 'Service', lang: 'en-US', localService: false }];
  Object.defineProperty(globalThis, 'speechSynthesis', { value: Object.assign(new EventTarget(), {
    getVoices: () => globalThis.voices, speak: one => globalThis.spoken.push(one), cancel() { globalThis.spoken = []; },
  }) });
}

const page = await openForAll(where, page => page.addInitScript(standIn));
const say = (...words) => page.evaluate(words => globalThis.heard.say(...words), words);
const draft = () => page.inputValue('#prompt');

/** @param {import('playwright-core').Page} page @param {() => Promise<unknown>} change */
async function inSettings(page, change) {
  await page.click('#open-settings');
  await change();
  await page.click('#settings-done');
}

test('there is no microphone before the reader asks for one', async () => {
  assert.equal(await page.locator('#dictate').count(), 0);
  await inSettings(page, () => page.selectOption('#set-dictation', 'local'));
  await page.waitForSelector('#dictate');
});

test('what is said is written after the draft, on this machine, until the microphone is pressed again', async () => {
  await page.fill('#prompt', 'Well,');
  await page.click('#dictate');
  await page.waitForSelector('#dictate[aria-pressed=true]');
  assert.equal(await page.evaluate(() => globalThis.heard.processLocally), true);
  await say('why is');
  assert.equal(await draft(), 'Well, why is');
  await say('why is the sky', ' blue?');
  assert.equal(await draft(), 'Well, why is the sky blue?');
  await examineAll(page, 'voice-listening');
  await page.click('#dictate');
  await page.waitForSelector('#dictate[aria-pressed=false]');
  await page.click('#dictate');
  await page.fill('#prompt', 'I write myself');
  await say('too late');
  assert.equal(await draft(), 'I write myself');
  await page.waitForSelector('#dictate[aria-pressed=false]');
});

test('a language pack is downloaded only after a question, and an error says what is wrong', async () => {
  await page.evaluate(() => { globalThis.pack = 'downloadable'; globalThis.heard = undefined; });
  await page.click('#dictate');
  await page.getByRole('button', { name: 'Download it' }).waitFor();
  assert.equal(await page.evaluate(() => globalThis.heard), undefined, 'it does not listen');
  await page.getByRole('button', { name: 'Download it' }).click();
  await page.getByText('The language pack is installed.').waitFor();
  await page.click('#dictate');
  await page.waitForSelector('#dictate[aria-pressed=true]');
  await page.evaluate(() => { globalThis.heard.onerror({ error: 'audio-capture' }); globalThis.heard.onend(); });
  await page.getByText('The browser has found no microphone.').waitFor();
});

test('an answer is read aloud by a voice of this machine only, without its code', async () => {
  await page.fill('#prompt', '');
  await answer(page, 'Hello');
  assert.equal(await page.getByRole('button', { name: 'Read aloud' }).count(), 0);
  await inSettings(page, () => page.check('#set-aloud'));
  const button = page.getByRole('button', { name: 'Read aloud' });
  await button.click();
  await page.getByText('This machine has no voice for en-US').waitFor();
  assert.equal(await page.evaluate(() => globalThis.spoken.length), 0);
  await page.evaluate(() => {
    globalThis.voices.push({ name: 'Here', lang: 'en_GB', localService: true });
    document.querySelector('#log .assistant .text').innerHTML = '<p>One. Two</p><pre>code</pre><ul><li>Three</li></ul>';
  });
  await button.click();
  await page.waitForSelector('#log .read-aloud');
  await examineAll(page, 'voice-reading');
  assert.deepEqual(await page.evaluate(() => globalThis.spoken.map(({ text, voice }) => [text, voice.name])),
    ['One.', 'Two', 'Three'].map(text => [text, 'Here']));
  await button.click();
  assert.equal(await page.locator('#log .read-aloud').count(), 0);
  assert.equal(await page.evaluate(() => globalThis.spoken.length), 0, 'it is silent');
});

test('a browser without speech recognition says so', async () => {
  const page = await open(where, `?model=${TINY}`, {}, page => page.addInitScript(() => {
    localStorage['plumb.settings'] = '{"dictation":"service"}';
    globalThis.SpeechRecognition = globalThis.webkitSpeechRecognition = undefined;
  }));
  await state(page, 'ready');
  await page.click('#dictate');
  await page.getByText('This browser does not recognize speech.').waitFor();
  await page.close();
});
