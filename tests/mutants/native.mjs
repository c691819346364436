/** The mutants of src/: compiled into the sanitized C tests; the cases that run the mutated line run first. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { run } from './run.mjs';

const cc = process.env.CC ?? 'gcc';
/** Arguments in the wrong order that the compiler would refuse are no mutants. */
const C = ['-std=c11', '-Werror=int-conversion', '-Werror=incompatible-pointer-types', '-ffp-contract=off',
  ...process.arch === 'x64' ? ['-msse4.1'] : []];
const SANITIZE = ['-O1', '-g', '-fno-omit-frame-pointer', '-fsanitize=address,undefined', '-fno-sanitize-recover=all',
  '-DEMULATE_RELAXED'];
/** With UBSan the widest kernels take ten times as long to compile. */
const sanitize = path =>
  path.startsWith('src/engine/kernels/') ? SANITIZE.map(flag => flag.replace(',undefined', '')) : SANITIZE;
/** A memory limit, so that a mutant cannot exhaust the machine. */
const env = { ...process.env, ASAN_OPTIONS: 'hard_rss_limit_mb=3000' };
/** Sources that the tests of the command line cover better than the C tests. */
const SHOWN = /^src\/.*\b(trace|dump|diff|diagnose|reference|check|api|model|gguf|sampler|cli)\//;
/** Sources that the proofs of diagnose cover, and the proofs that look at them most. */
const PROOFS = [
  [/\/diagnose\/fit/, ['tests/reports/measure.py', 'tests/operators/measure.py']],
  [/\/(reference|trace|dump|diagnose)\//, ['tests/reports/measure.py', 'tests/reference/prove.py']],
  [/\/(diff|check|model)\//, ['tests/cases/cases.py']],
];
/** The folder of a mutant and its objects. */
const HERE = 'build/mutants-native';

/** The objects of a part of a program: of the library ('src'), of its command line ('src/cli') or of the tests. */
const objects = (base, part) => readdirSync(`${base}/obj/${part}`, { recursive: true })
  .filter(name => name.endsWith('.o') && name.split('/').length === (part === 'src' ? 3 : 1))
  .map(name => `${base}/obj/${part}/${name}`);

/** Where a compiler looks for headers: those of a mutant are before the others. */
const includes = (folder = '.') => ['src', 'src/engine', 'src/answers', 'src/truth'].map(path => `-I${folder}/${path}`);

/** Compiles a source, the mutant if it is the one; headers that are mutants come before the others. */
const compile = (flags, mutant, source, object, before = true) => run(cc, [...flags, ...C,
  ...before ? includes(HERE) : [], '-Iinclude', ...includes(), '-c', mutant ? `${HERE}/${source}` : source, '-o',
  object], { seconds: 600 });

/** Links a program of these parts, with some objects replaced. */
function link(base, parts, made, program) {
  const flags = base.includes('sanitize') ? ['-fsanitize=address,undefined'] : [];
  const all = parts.flatMap(part => objects(base, part)).map(object => made.get(object) ?? object);
  return run(cc, [...flags, ...all, '-lm', '-lpthread', '-o', program], { seconds: 300 });
}

/** In the working directory, a copy of the checkout. */
export class Native {
  #cases;      // {name, ms}
  #lines;      // file -> line -> indices of cases
  #digest;     // of all sources
  #dependents; // header -> sources

  constructor() {
    execFileSync('make', ['-s', '-j2', 'config=sanitize', 'native', 'build/native-sanitize/tests',
      'build/native-sanitize/memory', 'build/native/tests'], { stdio: 'inherit' });
    this.#dependents = new Map();
    for (const part of ['src', 'src/cli', 'tests'])
      for (const object of objects('build/native-sanitize', part)) {
        const [source, ...headers] = readFileSync(object.replace(/o$/, 'd'), 'utf8').split(/\n\n|\n\S+:\n/)[0]
          .replace(/^[^:]*:|\\\n/g, ' ').trim().split(/\s+/).filter(name => name.includes('/'));
        for (const header of headers)
          if (header.startsWith('src/')) this.#dependents.set(header, [...this.#dependents.get(header) ?? [], source]);
      }
    this.#cover();
  }

  /** Runs every case once in a program that records the blocks of code that it runs. */
  #cover() {
    const sources = ['src', 'tests'].flatMap(part => objects('build/native-sanitize', part))
      .map(object => object.replace('build/native-sanitize/obj/', '').replace(/o$/, 'c'));
    const headers = [...this.#dependents.keys()];
    const hash = createHash('sha256');
    for (const path of [...sources, ...headers].sort()) hash.update(path).update(readFileSync(path));
    const digest = this.#digest = hash.digest('hex'), folder = 'build/mutants-cover', file = `${folder}/${digest}.json`;
    mkdirSync(folder, { recursive: true });
    if (!existsSync(file)) {
      console.log('mutants: finds out which lines each case of the C tests runs');
      const headerFlags = ['-Iinclude', ...includes()].join(' ');
      const makefile = sources.map(path => {
        const object = `${folder}/${path.replaceAll('/', '+')}.o`;
        const flags = path.startsWith('src/') ? '-fsanitize-coverage=trace-pc' : '';
        return `ALL += ${object}\n${object}: ${path}\n` +
          `\t${cc} -O1 -g -DEMULATE_RELAXED ${C.join(' ')} ${flags} -MMD ${headerFlags} -c $< -o $@\n` +
          `-include ${object.replace(/o$/, 'd')}\n`;
      }).join('');
      writeFileSync(`${folder}/Makefile`, `all: ${folder}/tests\n${makefile}` +
        `${folder}/tests: $(ALL) tests/mutants/coverage.c\n\t${cc} -O1 -g -std=c11 ${headerFlags} ` +
        '-Wl,--wrap=test_case,--wrap=test_row,--wrap=test_rows $^ -lm -lpthread -o $@\n');
      execFileSync('make', ['-s', '-j2', '-f', `${folder}/Makefile`, 'all'], { stdio: 'inherit' });
      execFileSync(`${folder}/tests`, [], { stdio: 'ignore', env: { ...env, PLUMB_COVERAGE: `${folder}/cases.txt` } });
      const rows = readFileSync(`${folder}/cases.txt`, 'utf8').trim().split('\n').map(row => row.split('\t'));
      const places = [...new Set(rows.flatMap(row => row.slice(2)))];
      const text = execFileSync('addr2line', ['-e', `${folder}/tests`], { input: places.map(x => `0x${x}`).join('\n'),
        encoding: 'utf8', maxBuffer: 1 << 28 }).trim().split('\n');
      const lineOf = new Map(places.map((place, i) => [place, /(src\/.*):(\d+)/.exec(text[i])?.slice(1)]));
      const lines = {};
      rows.forEach((row, i) => {
        for (const place of row.slice(2)) {
          const [path, line] = lineOf.get(place) ?? [];
          if (path) ((lines[path] ??= {})[line] ??= new Set()).add(i);
        }
      });
      for (const path in lines) for (const line in lines[path]) lines[path][line] = [...lines[path][line]];
      writeFileSync(file, JSON.stringify({ cases: rows.map(([name, ms]) => ({ name, ms: +ms })), lines }));
    }
    ({ cases: this.#cases, lines: this.#lines } = JSON.parse(readFileSync(file, 'utf8')));
  }

  /** The cases that run the line, or the blocks around it, in two parts: those that take little time together, fast
   * ones first, and the others.  Empty where no code is, as in tables. */
  #covering(path, line) {
    const lines = this.#lines[path] ?? {}, near = step => {
      for (let i = line; Math.abs(i - line) < 20; i += step) if (lines[i]) return lines[i];
      return [];
    };
    const cases = [...new Set([...near(-1), ...near(1)])].map(i => this.#cases[i]).sort((a, b) => a.ms - b.ms);
    let sum = 0;
    const fast = cases.filter(({ ms }) => (sum += ms) < 600);
    return [fast, cases.slice(fast.length)];
  }

  /** The whole suite must pass before anything is changed. */
  async baseline() {
    const file = 'build/mutants-cover/passed';
    if (existsSync(file) && readFileSync(file, 'utf8') === this.#digest) return;
    const { failed } = await run('build/native-sanitize/tests', [], { env, seconds: 1800 });
    if (failed) throw new Error(`the C tests fail without a mutant: ${failed}`);
    writeFileSync(file, this.#digest);
  }

  /** Compiles the mutant and what includes it. @returns {Promise<Map<string, string> | null>}  new ones by object */
  async #compile(path, flagsOf, base) {
    const made = new Map();
    for (const source of path.endsWith('.h') ? this.#dependents.get(path) ?? [] : [path]) {
      const object = `${HERE}/${`${base}/${source}`.replaceAll('/', '+')}.o`;
      if ((await compile(flagsOf(source), source === path, source, object)).failed) return null;
      made.set(`${base}/obj/${source.replace(/c$/, 'o')}`, object);
    }
    return made;
  }

  /** @returns {Promise<{verdict: 'killed' | 'survived' | 'invalid' | 'equivalent', by?: string}>} */
  async judge({ path, line }, mutated) {
    rmSync(HERE, { recursive: true, force: true });
    mkdirSync(dirname(`${HERE}/${path}`), { recursive: true });
    writeFileSync(`${HERE}/${path}`, mutated);
    const [fast, slow] = this.#covering(path, line);
    // A line without code of its own may affect any test; the C tests do not contain the command line.
    const all = fast.length + slow.length === 0 && !path.startsWith('src/cli/') ? this.#cases : [];
    const test = async (program, cases) => {
      if (!cases.length) return '';
      const seconds = 60 + 5 * cases.reduce((sum, { ms }) => sum + ms, 0) / 1000;
      // ASan reserves addresses without end, and limits memory in its own way.
      const limit = program.endsWith('plain') ? [`--as=${8 * 2 ** 30}`] : [];
      return (await run('prlimit', [...limit, program, ...cases.map(({ name }) => name)], { env, seconds })).failed;
    };

    // Most mutants are found without the sanitizers, which take most of the time, but are needed for some kernels.
    const isKernel = path.startsWith('src/engine/kernels/');
    if (!isKernel) {
      const made = await this.#compile(path, () => ['-O1', '-g'], 'build/native');
      if (!made || (await link('build/native', ['src', 'tests'], made, `${HERE}/tests-plain`)).failed)
        return { verdict: 'invalid' };
      const failed = await test(`${HERE}/tests-plain`, fast);
      if (failed) return { verdict: 'killed', by: failed };
    }

    // Do the compilers of what ships see any difference?
    let same = true;
    for (const source of path.endsWith('.h') ? this.#dependents.get(path) ?? [] : [path]) {
      if (source.startsWith('tests/')) continue;
      const [one, two] = ['before', 'after'].map(name => `${HERE}/${name}.o`);
      await compile(['-O2', '-DNDEBUG', '-DEMULATE_RELAXED'], false, source, one, false);
      if ((await compile(['-O2', '-DNDEBUG', '-DEMULATE_RELAXED'], source === path, source, two)).failed)
        return { verdict: 'invalid' };
      if (!(same = readFileSync(one).equals(readFileSync(two)))) break;
    }
    if (same) return this.#judgeWasm(path, mutated);

    const made = await this.#compile(path, sanitize, 'build/native-sanitize');
    if (!made || (await link('build/native-sanitize', ['src', 'tests'], made, `${HERE}/tests`)).failed)
      return { verdict: 'invalid' };
    const failed = await test(`${HERE}/tests`, isKernel ? [...fast, ...slow] : fast)
      || (!isKernel && await test(`${HERE}/tests-plain`, [...slow, ...all]))
      || await this.#judgeProgram(path) || await this.#judgeMemory(line, mutated, made);
    if (failed) return { verdict: 'killed', by: failed };
    const n = fast.length + slow.length;
    return { verdict: 'survived', by: n ? `${n} cases run it` : 'no case runs it' };
  }

  /** The tests of the command line and the proofs of diagnose, with a program without sanitizers, because they compute
   * much.  @returns {Promise<string>}  what failed, empty if nothing did */
  async #judgeProgram(path) {
    const program = `${HERE}/plumb`;
    if (!SHOWN.test(path)) return '';
    const made = await this.#compile(path, () => ['-O2', '-g'], 'build/native');
    if (!made || (await link('build/native', ['src', 'src/cli'], made, program)).failed) return '';
    const proofs = PROOFS.find(([paths]) => paths.test(path))?.[1] ?? [];
    const tests = [...proofs.map(file => ['python3', file, '--check', '--plumb', program]),
      ...['usage', 'files', 'reports', 'perplexity', 'trace', 'model']
        .map(name => [process.execPath, '--test-reporter=tap', `tests/cli/${name}.test.mjs`])];
    for (const [command, ...args] of tests) {
      const once = (which = program) => run(command, args.map(arg => arg === program ? which : arg), { seconds: 600,
        env: { ...env, PLUMB: JSON.stringify([which]), PYTHONPATH: 'build/setup/py' } });
      const { failed } = await once();
      // A busy machine may fail a test, too: it must fail twice with the mutant, and pass without it.
      if (failed && (await once()).failed && !(await once('build/native/plumb')).failed)
        return `${args.find(arg => arg.startsWith('tests/'))}: ${failed}`;
    }
    return '';
  }

  /** The program in which each allocation fails, as the Makefile links it, for lines near an allocation, its end or a
   * status.  @returns {Promise<string>}  what failed */
  async #judgeMemory(line, mutated, made) {
    const near = mutated.split('\n').slice(Math.max(0, line - 4), line + 3).join('\n');
    if (!/alloc|free|release|MEMORY|status|TRY/.test(near)) return '';
    const base = 'build/native-sanitize', wrapped = ['malloc', 'calloc', 'realloc', 'aligned_alloc', 'free'];
    const all = [...objects(base, 'src'), ...['wasm/exports', 'tests/faults/memory', 'tests/fixture', 'tests/harness']
      .map(name => `${base}/obj/${name}.o`)].map(object => made.get(object) ?? object);
    if ((await run(cc, ['-fsanitize=address,undefined', ...wrapped.map(name => `-Wl,--wrap=${name}`), ...all, '-lm',
      '-lpthread', '-o', `${HERE}/memory`], { seconds: 300 })).failed) return '';
    const { failed } = await run(`${HERE}/memory`, [], { env, seconds: 600 });
    return failed && `each allocation fails: ${failed}`;
  }

  /** For code that only wasm modules have: the C tests in Node. */
  async #judgeWasm(path, mutated) {
    const modules = ['tests', 'tests-mt', ...existsSync('build/emcc/tests-mt-relaxed.wasm') ? ['tests-mt-relaxed'] : []]
      .map(name => `build/emcc/${name}.wasm`);
    const make = () => run('make', ['-s', '-j2', ...modules], { seconds: 900 });
    if ((await make()).failed) throw new Error('the C tests cannot be built for Node');
    const before = modules.map(name => readFileSync(name)), original = readFileSync(path);
    writeFileSync(path, mutated);
    try {
      if ((await make()).failed) return { verdict: 'invalid' };
      const changed = modules.filter((name, i) => !readFileSync(name).equals(before[i]));
      if (!changed.length) return { verdict: 'equivalent', by: 'the compilers make the same code of it' };
      for (const name of changed.filter(name => !name.includes('relaxed'))) {
        const { failed } = await run(process.execPath, ['tests/hosts/node.mjs', name], { seconds: 400 });
        if (failed) return { verdict: 'killed', by: `node: ${failed}` };
      }
      const relaxed = changed.find(name => name.includes('relaxed'));
      if (relaxed) {
        const once = () => run(process.execPath, ['tests/hosts/in-browser.mjs', 'chromium', relaxed], { seconds: 400 });
        // A browser may fail to start on a busy machine, so it must fail twice.
        const { failed } = await once();
        if (failed && (await once()).failed) return { verdict: 'killed', by: `chromium: ${failed}` };
      }
      return { verdict: 'survived', by: 'only wasm modules have it' };
    } finally {
      writeFileSync(path, original);
    }
  }
}
