/** Finds and starts the Chromium that the tests drive. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { chromium } from 'playwright-core';

/** The path of the first program that exists. @param {string[]} names  paths, or names to look for on PATH
 * @param {string} advice  what to do if there is none */
export function programOf(names, advice) {
  const folders = ['', ...(process.env.PATH ?? '').split(delimiter)];
  for (const name of names)
    for (const file of folders.map((folder) => join(folder, name)))
      try {
        accessSync(file, constants.X_OK);
        if (file.includes('/')) return file;
      } catch { /* not here */ }
  throw new Error(`no ${names.join(', ')} on PATH: ${advice}`);
}

/** $CHROME, or the first of some names on PATH. @param {string[]} names  before the usual ones */
const pathOf = (...names) => programOf(process.env.CHROME ? [process.env.CHROME]
  : [...names, 'chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'],
'install Chromium or Chrome, or set CHROME to its path');
/** The browser's path. */
export const chromePath = () => pathOf();
/** The path of the same browser without windows, in which pages take about a quarter less processor time, if it is
 * there; else the browser's. */
export const shellPath = () => pathOf('chromium-headless-shell');

/** Options of a headless browser that stays off the network. @param {string[]} flags  of its command line
 * @param {string} [executablePath] */
export const options = (flags = [], executablePath = chromePath()) => ({
  executablePath,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', ...flags],
});

/** How many milliseconds a test waits for what must come, however busy the machine is. */
const PATIENCE = 300000;

/** A browser whose contexts keep nothing on the disk.  It is the one that with-chrome.mjs has started, if any, unless
 * flags are given: closing it then closes only the contexts that were made here.
 * @param {string[]} [flags]  of its command line @returns {Promise<import('playwright-core').Browser>} */
export async function launchChrome(flags) {
  const browser = process.env.CHROME_SERVER && !flags
    ? await chromium.connectOverCDP(process.env.CHROME_SERVER, { isLocal: true })
    : await chromium.launch(options(flags));
  for (const name of ['newContext', 'newPage']) {
    const make = browser[name].bind(browser);
    browser[name] = async (given) => {
      const made = await make(given);
      made.setDefaultTimeout(PATIENCE);
      return made;
    };
  }
  return browser;
}

/** A browser with its own profile, which is on the disk until it is closed, like a user's.
 * @returns {Promise<import('playwright-core').BrowserContext>} */
export const launchProfile = () => chromium.launchPersistentContext('', options([]));
