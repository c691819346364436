/** The machine and the versions that were measured. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { arch, cpus, platform, release, totalmem } from 'node:os';
import { chromePath } from '../hosts/chrome.mjs';
import { wasmtime } from '../hosts/wasmtime.mjs';
import { NODE } from './engines.mjs';

const first = (command, ...args) => {
  try {
    return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim().split('\n')[0];
  } catch {
    return '';
  }
};
const json = (file) => JSON.parse(readFileSync(file, 'utf8'));

/** The vector extensions that matter to kernels. */
const FEATURES = /^(avx.*|sse4_2|fma|f16c|asimd(dp|hp)?|i8mm|sve2?)$/;

function machine() {
  const info = existsSync('/proc/cpuinfo') ? readFileSync('/proc/cpuinfo', 'utf8') : '';
  const flags = (/^(?:flags|Features)\s*:\s*(.*)$/m.exec(info)?.[1] ?? '').split(' ')
    .filter(flag => FEATURES.test(flag));
  return {
    cpu: cpus()[0].model.trim(), cores: cpus().length, memoryBytes: totalmem(), flags,
    system: `${platform()} ${release()} ${arch()}`,
  };
}

function versions() {
  const packages = json('tests/bench/package.json');
  const pinned = { ...packages.dependencies, ...packages.optionalDependencies };
  return {
    plumb: json('web/package.json').version,
    node: first(NODE, '--version').slice(1), 'node-on-path': first('node', '--version').slice(1),
    chromium: first(chromePath(), '--version').replace(/^\D*/, '').split(' ')[0],
    firefox: first('firefox-esr', '--version').replace(/^\D*/, ''),
    webkit: first('dpkg-query', '-W', '-f', '${Version}', 'webkit2gtk-driver').replace(/-.*/, ''),
    wasmtime: first(wasmtime(), '--version').replace(/^wasmtime /, '').split(' ')[0],
    'wllama-3': pinned['@wllama/wllama'], 'wllama-2': pinned['wllama-2'].replace(/.*@/, ''),
    'transformers.js': pinned['@huggingface/transformers'], 'web-llm': pinned['@mlc-ai/web-llm'],
    'llama.cpp': `0.5.0 (@node-llama-cpp ${pinned['@node-llama-cpp/linux-x64']})`,
    cc: first('cc', '--version'), emcc: first('emcc', '--version'),
  };
}

/** Sizes in bytes of the files that a user downloads. */
function modules() {
  const sizes = {};
  for (const name of readdirSync('web/dist')) {
    if (/^plumb(?!-cli).*\.wasm$/.test(name)) sizes[`plumb: ${name}`] = statSync(`web/dist/${name}`).size;
  }
  const peers = {
    'wllama 3: wllama.wasm': '@wllama/wllama/esm/wasm/wllama.wasm',
    'wllama 2: single-thread/wllama.wasm': 'wllama-2/esm/single-thread/wllama.wasm',
    'wllama 2: multi-thread/wllama.wasm': 'wllama-2/esm/multi-thread/wllama.wasm',
  };
  for (const [name, path] of Object.entries(peers)) {
    const file = `tests/bench/node_modules/${path}`;
    if (existsSync(file)) sizes[name] = statSync(file).size;
  }
  return sizes;
}

/** @returns {{date: string, commit: string, machine: ReturnType<typeof machine>, versions: object, modules: object}} */
export function describe() {
  const commit = first('git', 'rev-parse', '--short=12', 'HEAD');
  const changed = first('git', 'status', '--porcelain', '--untracked-files=no') !== '';
  return {
    date: new Date().toISOString().slice(0, 10), commit: commit + (changed ? ' with changes' : ''),
    machine: machine(), versions: versions(), modules: modules(),
  };
}

/** "amd-epyc-2": the machine in a file name. */
export function slug({ cpu, cores }) {
  const name = cpu.replace(/\(.*?\)|processor|cpu|@.*|\d+-core/gi, ' ').toLowerCase().replace(/[^a-z0-9]+/g, '-');
  return `${name.replace(/^-|-$/g, '') || 'unknown'}-${cores}`;
}
