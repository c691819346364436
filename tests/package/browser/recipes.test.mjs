/** The recipes of web/README.md, with its own text, in Chromium: React, Vue and Svelte as Vite builds them, an
 * extension and a service worker.  That for Electron is only compiled.  Ground truth of the service worker: llama.cpp's
 * token ids (tests/vectors). */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import puppeteer from 'puppeteer-core';
import { serve } from '../../../web/site/serve.mjs';
import { chromePath, launchChrome } from '../../hosts/chrome.mjs';
import { Plumb } from '../../../web/node/index.js';
import { prompts, realPath } from '../../node/helpers.mjs';
import { project, root } from '../helpers.mjs';
import { writeRecipe } from '../readme.mjs';

const packages = `${root}tests/package/bundlers/node_modules`;
let browser;
before(async () => { browser = await launchChrome(); });
after(() => browser?.close());

/** Opens a page of a folder, which has the models too. @param {import('node:test').TestContext} t
 * @param {string} folder */
async function visit(t, folder) {
  symlinkSync(`${root}models`, join(folder, 'models'));
  const server = await serve({ root: folder, linked: [root] }), context = await browser.newContext();
  t.after(async () => {
    await context.close();
    await server.close();
  });
  const page = await context.newPage(), problems = [];
  page.on('pageerror', error => problems.push(String(error)));
  await page.goto(server.url);
  return { page, problems };
}

/** How a page of each framework is mounted. */
const MOUNT = {
  react: `import { createElement, StrictMode } from 'react';
    import { createRoot } from 'react-dom/client';
    import App from './App.jsx';
    const root = createRoot(document.body.appendChild(document.createElement('main')));
    window.show = source => root.render(createElement(StrictMode, null, createElement(App, { source })));
    window.unmount = () => root.unmount();
    window.show();`,
  vue: `import { createApp } from 'vue';
    import App from './App.vue';
    const app = createApp(App);
    app.mount(document.body);
    window.unmount = () => app.unmount();`,
  svelte: `import { mount, unmount } from 'svelte';
    import App from './App.svelte';
    const app = mount(App, { target: document.body });
    window.unmount = () => unmount(app);`,
};
/** The configuration of Vite for each. */
const VITE = {
  react: 'export default {};',
  vue: "import vue from '@vitejs/plugin-vue';\nexport default { plugins: [vue()] };",
  svelte: "import { svelte } from '@sveltejs/vite-plugin-svelte';\nexport default { plugins: [svelte()] };",
};
for (const framework of ['react', 'vue', 'svelte']) {
  test(`${framework}: a component loads a model, shows its answer, and frees it`, async t => {
    const folder = project();
    writeRecipe(framework, folder);
    for (const name of ['react', 'react-dom', 'scheduler', 'vue', '@vue', 'svelte', '@sveltejs', '@vitejs', 'esm-env',
      'vite']) symlinkSync(join(packages, name), join(folder, 'node_modules', name));
    writeFileSync(join(folder, 'vite.config.js'), VITE[framework]);
    writeFileSync(join(folder, 'index.html'),
      '<!doctype html><link rel="icon" href="data:,"><body><script type="module" src="main.js"></script></body>');
    writeFileSync(join(folder, 'main.js'), `import { Plumb } from 'plumb-llm';
      const { load } = Plumb;
      window.loads = [];
      Plumb.load = (...args) => {
        window.loads.push(load.apply(Plumb, args));
        return window.loads.at(-1);
      };
      ${MOUNT[framework]}`);
    // Only the development build of React mounts a component twice, as in StrictMode.
    const NODE_ENV = framework === 'react' ? 'development' : 'production';
    execFileSync(process.execPath, ['node_modules/vite/bin/vite.js', 'build', '--logLevel', 'error',
      '--mode', NODE_ENV], { cwd: folder, env: { ...process.env, NODE_ENV }, stdio: ['ignore', 'pipe', 'inherit'] });
    const { page, problems } = await visit(t, join(folder, 'dist'));
    /** What each load has led to: what its model says, or the error. */
    const states = () => page.evaluate(() => Promise.all(window.loads.map(loading =>
      loading.then(model => model.feed([1])).then(() => 'open', ({ name, code }) =>
        name === 'AbortError' ? name : code))));
    await page.click('button:enabled');
    await page.waitForFunction(() => document.querySelector('p').textContent.length > 1);
    if (framework === 'react') {
      assert.deepEqual(await states(), ['AbortError', 'open']);
      await page.evaluate(() => window.show('/models/none.gguf'));
      await page.locator('p', { hasText: 'none.gguf' }).waitFor();
      await page.evaluate(() => window.show('/models/SmolLM2-135M-Instruct.Q4_1.gguf?again'));
      await page.waitForSelector('button:enabled');
    }
    await page.evaluate(() => window.unmount());
    const ends = await states();
    assert.equal(ends.length, framework === 'react' ? 4 : 1);
    assert.deepEqual([ends.filter(end => end === 'open'), ends.at(-1), problems], [[], 'PLUMB_ERROR_STATE', []]);
  });
}

