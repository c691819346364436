/** Firefox for the tests, headless, driven through WebDriver BiDi by puppeteer-core. */
import { launch } from 'puppeteer-core';
import { programOf } from './chrome.mjs';

/** The browser's path: $FIREFOX, or the first of the usual names on PATH. */
export const firefoxPath = () => programOf(process.env.FIREFOX ? [process.env.FIREFOX] : ['firefox-esr', 'firefox'],
  'install Firefox, or set FIREFOX to its path');

/** @returns {Promise<import('./browser.mjs').Browser>} */
export async function launchFirefox() {
  const firefox = await launch({
    browser: 'firefox', executablePath: firefoxPath(), headless: true, timeout: 120000, protocolTimeout: 600000,
  });
  const [page = await firefox.newPage()] = await firefox.pages();
  page.setDefaultTimeout(60000);
  return {
    version: (await firefox.version()).replace('/', ' '),
    async open(url) { await page.goto(url); },
    evaluate: (run, value) => page.evaluate(run, value ?? null),
    type: (selector, text) => page.type(selector, text),
    click: selector => page.click(selector),
    close: () => firefox.close(),
  };
}
