/** The chat page and the gallery by clicking, in any browser of tests/hosts/browser.mjs.  tests/browser tries the same
 * and much more in Chromium. */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { after, afterEach, before, describe, test } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { root, server } from '../node/helpers.mjs';
import { mcpServer } from '../node/mcp-server.mjs';
import { callText, scriptedModel } from '../node/scripted.mjs';
import { inColumns } from '../pdf.mjs';

const TINY = '/tests/vectors/synth/f32.gguf';

/** @param {string} name @param {() => Promise<import('./browser.mjs').Browser>} launch */
export function clicking(name, launch) {
  describe(`${name}, by clicking`, () => {
    let browser, site, nScript = 0;
    before(async () => {
      site = await serve({ root, home: '/web/chat/' });
      browser = await launch();
    });
    after(async () => {
      await browser?.close();
      await site?.close();
    });
    afterEach(async () => assert.deepEqual(await browser.evaluate(() => problems), []));

    /** Opens a page, with settings of the chat, and waits until it can be used.
     * @param {string} page @param {object} [settings] */
    async function visit(page, settings = { maxTokens: 4 }) {
      await browser.open(`${site.url}README.md`);
      await browser.evaluate(settings => {
        localStorage['plumb.settings'] = JSON.stringify({ seed: 1, ...settings });
      }, settings);
      await browser.open(`${site.url}${page}`);
      await browser.evaluate(() => {
        globalThis.problems = [];
        addEventListener('error', ({ message }) => problems.push(message));
        addEventListener('unhandledrejection', ({ reason }) => problems.push(String(reason)));
      });
      await shown('main:not([inert])');
      if (!page.startsWith('?')) return;
      await shown('body[data-state=ready]');
      await browser.click('#new-chat');   // it opens with the conversation of an earlier test
      await shown('#welcome:not([hidden])');
    }

    /** Waits until an element is there, and its text contains this. @param {string} selector @param {string} [text] */
    const shown = (selector, text) => browser.evaluate(async ([selector, text]) => {
      const end = performance.now() + 60000;
      for (;;) {
        const all = [...document.querySelectorAll(selector)];
        if (all.some(one => text === null || one.textContent.includes(text))) return;
        if (performance.now() > end)
          throw new Error(`${selector} is ${all.map(one => one.textContent).join(' | ')}, not ${text}`);
        await new Promise(resolve => setTimeout(resolve, 20));
      }
    }, [selector, text ?? null]);

    /** Waits for a button with this text, and clicks on it. @param {string} within  a selector @param {string} text */
    async function press(within, text) {
      await shown(`${within} button`, text);
      await browser.evaluate(([within, text]) => {
        for (const one of document.querySelectorAll('[data-pressed]')) delete one.dataset.pressed;
        const all = [...document.querySelectorAll(`${within} button`)];
        all.find(one => one.textContent.includes(text)).dataset.pressed = '';
      }, [within, text]);
      await browser.click('[data-pressed]');
    }

    /** Chooses a file, as the browser's own dialog would. @param {string} field @param {string} name
     * @param {Buffer} bytes */
    const choose = (field, name, bytes) => browser.evaluate(([field, name, bytes]) => {
      const data = new DataTransfer(), input = document.querySelector(field);
      data.items.add(new File([Uint8Array.from(atob(bytes), one => one.charCodeAt(0))], name));
      input.files = data.files;
      input.dispatchEvent(new Event('change'));
    }, [field, name, bytes.toString('base64')]);

    /** Waits until this child of the conversation is a whole answer. @param {number} n */
    const answered = n => shown(`body[data-state=ready] #log > .assistant:nth-child(${n}):not([aria-busy])`);

    /** Opens the chat page with a model that says what a script has.
     * @param {Parameters<typeof scriptedModel>[0]} script */
    async function visitScripted(script) {
      // The browsers are tried at the same time, and keep a copy of each address.
      const path = `build/chat/script-${process.pid}-${nScript++}.gguf`;
      mkdirSync(`${root}build/chat`, { recursive: true });
      writeFileSync(root + path, scriptedModel(script));
      await visit(`?model=/${path}`, {});
      rmSync(root + path);
    }

    test('versions of an answer, Continue, a document, the palette', async () => {
      await visit(`?model=${TINY}`);
      await browser.type('#prompt', 'Hello\n');
      await answered(2);
      await browser.click('#log [aria-label=Regenerate]');
      await shown('#log .versions p', '2 / 2');
      await answered(2);
      await browser.click('#log [aria-label="Earlier version"]');
      await shown('#log .versions p', '1 / 2');
      await shown('#log .figures', '4 tokens');
      await press('#log .cut', 'Continue');
      await shown('#log .figures', '8 tokens');
      await answered(2);
      await choose('#attach-file', 'tower.txt', Buffer.from('The tower is 324 metres high.'));
      await shown('#attached li:not(:has(progress))', 'tower.txt');
      await browser.type('#prompt', 'How high?\n');
      await answered(4);
      await browser.click('#log .user .chips button');
      await shown('#document[open]', 'The tower is 324 metres high.');
      await browser.click('#document [data-close]');
      await browser.evaluate(() => document.querySelector('#prompt').dispatchEvent(
        new KeyboardEvent('keydown', { key: 'k', ctrlKey: true, bubbles: true, cancelable: true })));
      await shown('#palette[open] [role=option]');
      await browser.type('#palette-field', 'new chat\n');
      await shown('#welcome:not([hidden])');
    });

    test('formulas and code are typeset', async () => {
      await visitScripted([{ when: '', says: ['So \\(a^2\\) is\n\n```py\nif x: # why\n```\n\nand more.'] }]);
      await browser.type('#prompt', 'Show me\n');
      await shown('#log math');
      await shown('#log .code [class*=comment]', '# why');
      await shown('#log .text', 'and more.');
      await answered(2);
    });

    test('own options of a conversation, prompts by "/", the catalogue; nothing asks for a microphone', async () => {
      await visit(`?model=${TINY}`);
      assert.equal(await browser.evaluate(() => document.querySelectorAll('#dictate').length), 0);
      await browser.type('#prompt', '/su');
      await shown('#slash [aria-selected=true]', '/summarize');
      await browser.type('#prompt', '\n');
      assert.match(await browser.evaluate(() => document.querySelector('#prompt').value), /^Summarize this text/);
      await browser.type('#prompt', 'Once\n');
      await answered(2);
      await shown('#log > li:last-child .figures', '4 tokens');
      await browser.click('#chip-system');
      await shown('#own[open]');
      await browser.type('#own-set-maxTokens', '2');
      await press('#own', 'Done');
      await shown('#chips button', '1 option');
      await browser.type('#prompt', 'Again\n');
      await answered(4);
      await shown('#log > li:last-child .figures', '2 tokens');
      await browser.click('#model');
      await shown('#catalogue li', 'Gemma 3 270M');
      await browser.type('#find', 'granite 350M');
      await shown('#find-count', '2 of ');
      await shown('#catalogue li', 'Granite 4.0 350M');
    });

    test('a PDF is read, a long text is searched by meaning, and a quote leads to its place', async () => {
      await visit('?model=/models/SmolLM2-135M-Instruct.Q4_1.gguf', { maxTokens: 8, temperature: 0 });
      await choose('#attach-file', 'bread.pdf', inColumns('Bread', ['The loaf stays in the oven for forty minutes.']));
      await choose('#attach-file', 'licence.txt', readFileSync('/usr/share/common-licenses/MPL-2.0'));
      await shown('#attached li:not(:has(progress))', '1 page');
      await shown('#attached li:not(:has(progress))', 'licence.txt');
      await browser.type('#prompt', 'How many days do I have to cure a first violation after a notice?\n');
      await press('body', 'Download 25 MB');
      await shown('.places blockquote', '30 days');
      await browser.click('#log .user .chips button');
      await shown('#document[open]', 'The loaf stays in the oven for forty minutes.');
      await browser.click('#document [data-close]');
      await press('.places', 'licence.txt');
      await shown('#document[open] mark', 'License');
      await answered(2);
    });

    test('the search page answers from notes by a quote that leads to its place', async () => {
      await visit('web/examples/search/');
      await shown('body[data-state=ready]');
      await browser.click('#example');
      await shown('#notes .figures', '5 passages');
      await browser.type('#prompt', 'How long does a loaf stay in the oven?');
      await browser.click('#ask');
      await press('#answer', 'SmolLM2 135M, quotes');
      await shown('#answer-text', '“Bake the loaf for forty minutes');
      await shown('#answer[aria-busy=false]');
      await browser.click('#answer-text button');
      await shown('#document[open] mark', 'Bake the loaf');
    });

    test('tools run, and the page asks before it sends anything', async t => {
      const { url: mcp, seen } = await mcpServer(t, 'sessions'), html = await server(t, (_, response) => {
        response.writeHead(200, { 'Content-Type': 'text/html', 'Access-Control-Allow-Origin': '*' })
          .end('<script>1</script><p title="a>b">The lamp &amp; <b>the fire');
      });
      await visitScripted([
        { when: '84', says: ['It is 84.'] }, { when: 'sunny', says: ['Nice weather.'] },
        { when: 'lamp & the fire', says: ['They burn.'] },
        { when: 'multiply', says: [callText('calculate', { expression: '12*7' })] },
        { when: 'weather', says: [callText('get_weather', { city: 'Oslo' })] },
        { when: 'read', says: [callText('fetch_page', { url: html })] }, { when: '', says: ['Hello.'] },
      ]);
      await browser.click('#chip-tools');
      await shown('#tools[open]');
      await browser.click('#tool-calculate');
      await browser.click('#tool-fetch_page');
      await browser.type('#server-address', `${mcp}\n`);
      await shown('#tools .foot p', '7 tools added');
      const before = seen.length;
      await browser.click('#tools .foot button');
      await shown('#chip-tools', 'Tools (3)');
      await browser.type('#prompt', 'Please multiply.\n');
      await shown('#log > li:last-child .call summary', 'Calculated 12*7 = 84');
      await shown('#log > li:last-child .text', 'It is 84.');
      await shown('body[data-state=ready]');
      await browser.type('#prompt', 'And the weather?\n');
      await shown('#ask pre', '"city":"Oslo"');
      assert.equal(seen.length, before, 'nothing is sent before the reader allows it');
      await shown('#ask');
      await browser.click('#ask .primary');
      await shown('#log > li:last-child .text', 'Nice weather.');
      await shown('body[data-state=ready]');
      await browser.type('#prompt', 'Please read.\n');
      await shown('#ask');
      await browser.click('#ask .primary');
      await shown('#log > li:last-child .text', 'They burn.');
    });
  });
}