test('the recipe for Electron agrees with the types of Electron, Node and the package', () => {
  const folder = project();
  writeRecipe('electron', folder);
  for (const name of ['@types', 'standalone-electron-types', 'undici-types']) {
    symlinkSync(join(packages, name), join(folder, 'node_modules', name));
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ files: ['main.js', 'preload.cjs'], compilerOptions: {
    allowJs: true, checkJs: true, noEmit: true, strict: true, noImplicitAny: false, skipLibCheck: true,
    module: 'nodenext', target: 'es2023', types: ['node', 'standalone-electron-types'] } }));
  execFileSync(process.execPath, [`${root}node_modules/typescript/bin/tsc`, '-p', folder], { stdio: 'inherit' });
});

test('an extension answers in its panel, with threads', async t => {
  const folder = project();
  writeRecipe('extension', folder);
  cpSync(join(folder, 'node_modules/plumb-llm'), join(folder, 'plumb-llm'), { recursive: true });
  mkdirSync(join(folder, 'models'));
  cpSync(realPath, join(folder, 'models/SmolLM2-135M-Instruct.Q4_1.gguf'));
  const chrome = await puppeteer.launch({ executablePath: chromePath(), pipe: true, enableExtensions: [folder],
    args: ['--no-sandbox', '--disable-gpu'] });
  t.after(() => chrome.close());
  const worker = await chrome.waitForTarget(target => target.type() === 'service_worker');
  const page = await chrome.newPage(), problems = [];
  page.on('pageerror', error => problems.push(String(error)));
  await page.goto(new URL('panel.html', worker.url()).href);
  await page.locator('#button:enabled').click();
  await page.waitForFunction(() => document.querySelector('#answer').textContent.length > 1);
  assert.equal(await page.evaluate(() => crossOriginIsolated), true);
  assert.deepEqual(problems, []);
});

test('a service worker answers the requests of its page, and a stream that is left ends', async t => {
  const folder = project();
  writeRecipe('serviceworker', folder);
  symlinkSync('node_modules/plumb-llm', join(folder, 'plumb-llm'));
  const [, { messages, f32: { ids } }] = prompts, model = await Plumb.load(realPath, { threads: 1 });
  const expected = await model.detokenize(ids.slice(0, 12));
  await model.close();
  const { page, problems } = await visit(t, folder);
  await page.waitForFunction(() => document.querySelector('#answer').textContent.length > 1);
  const answers = await page.evaluate(async messages => {
    const post = (body, init) => fetch('/v1/chat/completions', {
      method: 'POST', ...init,
      body: JSON.stringify({ model: 'smol', messages, temperature: 0, max_tokens: 12, ...body }),
    });
    const { choices: [{ message }] } = await (await post({})).json();
    const abort = new AbortController(), left = await post({ stream: true, max_tokens: 400 }, { signal: abort.signal });
    await left.body.getReader().read();
    abort.abort();
    const lines = (await (await post({ stream: true })).text()).split('\n').filter(line => line.startsWith('data: {'));
    const streamed = lines.map(line => JSON.parse(line.slice(6)).choices[0]?.delta.content ?? '').join('');
    const wrong = await post({ model: 'gpt' });
    return [message.content, streamed, wrong.status, (await (await fetch('/v1/models')).json()).data[0].id];
  }, messages);
  assert.deepEqual([...answers, problems], [expected, expected, 404, 'smol', []]);
});
