/** The mutants of web/: written into a copy of the checkout; test files that run the mutated place run first. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { parses } from './operators.mjs';
import { run } from './run.mjs';

const list = (folder, suffix) => readdirSync(folder).filter(name => name.endsWith(suffix)).sort()
  .map(name => `${folder}/${name}`);

/** In the working directory, a copy of the checkout. */
export class Web {
  /** @type {{file: string, seconds: number, ran: Record<string, [number, number][]>}[]} */
  #tests = [];
  #browser = list('tests/browser', '.test.mjs');
  #state;
  /** The module without its mutant. */
  #original = Buffer.alloc(0);

  /** @param {string} state  of all sources and tests */
  constructor(state) { this.#state = state; }

  /** Every test file must pass before anything is changed; V8 says which parts of which module it runs. */
  async baseline() {
    const folder = 'build/mutants-cover', file = `${folder}/web.json`;
    mkdirSync(folder, { recursive: true });
    const { state, tests } = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {};
    if (state === this.#state) this.#tests = tests;
    const known = new Set(this.#tests.map(test => test.file));
    execFileSync('make', ['-s', '-j2', 'build/native/plumb', 'wasm', 'build/wasi/plumb.wasm', 'build/emcc/tests.wasm',
      'build/emcc/tests-mt.wasm'], { stdio: 'inherit' });
    console.log('mutants: finds out what each JavaScript test file runs');
    const raw = `${process.cwd()}/${folder}/v8`;
    for (const test of [...list('tests/node', '.test.mjs'), ...list('tests/cli', '.test.mjs')]) {
      if (known.has(test)) continue;
      rmSync(raw, { recursive: true, force: true });
      const { failed, seconds } = await this.#run(test, 900, { NODE_V8_COVERAGE: raw });
      if (failed) throw new Error(`${test} fails without a mutant: ${failed}`);
      const ran = {};
      for (const name of existsSync(raw) ? readdirSync(raw) : [])
        for (const { url, functions } of JSON.parse(readFileSync(`${raw}/${name}`, 'utf8')).result) {
          const path = url.replace(`file://${process.cwd()}/`, '');
          if (!path.startsWith('web/') || /web\/(dist|node_modules)\//.test(path)) continue;
          const source = readFileSync(path, 'utf8'), here = new Uint8Array(source.length);
          const ranges = functions.flatMap(f => f.ranges)
            .sort((a, b) => b.endOffset - b.startOffset - (a.endOffset - a.startOffset));
          for (const { startOffset, endOffset, count } of ranges) here.fill(count ? 1 : 0, startOffset, endOffset);
          const all = ran[path] ??= here;
          here.forEach((one, i) => { all[i] |= one; });
        }
      this.#tests.push({ file: test, seconds, ran: Object.fromEntries(Object.entries(ran).map(([path, bits]) => {
        const spans = [];
        for (let i = 0; i < bits.length; i++)
          if (bits[i] && !bits[i - 1]) spans.push([i, bits.indexOf(0, i) < 0 ? bits.length : bits.indexOf(0, i)]);
        return [path, spans];
      })) });
      console.log(`mutants: ${test} ${seconds.toFixed(1)} s, runs ${Object.keys(ran).length} modules`);
      // An interrupted run continues after it.
      writeFileSync(file, JSON.stringify({ state: this.#state, tests: this.#tests }));
    }
  }

  #run(file, seconds, more = {}) {
    const env = { ...process.env, PLUMB: JSON.stringify([process.execPath, 'web/cli/main.mjs']), ...more };
    return run(process.execPath, ['--test-reporter=tap', file], { env, seconds });
  }

  /** What failed first, empty if the file passes.  A busy machine may fail a test, too: it must fail twice with the
   * mutant, and pass without it. */
  async #finds(file, seconds, path, mutated) {
    const { failed } = await this.#run(file, seconds);
    if (!failed || !(await this.#run(file, seconds)).failed) return '';
    writeFileSync(path, this.#original);
    const isBusy = (await this.#run(file, seconds)).failed;
    writeFileSync(path, mutated);
    return isBusy ? '' : failed;
  }

  async judge({ path, at }, mutated) {
    if (!parses(mutated)) return { verdict: 'invalid' };
    this.#original = readFileSync(path);
    writeFileSync(path, mutated);
    try {
      const runsIt = ({ ran }) => ran[path]?.some(([from, to]) => from <= at && at < to);
      const tests = this.#tests.filter(({ file }) => existsSync(file)).sort((a, b) => a.seconds - b.seconds);
      const first = tests.filter(runsIt);
      for (const { file, seconds } of first) {
        const failed = await this.#finds(file, 60 + 5 * seconds, path, mutated);
        if (failed) return { verdict: 'killed', by: `${file}: ${failed}` };
      }
      // The compiler of the types is a test, too.
      const types = await run('node_modules/.bin/tsc', ['-p', 'web/tsconfig.json', '--noEmit'], { seconds: 300 });
      if (types.failed) return { verdict: 'killed', by: 'tsc' };
      // Tests that run the module in another thread or process, which V8's coverage does not include.
      const name = path.split('/').at(-1).replace(/\.m?js$/, '');
      if (!first.length)
        for (const { file, seconds } of [
          ...tests.filter(({ file, ran }) => ran[path] || file.includes(name)),
          ...this.#inBrowser(path, name).map(file => ({ file, seconds: 168 })),
        ]) {
          const failed = await this.#finds(file, 60 + 5 * seconds, path, mutated);
          if (failed) return { verdict: 'killed', by: `${file}: ${failed}` };
        }
      return { verdict: 'survived', by: first.length ? `${first.length} test files run it` : 'only a page runs it' };
    } finally {
      writeFileSync(path, this.#original);
    }
  }

  /** The browser's test files; those whose name is related to the module come first. */
  #inBrowser(path, name) {
    const page = path.startsWith('web/chat/');
    const rank = file => {
      const text = readFileSync(file, 'utf8');
      return (file.includes(name) ? 0 : 2) + (page === file.includes('chat') ? 0 : 4) + (text.includes(name) ? 0 : 1);
    };
    return this.#browser.map(file => ({ file, rank: rank(file) })).sort((a, b) => a.rank - b.rank)
      .filter(({ rank }) => page ? rank < 4 : true).map(({ file }) => file);
  }
}
