/* How well Qwen2.5-Coder 0.5B uses the calculator of the chat page: asks for products, sums and differences of random
 * numbers with the tool on and without it, and prints for how many the answer has the right number and is no call.
 *
 *   node tests/bench/agent.mjs [N]      default 20 questions; SEED=1; MODEL: the file, below this folder
 *
 * It uses Chromium, and takes some five minutes. */
import { fileURLToPath } from 'node:url';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { random } from '../node/helpers.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url)), n = Number(process.argv[2] ?? 20);
const model = process.env.MODEL ?? 'models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf';
const next = random(Number(process.env.SEED ?? 1)), from = (low, high) => low + next(high - low);
const OPERATIONS = [
  ['What is NUMBER times NUMBER?', (a, b) => a * b], ['Calculate NUMBER + NUMBER.', (a, b) => a + b],
  ['How much is NUMBER minus NUMBER?', (a, b) => a - b],
];
const questions = Array.from({ length: n }, (_, i) => {
  const [text, compute] = OPERATIONS[i % 3], numbers = [from(1000, 9999), from(100, 999)];
  let used = 0;
  return { question: text.replace(/NUMBER/g, () => String(numbers[used++])), result: compute(...numbers) };
});

const server = await serve({ root, home: '/web/chat/' }), browser = await launchChrome();
const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
await page.addInitScript(() => { localStorage['plumb.settings'] = '{"temperature":0,"maxTokens":120}'; });
await page.goto(`${server.url}web/chat/?model=/${model}`);
const ready = () => page.waitForSelector('body[data-state=ready]', { timeout: 300000 });
await ready();
const figures = { with: { right: 0, called: 0, seconds: 0 }, without: { right: 0, called: 0, seconds: 0 } };
for (const kind of ['without', 'with']) {
  for (const { question, result } of questions) {
    if (await page.isEnabled('#new-chat')) await page.click('#new-chat');
    if (kind === 'with') {   // tools belong to a conversation
      await page.click('#chip-tools');
      await page.getByRole('switch', { name: 'Calculator', exact: true }).check();
      await page.keyboard.press('Escape');
    }
    const start = performance.now();
    await page.fill('#prompt', question);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelectorAll('#log > li').length === 2
      && document.body.dataset.state === 'ready', undefined, { timeout: 300000 });
    const answer = await page.textContent('#log > .assistant .text');
    const isCall = answer.includes('"arguments"');
    const isRight = !isCall && answer.replace(/(?<=\d),(?=\d{3})/g, '').includes(String(result));
    const calls = await page.locator('.call summary').allTextContents(), sums = figures[kind];
    sums.right += Number(isRight);
    sums.called += Number(calls.length > 0);
    sums.seconds += (performance.now() - start) / 1000;
    console.log(`${kind.padEnd(8)} ${isRight ? 'right' : 'WRONG'} ${question} ${result}: ${calls.join('; ')} `
      + JSON.stringify(answer.slice(0, 100)));
  }
}
for (const [kind, { right, called, seconds }] of Object.entries(figures)) {
  console.log(`${kind} the calculator: ${right} of ${n} right, ${called} with a call, ${(seconds / n).toFixed(1)} s `
    + 'each');
}
await browser.close();
await server.close();
