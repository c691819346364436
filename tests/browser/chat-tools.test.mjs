/** Tools in the chat page, by clicking: what is on, each call with its question, its step and its result, the budget
 * and a stop.  The model is a script (tests/node/scripted.mjs); the servers are made with the SDK of the protocol's
 * authors. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, afterEach, test } from 'node:test';
import { root, server } from '../node/helpers.mjs';
import { mcpServer } from '../node/mcp-server.mjs';
import { callText, scriptedModel } from '../node/scripted.mjs';
import { answer, answers, ask, begin, examineAll, open, put, saved, setUp, state, stored,
  whole } from './chat-page.mjs';

const where = await setUp(), SCRIPT = '/build/chat/tools.gguf';
/** What the page asked of the server of web pages. @type {string[]} */
const fetched = [];
const site = await server({ after }, (request, response) => {
  fetched.push(`${request.method} ${request.url}`);
  response.writeHead(request.url === '/moved' ? 302 : 200, { 'Content-Type': 'text/html', Location: '/page',
    'Access-Control-Allow-Origin': '*', 'Access-Control-Allow-Headers': '*' });
  response.end(`<title>Lamps</title><img src=/pixel onerror=fetch('/stolen')><script>fetch('/stolen')</script>
    <style>@import '/style'</style><p>The   lamp <b title='a>b"'>is</b> &amp; was < 5
    &gt; it&rsquo;s <!-- not --> lit.<iframe src=/frame></iframe>`);
});
writeFileSync(`${root}${SCRIPT}`, scriptedModel([
  { when: '84', says: ['It is', ' 84.'] },
  { when: 'refused', says: ['You said no.'] },
  { when: 'sunny', says: ['Nice weather.'] },
  { when: 'lit.', says: ['The lamp is lit.'] },
  { when: 'failed', says: ['I cannot read it.'] },
  { when: 'multiply', says: ['Let me see. ', callText('calculate', { expression: '12*7' })] },
  { when: 'linger', says: [callText('wait', {})] },
  { when: 'weather', says: [callText('get_weather', { city: 'Oslo' })] },
  { when: 'read', says: [callText('fetch_page', { url: `${site}page` })] },
  { when: 'follow', says: [callText('fetch_page', { url: `${site}moved` })] },
  { when: 'GMT', says: [callText('current_time', {}), ' '], tools: true },   // again and again
  { when: 'GMT', says: ['It is late.'] },
  { when: '55', says: ['Both are there.'] },
  { when: '45', says: [`${callText('calculate', { expression: '5*9' })}\n`,   // again, beside another one
    callText('calculate', { expression: '50+5' })] },
  { when: '42', says: [callText('calculate', { expression: '42' })], tools: true },   // which it was just told
  { when: '42', says: ['Forty-two.'] },
  { when: 'six', says: [callText('calculate', { expression: '6*7' })] },
  { when: 'pair', says: [callText('calculate', { expression: '5*9' })] },
  ...[1, 2, 3, 4, 5, 6].map(n => ({ when: `${n - 1}01`, says: [callText('calculate', { expression: `${n}00 + 1` })] })),
  { when: '', says: ['Hello', ' there.'] },
]));

const page = await open({ ...where, also: 'http://127.0.0.1:' }, `?model=${SCRIPT}`);
page.setDefaultTimeout(15000);
after(() => page.close());
afterEach(async () => {
  if (await page.isEnabled('#new-chat')) await page.click('#new-chat');
  assert.deepEqual(page.problems.splice(0), []);
});
await state(page, 'ready');
const turnOn = async (...names) => {
  await page.click('#chip-tools');
  await page.waitForSelector('#tools[open]');
  for (const name of names) await page.getByRole('switch', { name, exact: true }).check();
  await page.keyboard.press('Escape');
  await page.waitForSelector('#chip-tools[data-set=true]');
};
const addServer = async url => {
  await page.click('#chip-tools');
  await page.fill('#server-address', url);
  await page.keyboard.press('Enter');
  await page.getByText(/^\d+ tools added$/).waitFor();
  await page.keyboard.press('Escape');
};
const asks = async question => {
  await ask(page, question);
  await page.waitForSelector('#ask');
};
const summaries = () => page.locator('.call summary').allTextContents();
const bodyShown = async () => (await page.textContent('#ask pre')).split('\n')[0];

