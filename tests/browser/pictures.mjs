/** Takes the pictures of the chat page for the documents, on a machine that does nothing else, as they show its speed:
 *
 *   node tests/browser/pictures.mjs     writes docs/chat.png and docs/chat-narrow.png */
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { root } from '../node/helpers.mjs';
import { answer, open, put, state } from './chat-page.mjs';

const server = await serve({ root, home: '/web/chat/' }), browser = await launchChrome();
const page = await open({ url: server.url, browser }, '?model=/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf',
  { viewport: { width: 1440, height: 820 } });
await state(page, 'ready');
await put(page, [{ title: 'Three facts about owls', messages: [
  { role: 'user', content: 'Give me three facts about owls.' },
  { role: 'assistant', content: 'They fly silently.' }] }]);
await page.click('#new-chat');
await answer(page, 'Write a JavaScript function that reverses the words of a text.');
await page.click('#open-inspect');
await page.locator('#inspect .token', { hasText: 'Here' }).first().click();
await page.locator('.chosen li').first().waitFor();
await page.waitForFunction(() => !document.querySelector('#toast').hasChildNodes());
await page.screenshot({ path: `${root}docs/chat.png` });

await page.click('#inspect [data-close]');
await page.setViewportSize({ width: 360, height: 840 });
await page.emulateMedia({ colorScheme: 'dark' });
await page.waitForSelector('html[data-theme=dark]');
await page.locator('#log .figures').last().scrollIntoViewIfNeeded();
await page.screenshot({ path: `${root}docs/chat-narrow.png` });
await browser.close();
await server.close();
