/**
 * The first five minutes of a new user, timed and in pictures, by each of the three ways in, to an answer of
 * Qwen2.5-Coder 0.5B.
 *
 *   node tests/bench/first-minutes.mjs page|package|binary|clone...
 *
 *   clone     clones this repository into an empty folder; `make run` with the model; then `make serve`
 *   page      `make serve` in this tree: opens the page in Chromium, chooses the model, which is fetched, and asks
 *   package   npm install of the tarball in build/release (`make release`) in an empty folder; a script of seven lines;
 *             then the page that `npx plumb serve` serves, in which the file is opened
 *   binary    the file for this system in build/release, in an empty folder
 *
 * It prints a line for each step with the seconds since the beginning, and leaves the answers, the output of the
 * terminal and the pictures in build/first-minutes.  What Debian's packages need is not part of it: a machine that has
 * built plumb before has them.  The package and the binary read the model of this tree, which is fetched before the
 * clock starts, as somebody who has downloaded it.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launchChrome } from '../hosts/chrome.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url)), out = join(root, 'build/first-minutes');
const MODEL = 'qwen2.5-coder-0.5b-instruct-q4_k_m', file = join(root, `models/${MODEL}.gguf`);
const QUESTION = 'Write a Python function that says whether a year is a leap year.';
const SYSTEM = { linux: 'linux', darwin: 'macos' }[process.platform] ?? 'windows';

/** Runs a program and notes when its output first matches `first`, and when it ends.
 * @param {(text: string) => void} step @param {string} folder @param {string} program @param {string[]} args
 * @param {RegExp} [first]  the first of the answer, on standard output */
async function run(step, folder, program, args, first = /\S/) {
  const child = spawn(program, args, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '', all = '', hasBegun = false;
  child.stdout.on('data', piece => {
    text += piece;
    all += piece;
    if (hasBegun || !first.test(text)) return;
    hasBegun = true;
    step('the first words of the answer');
  });
  child.stderr.on('data', piece => { all += piece; });
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`${program} ${args.join(' ')}: ${all}`);
  step('the whole answer');
  return { text, all };
}

/** Clicks on the model, which the server fetches. @param {import('playwright-core').Page} page */
const chooseModel = page => page.locator('#offered button', { hasText: 'Qwen2.5-Coder 0.5B' }).click();
/** Opens the file of the model. @param {import('playwright-core').Page} page */
const openFile = page => page.setInputFiles('#file', file);

/** Serves the page of a folder, and uses it as a new visitor would.
 * @param {(text: string) => void} step @param {string} folder @param {string} name  of the pictures
 * @param {string[]} command  which serves it @param {(page: import('playwright-core').Page) => Promise<void>} choose */
async function visit(step, folder, name, [program, ...args] = ['make', 'serve'], choose = chooseModel) {
  const server = spawn(program, args, { cwd: folder, detached: true, stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, PORT: '18300' } });
  const browser = await launchChrome();
  try {
    let said = '';
    const url = await new Promise((resolve, reject) => {
      server.on('exit', code => reject(new Error(`${program} has ended with ${code}`)));
      server.stdout.on('data', piece => {
        said += piece;
        const [found] = /http:\/\/\S+/.exec(said) ?? [];
        if (found) resolve(found);
      });
    });
    step('the server has printed its address');
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
    const picture = (/** @type {string} */ what) => page.screenshot({ path: join(out, `${name}-${what}.png`) });
    await page.goto(url);
    await page.waitForSelector('main:not([inert])');
    step('the page can be used');
    await page.click('#model');
    await choose(page);
    await page.waitForSelector('#loading:not([hidden]) progress[value]', { timeout: 60000 });
    await picture('loading');
    await page.waitForSelector('body[data-state=ready]', { timeout: 600000 });
    step('the model is loaded');
    await page.fill('#prompt', QUESTION);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('#log > .assistant .text')?.textContent, undefined,
      { timeout: 60000 });
    step('the first words of the answer');
    await page.waitForSelector('#log > .assistant:not([aria-busy])', { timeout: 300000 });
    await page.waitForSelector('body[data-state=ready]', { timeout: 300000 });
    step('the whole answer');
    await page.waitForTimeout(500);   // the code is highlighted in a worker
    await picture('answer');
    return { all: await page.locator('#log > .assistant .text').innerText() };
  } finally {
    await browser.close();
    process.kill(-(server.pid ?? 0), 'SIGTERM');
  }
}

/** The file of a release whose name matches. @param {RegExp} name */
function release(name) {
  const found = readdirSync(join(root, 'build/release')).find(one => name.test(one));
  if (!found) throw new Error('build/release lacks a file; make release builds it');
  return join(root, 'build/release', found);
}

/** @type {Record<string, (step: (text: string) => void, folder: string) => Promise<{all: string}>>} */
const WAYS = {
  async clone(step, folder) {
    execFileSync('git', ['clone', '-q', root, 'plumb'], { cwd: folder });
    step('cloned');
    const tree = join(folder, 'plumb');
    const { all } = await run(step, tree, 'make', ['run', `MODEL=${MODEL}`, `PROMPT=${QUESTION}`]);
    return { all: all + (await visit(step, tree, 'clone')).all };
  },
  page: (step, _) => visit(step, root, 'page'),
  async package(step, folder) {
    execFileSync('npm', ['init', '-y'], { cwd: folder });
    execFileSync('npm', ['install', release(/\.tgz$/)], { cwd: folder });
    step('npm install');
    writeFileSync(join(folder, 'first.mjs'), `import { Plumb } from 'plumb-llm';

const model = await Plumb.load(${JSON.stringify(file)});
const chat = model.chat();
for await (const piece of chat.send(${JSON.stringify(QUESTION)})) process.stdout.write(piece);
console.log();
await model.close();
`);
    const { all } = await run(step, folder, process.execPath, ['first.mjs']);
    const serve = ['npx', 'plumb', 'serve', file, '--port', '18300', '--log', 'none'];
    return { all: all + (await visit(step, folder, 'package', serve, openFile)).all };
  },
  async binary(step, folder) {
    const program = join(folder, 'plumb');
    copyFileSync(release(new RegExp(`-${SYSTEM}-${process.arch}(\\.exe)?$`)), program);
    step('copied');
    return run(step, folder, program, ['run', file, QUESTION]);
  },
};

mkdirSync(out, { recursive: true });
for (const name of process.argv.slice(2)) {
  if (!Object.hasOwn(WAYS, name)) throw new Error(`${name}: it is one of ${Object.keys(WAYS).join(', ')}`);
  if (name === 'package' || name === 'binary') {
    execFileSync('python3', ['models/fetch.py', MODEL], { cwd: root, stdio: 'inherit' });
  }
  const folder = mkdtempSync(join(tmpdir(), 'plumb-first-')), start = performance.now();
  const step = (/** @type {string} */ text) =>
    console.log(`| ${name} | ${text} | ${((performance.now() - start) / 1000).toFixed(1)} s |`);
  try {
    writeFileSync(join(out, `${name}.txt`), (await WAYS[name](step, folder)).all);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