test('no tool is on unless the reader turns it on; what one does is a step of the answer, and is kept', async () => {
  assert.match(await answer(page, 'Please multiply.'), /^Let me see\. <tool_call>/, 'the model was told of no tool');
  await turnOn('Calculator');
  assert.equal(await page.textContent('#chip-tools'), 'Tools (1)');
  assert.equal(await answer(page, 'Please multiply.'), 'It is 84.\n');
  const step = page.locator('.call'), shows = async () => {
    assert.deepEqual(await summaries(), ['Calculated 12*7 = 84']);
    assert.equal(await page.locator('.steps .plain').textContent(), 'Let me see.');
    await step.locator('summary').click();
    await step.locator('pre').nth(2).waitFor();
    assert.deepEqual(await step.locator('pre').allTextContents(), ['calculate', '{"expression":"12*7"}', '84']);
  };
  assert.equal(await step.locator('pre').count(), 0, 'it is folded');
  await shows();
  assert.equal(await answer(page, 'Hello?'), 'Hello there.\n');
  const [{ messages, tools }] = await stored(page);
  assert.deepEqual(messages[3].steps.map(({ content, calls: [{ id, ...call }] }) => [content, typeof id, call]),
    [['Let me see.', 'string', { name: 'calculate', arguments: '{"expression":"12*7"}', result: '84' }]]);
  assert.deepEqual(tools, { on: ['calculate'], servers: [], steps: 8 });
  await page.reload();
  await state(page, 'ready');
  await shows();
  assert.equal(await page.textContent('#chip-tools'), 'Tools (1)');
  const download = page.waitForEvent('download');
  await page.click('#export-markdown');
  const markdown = readFileSync(await saved(await download), 'utf8');
  assert.ok(markdown.includes('```\ncalculate {"expression":"12*7"}\n```\n\n```\n84\n```\n\nIt is 84.'), markdown);
  await put(page, [{ title: 'Copy', messages: [{ role: 'user', content: 'Imported?' }, messages[3]], tools }]);
  await shows();
  assert.equal(await page.textContent('#chip-tools'), 'Tools', 'a file turns no tool on');
});

test('a server is asked for its tools when it is added; a call only when the reader has seen what is sent', async t => {
  const { url, seen } = await mcpServer(t, 'sessions');
  await addServer(url);
  const before = seen.length;
  await asks('And the weather?');
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'ask-title', 'the focus is at the question');
  assert.equal(await page.textContent('#ask bdi'), url);
  assert.deepEqual(await summaries(), [`Calling get_weather at ${url}  ·  waits for your answer`]);
  assert.match(await page.textContent('#status'), /^Step 1 of at most 8 .* Waiting for your answer$/);
  const body = await bodyShown();
  assert.ok((await page.textContent('#ask')).includes(`${body.length} bytes`));
  assert.deepEqual(JSON.parse(body).params, { name: 'get_weather', arguments: { city: 'Oslo' } });
  await page.keyboard.press('Tab');   // to what is sent
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await whole(page, 2);
  assert.equal((await answers(page)).at(-1), 'You said no.\n');
  assert.deepEqual(page.problems.splice(0), [`400 ${url}`], 'a server with sessions does not know the newest revision');
  assert.deepEqual(seen.slice(before), [], 'nothing was sent');
  await asks('And the weather?');
  const allowed = await bodyShown();
  await page.getByRole('button', { name: 'Allow' }).press('Enter');
  await whole(page, 4);
  assert.equal((await answers(page)).at(-1), 'Nice weather.\n');
  assert.equal(seen.at(-1).body, allowed, 'what was sent is what was shown');
  assert.equal((await summaries()).at(-1), `Called get_weather at ${url}`);
  const after = seen.length;
  await asks('And the weather?');
  await page.click('#stop');
  await whole(page, 6);
  assert.equal(await page.locator('#ask').count(), 0);
  assert.equal(await page.locator('.cut').last().textContent(), 'The answer was stopped.Continue');
  assert.deepEqual(seen.slice(after), []);
  await begin(page, () => page.getByRole('button', { name: 'Continue' }).click());
  await whole(page, 6);
  assert.equal((await answers(page)).at(-1), 'Hello there.\n', 'it goes on from the call that was not made');
  await asks('Please linger.');
  await page.getByRole('button', { name: 'Allow' }).click();
  await page.getByText('Waiting for a result').waitFor();
  await page.click('#stop');
  await whole(page, 8);
  assert.equal((await summaries()).at(-1), `Called wait at ${url}, which failed`);
  await page.click('#chip-tools');   // Turned off, it asks nothing any more.
  await page.getByRole('switch', { name: url }).uncheck();
  await page.keyboard.press('Escape');
  assert.match(await answer(page, 'And the weather?'), /^<tool_call>/);
});

test('a web page becomes text and loads nothing; a redirect is not followed', async () => {
  await turnOn('Web pages');
  await asks('Please read it.');
  assert.deepEqual(fetched, []);
  assert.equal(await page.textContent('#ask pre'), `GET ${site}page`);
  await page.getByRole('button', { name: 'Allow' }).click();
  await whole(page, 2);
  assert.equal((await answers(page)).at(-1), 'The lamp is lit.\n');
  await page.click('.call summary');
  assert.equal(await page.locator('.call pre').nth(2).textContent(), 'Lamps\n\nThe lamp is & was < 5 > it’s lit.');
  await asks('Please follow.');
  await page.getByRole('button', { name: 'Allow' }).click();
  await whole(page, 4);
  assert.equal((await answers(page)).at(-1), 'I cannot read it.\n');
  assert.deepEqual(fetched, ['GET /page', 'GET /moved']);
});

