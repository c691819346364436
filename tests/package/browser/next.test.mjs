/** The installed package in Next.js, by the files of the README: a route handler answers in Node, a client component in
 * the page.  Ground truth: llama.cpp's token ids (tests/vectors). */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, readdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { Plumb } from '../../../web/node/index.js';
import { launchChrome } from '../../hosts/chrome.mjs';
import { prompts, realPath } from '../../node/helpers.mjs';
import { project, root } from '../helpers.mjs';
import { writeRecipe } from '../readme.mjs';

const { messages, f32: { ids, first_end: end } } = prompts.find(({ name }) => name === 'chat');
// Prevents a warning on CI that builds are not cached.
const NEXT = 'node_modules/next/dist/bin/next', env = { ...process.env, CI: '', NEXT_TELEMETRY_DISABLED: '1' };

let folder, server, url, expected;
before(async () => {
  const model = await Plumb.load(realPath);
  expected = await model.detokenize(ids.slice(0, end));
  await model.close();

  folder = project();
  // A copy, because Turbopack reads no file outside the project's folder, not even through a link.
  const modules = `${root}tests/package/bundlers/node_modules`;
  for (const name of readdirSync(modules).filter(name => !/^\.|vite|rollup|esbuild|vue|svelte|electron/.test(name))) {
    cpSync(join(modules, name), join(folder, 'node_modules', name), { recursive: true });
  }
  assert.equal(writeRecipe('next', folder).length, 3);
  writeFileSync(join(folder, 'app', 'layout.js'),
    'export default ({ children }) => <html lang="en"><body>{children}</body></html>;\n');
  mkdirSync(join(folder, 'public'));
  for (const path of ['models', 'public/models']) symlinkSync(`${root}models`, join(folder, path));
  const said = execFileSync(process.execPath, [NEXT, 'build'], { cwd: folder, env, encoding: 'utf8' });
  assert.match(said, /\(Turbopack\)/);
  assert.doesNotMatch(said, /warn|error|⚠|⨯/i);

  server = spawn(process.execPath, [NEXT, 'start', '-H', '127.0.0.1', '-p', '0'],
    { cwd: folder, env, stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of createInterface(server.stdout)) {
    [url] = /http:\/\/127\.0\.0\.1:\d+/.exec(line) ?? [];
    if (url) break;
  }
  server.stdout.resume();
});
after(async () => {
  if (!server || server.exitCode !== null) return;
  server.kill();
  await once(server, 'exit');
});

test('a route handler answers in Node, also after a load that failed, twice with one model', async () => {
  const ask = () => fetch(`${url}/answer`, { method: 'POST', body: JSON.stringify({ messages }) });
  renameSync(join(folder, 'models'), join(folder, 'moved'));
  assert.equal((await ask()).status, 500);
  renameSync(join(folder, 'moved'), join(folder, 'models'));
  for (let i = 0; i < 2; i++) {
    const response = await ask();
    assert.deepEqual([response.status, await response.text()], [200, expected]);
  }
});

test('the output that Turbopack and nft trace for deployment includes the workers and modules', async () => {
  const needed = [
    ...['index', 'engine-worker', 'thread-worker', 'command-worker'].map(name => `node/${name}.js`),
    ...['', '-mt', '-relaxed', '-mt-relaxed', '-template', '-grammar', '-cli'].map(name => `dist/plumb${name}.wasm`),
  ];
  const { files } = JSON.parse(readFileSync(join(folder, '.next/server/app/answer/route.js.nft.json'), 'utf8'));
  // nft is the tracer that Next.js uses with webpack; other tools use it too.
  const nft = createRequire(join(folder, NEXT))('next/dist/compiled/@vercel/nft');
  const entry = join(folder, 'node_modules/plumb-llm/node/index.js');
  const { fileList } = await nft.nodeFileTrace([entry], { base: folder });
  for (const list of [files, [...fileList]]) {
    const collected = list.flatMap(file => /node_modules\/plumb-llm\/((?:node|dist)\/.*)/.exec(file)?.[1] ?? []);
    assert.deepEqual(needed.filter(file => !collected.includes(file)), []);
  }
});

test('a client component answers in the page, with threads, and contacts no other server', async t => {
  const browser = await launchChrome();
  t.after(() => browser.close());
  const page = await browser.newPage();
  const wrong = [], modules = [];
  page.on('request', request => {
    if (!request.url().startsWith(`${url}/`)) wrong.push(request.url());
    if (request.url().endsWith('.wasm')) modules.push(request.url());
  });
  page.on('response', response => {
    if (response.status() >= 400 && !response.url().endsWith('/favicon.ico')) {
      wrong.push(`${response.status()} ${response.url()}`);
    }
  });
  page.on('pageerror', error => wrong.push(String(error)));
  await page.goto(url);
  await page.click('button');
  await page.waitForFunction(length => document.querySelector('p').textContent.length >= length, expected.length,
    { timeout: 60000 });
  assert.equal(await page.textContent('p'), expected);
  assert.deepEqual(wrong, []);
  assert.equal(modules.length, 2);
  assert.match(modules.join(' '), /\/plumb-mt(-relaxed)?\.[\w-]+\.wasm .*\/plumb-template\.[\w-]+\.wasm$/);
});

test('the page\'s scripts import no module of Node', () => {
  const scripts = readdirSync(join(folder, '.next/static'), { recursive: true }).filter(name => name.endsWith('.js'));
  assert.ok(scripts.length > 0);
  for (const name of scripts) {
    assert.doesNotMatch(readFileSync(join(folder, '.next/static', name), 'utf8'), /node:(fs|url|worker_threads)/, name);
  }
});
