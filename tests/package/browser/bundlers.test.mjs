/** The installed package in pages as developers make them: without a bundler, with Vite (also its dev server) and
 * webpack without configuration, and with esbuild and Rollup by the README's commands.  Ground truth: without a bundler
 * llama.cpp's token ids (tests/vectors); with one, what a small model gives in Node, because bundling adds no size. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { createServer } from 'vite';
import { serve } from '../../../web/site/serve.mjs';
import { launchChrome } from '../../hosts/chrome.mjs';
import { prompts, tiny, withTemplate } from '../../node/helpers.mjs';
import { Plumb } from '../../../web/node/index.js';
import { project, root, version } from '../helpers.mjs';

const N = 6, [{ ids, f32: { ids: expected } }] = prompts;
const REAL = { url: '/models/SmolLM2-135M-Instruct.Q4_1.gguf', prompt: ids, expected: expected.slice(0, N) };
const SMALL = { url: '/small.gguf', prompt: [72, 101, 13], expected: /** @type {number[]} */ ([]) };
const small = withTemplate(tiny,
  '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}');
const ISOLATED = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };
const THREADS = Math.min(8, availableParallelism());

let browser;
before(async () => {
  browser = await launchChrome();
  const model = await Plumb.load(small, { precision: 'exact16' });
  for (let logits = await model.feed(SMALL.prompt); SMALL.expected.length < N;) {
    SMALL.expected.push(logits.indexOf(Math.max(...logits)));
    logits = await model.step(SMALL.expected[SMALL.expected.length - 1]);
  }
  await model.close();
  assert.ok(new Set(SMALL.expected).size > 1, `the small model answers ${SMALL.expected}`);
});
after(() => browser?.close());

/** Runs a program of this repository's packages in a project. */
const run = (folder, program, ...args) =>
  execFileSync(process.execPath, [join(root, 'node_modules', program), ...args], { cwd: folder, encoding: 'utf8' });

/** Opens the app; its answer must be the expected one, and every request must succeed and go to its own server.
 * @param {string} url @param {number} threads @param {typeof SMALL} [model] */
async function check(url, threads, model = SMALL) {
  const page = await browser.newPage();
  const wrong = [];
  page.on('request', request => {
    if (!request.url().startsWith(url)) wrong.push(request.url());
  });
  page.on('response', response => {
    if (response.status() >= 400 && !response.url().endsWith('/favicon.ico')) {
      wrong.push(`${response.status()} ${response.url()}`);
    }
  });
  page.on('pageerror', error => wrong.push(String(error)));
  await page.goto(`${url}?url=${model.url}&prompt=${model.prompt}&n=${N}`);
  await page.waitForFunction(() => document.body.textContent.includes('{'), null, { timeout: 60000 });
  const shown = JSON.parse(await page.evaluate(() => document.body.textContent));
  await page.close();
  assert.deepEqual(wrong, []);
  assert.equal(shown.error, undefined);
  assert.deepEqual(shown.ids, model.expected);
  assert.match(shown.chat, /<\|im_start\|>user\nHello<\|im_end\|>/);
  assert.equal(shown.threads, threads);
  assert.match(shown.out, new RegExp(`^plumb ${version}`));
}

/** Serves a folder, with the models in it, isolated and not. @param {string} folder @param {typeof SMALL} [model] */
async function served(folder, model) {
  symlinkSync(`${root}models`, join(folder, 'models'));
  writeFileSync(join(folder, 'small.gguf'), small);
  for (const [headers, threads] of [[ISOLATED, THREADS], [{}, 1]]) {
    const server = await serve({ root: folder, linked: [root], headers });
    try {
      await check(server.url, threads, model);
    } finally {
      await server.close();
    }
  }
}

/** Scripts sent to a browser must not import a module of Node. */
function noNode(folder) {
  for (const name of readdirSync(folder, { recursive: true }).filter(name => name.endsWith('.js'))) {
    assert.doesNotMatch(readFileSync(join(folder, name), 'utf8'), /["'`]node:|require\(/, name);
  }
}

test('plain modules: the files of the package work unchanged, without an import map', async () => {
  const folder = project('app');
  renameSync(join(folder, 'node_modules', 'plumb-llm'), join(folder, 'plumb-llm'));
  const main = join(folder, 'src', 'index.js');
  writeFileSync(main, readFileSync(main, 'utf8').replace("'plumb-llm'", "'/plumb-llm/index.js'"));
  await served(folder, REAL);
});

test('vite build', async () => {
  const folder = project('app');
  const said = run(folder, 'vite/bin/vite.js', 'build', '--logLevel', 'warn');
  assert.equal(said, '');
  noNode(join(folder, 'dist'));
  await served(join(folder, 'dist'));
});

// Older versions, with WHOLE=1 only.
for (const major of process.env.WHOLE ? [5, 6, 7] : []) {
  test(`vite build of Vite ${major}`, async () => {
    const folder = project('app');
    assert.equal(run(folder, `../tests/package/bundlers/node_modules/vite${major}/bin/vite.js`, 'build', '--logLevel',
      'warn'), '');
    noNode(join(folder, 'dist'));
    await served(join(folder, 'dist'));
  });
}

for (const bundler of ['esbuild', 'rollup']) {
  test(`${bundler}, by the README's commands`, async () => {
    const folder = project('app');
    const [, commands] = new RegExp(`<!-- bundle: ${bundler} -->\n\`\`\`sh\n(.*?)\`\`\``, 's')
      .exec(readFileSync(`${root}web/README.md`, 'utf8')) ?? assert.fail(`README has no commands for ${bundler}`);
    // npx and Rollup look for their dependencies in the project.
    for (const name of ['.bin', 'esbuild', 'rollup', '@rollup']) {
      rmSync(join(folder, 'node_modules', name), { recursive: true, force: true });
      symlinkSync(`${root}tests/package/bundlers/node_modules/${name}`, join(folder, 'node_modules', name));
    }
    execFileSync('sh', ['-ec', commands], { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
    noNode(join(folder, 'dist'));
    writeFileSync(join(folder, 'dist', 'index.html'),
      '<!doctype html><body></body><script type="module" src="js/index.js"></script>');
    await served(join(folder, 'dist'));
  });
}

test('the dev server of Vite', async t => {
  const folder = project('app');
  mkdirSync(join(folder, 'public'));
  writeFileSync(join(folder, 'public', 'small.gguf'), small);
  const server = await createServer({
    root: folder, logLevel: 'warn', server: { headers: ISOLATED, port: 0, host: '127.0.0.1' },
  });
  t.after(() => server.close());
  await server.listen();
  const { port } = server.httpServer.address();
  await check(`http://127.0.0.1:${port}/`, THREADS);
});

test('webpack', async () => {
  const folder = project('app');
  const said = run(folder, 'webpack-cli/bin/cli.js', '--mode', 'production', '--stats', 'errors-warnings',
    '--no-performance');   // turns off a hint about files larger than 250 KiB
  assert.equal(said, 'webpack compiled successfully\n');
  noNode(join(folder, 'dist'));
  writeFileSync(join(folder, 'dist', 'index.html'), '<!doctype html><body></body><script src="main.js"></script>');
  await served(join(folder, 'dist'));
});