test('the answer ends with its budget of steps, and goes on with as many if the reader says so', async () => {
  await page.click('#chip-tools');
  await page.fill('#tool-steps', '3');
  await page.getByRole('switch', { name: 'Calculator' }).check();
  await page.keyboard.press('Escape');
  await answer(page, 'Count from 001.');
  assert.deepEqual(await summaries(), [1, 2, 3].map(n => `Calculated ${n}00 + 1 = ${n}01`));
  await begin(page, () => page.getByRole('button', { name: 'Allow as many steps again' }).click());
  await whole(page, 2);
  assert.equal((await summaries()).length, 6);
  const { messages } = (await stored(page)).find(chat => chat.messages[0].content.includes('001'));
  assert.deepEqual([messages.length, messages[1].steps.length, messages[1].cut.by], [2, 6, 'steps']);
});

test('a model that repeats its last call is asked for words, without tools', async () => {
  await turnOn('Date and time');
  assert.equal(await answer(page, 'What is the time by GMT?'), 'It is late.\n');
  assert.deepEqual(await summaries(), ['Looked at the clock']);
});

test('a model that calculates the result that it was just given is asked for words, without tools', async () => {
  await turnOn('Calculator');
  assert.equal(await answer(page, 'Seven times six?'), 'Forty-two.\n');
  assert.deepEqual(await summaries(), ['Calculated 6*7 = 42']);
});

test('a model that repeats its last call beside another one gets the results of both', async () => {
  await turnOn('Calculator');
  assert.equal(await answer(page, 'A pair, please.'), 'Both are there.\n');
  const { messages } = (await stored(page)).find(chat => chat.messages[0].content.includes('pair'));
  assert.deepEqual(messages[1].steps.map(({ calls }) => calls.map(({ result }) => result)), [['45'], ['45', '55']]);
});

test('a server that is removed in another conversation does not count any more', async t => {
  const { url } = await mcpServer(t, 'modern');
  await addServer(url);
  await answer(page, 'Hello, server?');
  assert.equal(await page.textContent('#chip-tools'), 'Tools (1)');
  await page.click('#new-chat');
  await page.click('#chip-tools');
  await page.locator('.servers > li', { hasText: url }).getByRole('button', { name: /^Remove/ }).click();
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Hello, server?', exact: true }).click();
  assert.equal(await page.textContent('#chip-tools'), 'Tools');
});

test('with a JSON Schema the model is not told about tools, and the dialog says so', async () => {
  await turnOn('Calculator');
  await page.click('#chip-schema');
  await page.fill('#own-set-schema', '{"enum":["Hello"]}');
  await page.locator('#own').getByRole('button', { name: 'Done' }).click();
  await page.waitForSelector('#own:not([open])', { state: 'attached' });
  await page.click('#chip-tools');
  await page.getByText('Answers of this conversation are bound to a JSON Schema').waitFor();
  await page.keyboard.press('Escape');
  await answer(page, 'Please multiply.');
  assert.equal(await page.locator('#log .tree').textContent(), '"Hello"');
});

test('a server that does not allow the page, or is none, is refused with advice', async () => {
  await page.click('#chip-tools');
  const servers = page.locator('.servers > li'), before = await servers.count();
  for (const [address, advice] of [['ftp://a', 'It begins with http:// or https://.'],
    ['http://me:secret@127.0.0.1/', 'Leave it out'], ['http://127.0.0.1:9/', 'Access-Control-Allow-Origin'],
    [`${site}page`, 'instead of JSON']]) {
    await page.fill('#server-address', address);
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.locator('#tools .problem').getByText(advice).waitFor();
  }
  assert.equal(await servers.count(), before);
  await page.keyboard.press('Escape');
});

test('axe finds no violations in tools, wide and narrow, light and dark', async t => {
  const { url } = await mcpServer(t, 'modern'), looks = name => examineAll(page, `tools-${name}`);
  await page.emulateMedia({ reducedMotion: 'reduce' });
  await turnOn('Calculator');
  await answer(page, 'Please multiply.');
  await page.click('.call summary');
  await looks('step');
  await addServer(url);
  await page.click('#chip-tools');
  await page.click('#tools .servers summary');
  await looks('dialog');
  await page.keyboard.press('Escape');
  await asks('And the weather?');
  await looks('ask');
  await page.click('#new-chat');
  await page.waitForSelector('#ask', { state: 'detached' });
});
