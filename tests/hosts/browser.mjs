/** One interface for the browsers of the tests, so that a test that needs no more runs in each of them. */
import { launchChrome } from './chrome.mjs';
import { launchFirefox } from './firefox.mjs';
import { launchWebKit } from './webkit.mjs';

/** @typedef {object} Browser  with one page
 * @property {string} version
 * @property {(url: string) => Promise<void>} open  leads the page there
 * @property {(run: (value: any) => any, value?: any) => Promise<any>} evaluate  runs a function in the page, which sees
 *   nothing but the page's globals and its argument; arguments and results are JSON
 * @property {(selector: string, text: string) => Promise<void>} type  into a field; '\n' is the Enter key
 * @property {(selector: string) => Promise<void>} click
 * @property {() => Promise<void>} close */

/** @returns {Promise<Browser>} */
async function launchChromium() {
  const chromium = await launchChrome(), page = await chromium.newPage();
  return {
    version: `Chromium ${chromium.version()}`,
    async open(url) { await page.goto(url); },
    evaluate: (run, value) => page.evaluate(run, value),
    async type(selector, text) {
      await page.focus(selector);
      await page.keyboard.type(text);
    },
    click: selector => page.click(selector),
    close: () => chromium.close(),
  };
}

/** @type {Record<string, (options?: object) => Promise<Browser>>} */
export const launch = { chromium: launchChromium, firefox: launchFirefox, webkit: launchWebKit };
