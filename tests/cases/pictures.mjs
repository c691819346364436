/** Takes the pictures of docs/cases.md from the reports of `plumb diff --html` that cases.py left in build/cases: the
 * verdict and one section of each, in the light theme. */
import { mkdirSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { launchChrome } from '../hosts/chrome.mjs';

const root = new URL('../../', import.meta.url);
/** Name of the case -> what the section that tells most contains. */
const sections = { q4_k_m: '.map', q5_k_m: '.map', q6_k: '.map', q8_0: '.top', f16: '.chips', transposed: '.map' };
/** Upper bound on the bytes of a picture. */
const MOST = 150_000, WIDTH = 800;

mkdirSync(new URL('docs/cases/', root), { recursive: true });
const browser = await launchChrome();
const page = await browser.newPage({ viewport: { width: WIDTH, height: 600 }, deviceScaleFactor: 1.25,
  colorScheme: 'light' });
for (const [name, contents] of Object.entries(sections)) {
  await page.goto(String(new URL(`build/cases/${name}.html`, root)));
  const height = await page.evaluate(contents => {
    const shown = [...document.querySelectorAll('section')].find(section => section.querySelector(contents));
    for (const part of document.querySelectorAll('section, .sides, .facts, .next, .facts ~ .quiet')) {
      if (part !== shown && !shown.contains(part)) part.remove();
    }
    return Math.ceil(shown.getBoundingClientRect().bottom) + 24;
  }, contents);
  const path = fileURLToPath(new URL(`docs/cases/${name}.png`, root));
  await page.screenshot({ path, fullPage: true, clip: { x: 0, y: 0, width: WIDTH, height } });
  const { size } = statSync(path);
  if (size > MOST) throw new Error(`${path}: ${size} bytes, more than ${MOST}`);
  console.log(`docs/cases/${name}.png: ${size} bytes`);
}
await browser.close();
