/** WebKit for the tests: WebKitGTK's MiniBrowser on a display of its own (Xvfb), driven through WebKitWebDriver by the
 * few commands of the WebDriver protocol that the tests need. */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './port.mjs';

/** The browser's path: $WEBKIT, or where Debian puts it, which is in no folder of PATH. */
export function webkitPath() {
  if (process.env.WEBKIT) return process.env.WEBKIT;
  const found = readdirSync('/usr/lib').flatMap(triple => ['webkit2gtk-4.1', 'webkitgtk-6.0']
    .map(version => `/usr/lib/${triple}/${version}/MiniBrowser`)).find(path => existsSync(path));
  if (found) return found;
  throw new Error('no MiniBrowser of WebKitGTK below /usr/lib: install webkit2gtk-driver and xvfb, or set WEBKIT to '
    + 'its path');
}

/** Starts a program; `ended` rejects when it cannot run and when it ends.
 * @param {string} program @param {string[]} args @param {import('node:child_process').SpawnOptions} options */
function start(program, args, options) {
  const child = spawn(program, args, options);
  const ended = new Promise((_, reject) => {
    child.on('error', error => reject(new Error(`${program} cannot be run: ${error.message}`)));
    child.on('exit', (code, signal) => reject(new Error(`${program} ended with ${signal ?? code}`)));
  });
  ended.catch(() => {});
  return { child, ended };
}

/** An X server.  It picks a display number that is free and writes it to descriptor 3 once clients may connect. */
async function startDisplay() {
  const { child, ended } = start('Xvfb', ['-displayfd', '3', '-screen', '0', '1280x900x24', '-nolisten', 'tcp'],
    { stdio: ['ignore', 'ignore', 'ignore', 'pipe'] });
  const number = new Promise(resolve => child.stdio[3].once('data', data => resolve(String(data).trim())));
  return { name: `:${await Promise.race([number, ended])}`, child };
}

/** The name of an element in WebDriver's JSON. */
const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';
const ENTER = '\uE007';

/** @param {{sharedMemory?: boolean}} [options]  sharedMemory: switch SharedArrayBuffer on, which WebKitGTK 2.50 leaves
 *   off in every page (docs/browsers.md)
 * @returns {Promise<import('./browser.mjs').Browser>} */
export async function launchWebKit({ sharedMemory = false } = {}) {
  const path = webkitPath();
  const home = mkdtempSync(join(tmpdir(), 'plumb-webkit-'));
  const cache = join(home, 'cache');
  mkdirSync(cache);
  /** @type {import('node:child_process').ChildProcess[]} */
  const children = [];
  const stop = () => {
    for (const child of children.splice(0).reverse()) child.kill('SIGKILL');
    rmSync(home, { recursive: true, force: true, maxRetries: 10 });
  };
  process.once('exit', stop);
  try {
    const display = await startDisplay();
    children.push(display.child);
    const port = await freePort();
    const driver = start('WebKitWebDriver', [`--port=${port}`], {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: {
        ...process.env, DISPLAY: display.name, GDK_BACKEND: 'x11', LIBGL_ALWAYS_SOFTWARE: '1', NO_AT_BRIDGE: '1',
        MESA_SHADER_CACHE_DISABLE: '1', HOME: home, XDG_CACHE_HOME: cache, XDG_CONFIG_HOME: home, XDG_DATA_HOME: home,
        ...sharedMemory && { JSC_useSharedArrayBuffer: '1' },
      },
    });
    children.push(driver.child);

    const ask = async (method, path, body) => {
      const request = fetch(`http://127.0.0.1:${port}/session${path}`,
        { method, ...body && { body: JSON.stringify(body) } });
      const { value } = await (await Promise.race([request, driver.ended])).json();
      if (value?.error) throw new Error(`WebKitWebDriver: ${value.error}: ${value.message}`);
      return value;
    };
    await answers(`http://127.0.0.1:${port}/status`, driver.ended);
    const { sessionId, capabilities } = await ask('POST', '', { capabilities: { alwaysMatch: {
      'webkitgtk:browserOptions': { binary: path, args: ['--automation'] },
    } } });
    const command = (name, body) => ask('POST', `/${sessionId}/${name}`, body);
    await command('timeouts', { script: 600000, pageLoad: 60000 });
    const find = async selector => (await command('element', { using: 'css selector', value: selector }))[ELEMENT];
    return {
      version: `WebKitGTK ${capabilities.browserVersion}`,
      async open(url) { await command('url', { url }); },
      async evaluate(run, value) {
        const { result, error } = await command('execute/async', {
          script: `const done = arguments[1];
            (async value => (${run})(value))(arguments[0])
              .then(result => done({ result }), error => done({ error: String(error?.stack || error) }));`,
          args: [value ?? null],
        });
        if (error !== undefined) throw new Error(error);
        return result;
      },
      async type(selector, text) {
        await command(`element/${await find(selector)}/value`, { text: text.replaceAll('\n', ENTER) });
      },
      async click(selector) { await command(`element/${await find(selector)}/click`, {}); },
      async close() {
        await ask('DELETE', `/${sessionId}`).finally(stop);
      },
    };
  } catch (error) {
    stop();
    throw error;
  }
}

/** Waits until somebody answers there. @param {string} url @param {Promise<never>} ended */
async function answers(url, ended) {
  for (;;) {
    try {
      return await Promise.race([fetch(url), ended]);
    } catch (error) {
      if (error.cause?.code !== 'ECONNREFUSED') throw error;
      await new Promise(resolve => setTimeout(resolve, 20));
    }
  }
}
