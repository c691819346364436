/* Whether the search in documents (web/chat/documents) finds the places that answer questions, in 40 documents that
 * others wrote: licences, READMEs, tables, code, PDFs of one and of two columns, and 10 MB of notes.  For each document
 * it prints at which rank the place is found by words (BM25), by meaning (vectors of MiniLM) and by both, and whether a
 * question that the document does not answer is said to have no answer in it.
 *
 *   node tests/bench/documents.mjs [TEXT]          only documents whose source contains TEXT
 *   node tests/bench/documents.mjs --answers [TEXT]  asks Qwen2.5-Coder 0.5B with the passages that were found, as the
 *                                                  page does, and prints whether it names or quotes the right one
 *   node tests/bench/documents.mjs --page [TEXT]   attaches them in the chat page, in Chromium, asks, opens the first
 *                                                  place, and prints the longest task of the page's own thread
 *
 * It needs Debian's licences and documents, Python 3.11, what `tools/setup.sh bench` installs, and
 * models/all-MiniLM-L6-v2.Q8_0.gguf.  It takes a quarter of an hour. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { usedIn, withDocuments } from '../../web/chat/documents/given.js';
import { readPdf } from '../../web/chat/documents/pdf.js';
import { Search } from '../../web/chat/documents/search.js';
import { textOf } from '../../web/chat/documents/text.js';
import { Plumb } from '../../web/node/index.js';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const FOLDERS = { L: '/usr/share/common-licenses', N: `${root}node_modules`, P: '/usr/lib/python3.11',
  D: '/usr/share/doc', Z: '/usr/share' };
const NOTES_BYTES = 10e6, BEST = 4;
const { documents } = JSON.parse(readFileSync(new URL('documents.json', import.meta.url), 'utf8'));

/** The path of a source such as "L/GPL-3". @param {string} source */
const pathOf = source => source.replace(/^[A-Z](?=\/)/, letter => FOLDERS[letter]);

/** The bytes of a document. @param {{source: string, columns?: number}} document */
function bytesOf({ source, columns }) {
  if (source === 'notes') return notes();
  const path = pathOf(source), bytes = readFileSync(path);
  if (!columns) return path.endsWith('.gz') ? gunzipSync(bytes) : bytes;
  mkdirSync(`${root}build/documents`, { recursive: true });
  const pdf = `${root}build/documents/${source.replaceAll('/', '-')}.pdf`;
  if (!existsSync(pdf)) {
    execFileSync('python3', [fileURLToPath(new URL('documents_pdf.py', import.meta.url)), path, pdf, String(columns)],
      { env: { ...process.env, PYTHONPATH: `${root}build/setup/py` } });
  }
  return readFileSync(pdf);
}

/** The text of a document, by the code of the page. @param {{source: string, columns?: number}} document */
async function textOfDocument(document) {
  const bytes = new Uint8Array(bytesOf(document));
  return document.columns ? (await readPdf(bytes)).text : textOf(bytes);
}

/** Python's library and the READMEs of npm packages, one after the other, up to 10 MB. */
function notes() {
  let all = '';
  const files = readdirSync(FOLDERS.P).filter(name => name.endsWith('.py')).sort().map(name => join(FOLDERS.P, name));
  for (const name of readdirSync(FOLDERS.N).sort()) files.push(join(FOLDERS.N, name, 'README.md'));
  for (const name of readdirSync(join(FOLDERS.P, 'test')).sort()) files.push(join(FOLDERS.P, 'test', name));
  for (const file of files) {
    if (all.length > NOTES_BYTES) break;
    if (existsSync(file) && statSync(file).isFile()) all += `${readFileSync(file, 'utf8')}\n\n`;
  }
  return Buffer.from(all.slice(0, NOTES_BYTES));
}

/** What both texts are compared as: PDFs change white space and hyphens. @param {string} text */
const plain = text => text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');

/** @param {import('../../web/chat/documents/search.js').Found[]} found @param {string} place */
const rankOf = (found, place) => found.findIndex(({ text }) => plain(text).includes(plain(place))) + 1;

async function main() {
  // Node has none of these classes, which pdf.js names but does not need for text.
  for (const name of ['DOMMatrix', 'Path2D', 'ImageData']) globalThis[name] ??= class {};
  const option = process.argv[2]?.startsWith('--') ? process.argv[2] : '', text = process.argv[option ? 3 : 2] ?? '';
  const wanted = documents.filter(({ source }) => source.includes(text));
  if (option === '--page') return inPage(wanted);
  if (option === '--answers') return answers(wanted);
  const model = await Plumb.load(`${root}models/all-MiniLM-L6-v2.Q8_0.gguf`);
  const embed = texts => model.embed(texts, { truncate: true });
  const hits = { words: 0, meaning: 0, both: 0 }, missing = { nowhere: [0, 0], beside: [0, 0] };
  let answered = 0;
  console.log('document                            passages  words meaning both  near   elsewhere');
  for (const { source, columns, question, place, nowhere, beside } of wanted) {
    const text = await textOfDocument({ source, columns });
    if (!plain(text).includes(plain(place))) throw new Error(`${source} has no “${place}”`);
    const search = new Search(), size = search.add(source, text);
    const ask = async question => {
      const candidates = search.candidates(question, [source]);
      const [vector, ...vectors] = await embed([question, ...candidates.map(({ text }) => text)]);
      candidates.forEach(({ i }, n) => search.setVector(i, vectors[n]));
      return by => search.find(question, [source], { vector, by, most: BEST });
    };
    const find = await ask(question), ranks = {};
    for (const by of ['words', 'meaning', 'both']) {
      ranks[by] = rankOf(find(by), place);
      if (ranks[by] > 0) hits[by]++;
    }
    const best = find('both'), said = best.some(({ near }) => near);
    if (said && ranks.both > 0) answered++;
    let other = '';
    for (const [kind, question] of Object.entries({ nowhere, beside })) {
      if (!question) continue;
      const found = (await ask(question))('both'), right = !found.some(({ near }) => near);
      missing[kind][1]++;
      if (right) missing[kind][0]++;
      other += `${right ? 'not found' : 'FOUND'} ${figures(found)} `;
    }
    console.log(`${`${source}${columns ? ` (${columns} col.)` : ''}`.padEnd(36)}${String(size).padStart(8)}`
      + `${['words', 'meaning', 'both'].map(by => String(ranks[by] || '-').padStart(7)).join('')}  `
      + `${said ? 'yes' : 'NO '} ${figures(best)}  ${other}`);
  }
  await model.close();
  const n = wanted.length;
  console.log(`\nin the best ${BEST}: words ${hits.words}, meaning ${hits.meaning}, both ${hits.both} of ${n}; `
    + `answered with the place: ${answered} of ${n}; “not found” for ${missing.nowhere[0]} of `
    + `${missing.nowhere[1]} questions on other subjects, ${missing.beside[0]} of ${missing.beside[1]} on the same `
    + 'subject');
}

/** @param {typeof documents} wanted */
async function answers(wanted) {
  const encoder = await Plumb.load(`${root}models/all-MiniLM-L6-v2.Q8_0.gguf`);
  const model = await Plumb.load(`${root}models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf`);
  const n = { found: 0, names: 0, quotes: 0, other: 0 };
  for (const { source, columns, question, place } of wanted) {
    const search = new Search();
    search.add(source, await textOfDocument({ source, columns }));
    const candidates = search.candidates(question, [source]);
    const [vector, ...vectors] = await encoder.embed([question, ...candidates.map(({ text }) => text)],
      { truncate: true });
    candidates.forEach(({ i }, k) => search.setVector(i, vectors[k]));
    const places = search.find(question, [source], { vector, by: 'both', most: BEST });
    const right = rankOf(places, place);
    if (right === 0 || places.every(({ near }) => !near)) {
      console.log(`${source.padEnd(36)} not found`);
      continue;
    }
    const content = withDocuments({ content: question, places: places.map(one => ({ ...one, name: source })) });
    const answer = await model.chat({ temperature: 0, maxTokens: 120 }).send(content);
    const used = usedIn(answer, places), quotes = usedIn(answer.replace(/\[\d+\]/g, ''), places).has(right);
    n.found++;
    if (used.has(right)) n.names++;
    else if (used.size > 0) n.other++;
    if (quotes) n.quotes++;
    console.log(`${source.padEnd(36)} passage ${right}, the answer uses ${[...used].join(', ') || 'none'}`
      + `${quotes ? ', quotes it' : ''}: ${JSON.stringify(answer.slice(0, 160))}`);
  }
  console.log(`\n${wanted.length} questions, the place found for ${n.found}: the answer names or quotes its passage `
    + `for ${n.names}, quotes it for ${n.quotes}, names only others for ${n.other}`);
  await model.close();
  await encoder.close();
}

/** Milliseconds of the longest task of the page's thread since the last call, and how many were longer than 50 ms. */
const tasksOf = page => page.evaluate(() => {
  const tasks = globalThis.tasks.splice(0);
  return [Math.max(0, ...tasks), tasks.length];
});

/** @param {typeof documents} wanted */
async function inPage(wanted) {
  const server = await serve({ root, home: '/web/chat/' }), browser = await launchChrome();
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  await page.addInitScript(() => {
    localStorage['plumb.settings'] = '{"seed":1,"maxTokens":8}';
    globalThis.tasks = [];
    new PerformanceObserver(list => globalThis.tasks.push(...list.getEntries().map(({ duration }) => duration)))
      .observe({ type: 'longtask' });
  });
  await page.goto(`${server.url}?model=/models/SmolLM2-135M-Instruct.Q4_1.gguf`);
  await page.waitForSelector('body[data-state=ready]');
  console.log('longest task, ms                    attached   asked   shown');
  const worst = [0, 0, 0];
  for (const document of wanted) {
    const name = `${document.source.split('/').at(-1)?.replace(/\.gz$/, '')}${document.columns ? '.pdf' : ''}`;
    if (await page.isEnabled('#new-chat')) await page.click('#new-chat');
    await tasksOf(page);
    // A file, as the bytes themselves would be decoded by the page's thread.
    const path = `${root}build/documents/attached/${name}`;
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, bytesOf(document));
    await page.setInputFiles('#attach-file', path);
    await page.waitForSelector('#attached li:not(:has(progress))');
    const times = [await tasksOf(page)];
    await page.fill('#prompt', document.question);
    await page.keyboard.press('Enter');
    const download = page.getByRole('button', { name: 'Download 25 MB' }), answered = page.waitForSelector(
      'body[data-state=ready] #log > .assistant:not([aria-busy])');
    await Promise.race([download.waitFor().then(() => download.click()), answered]);
    await answered;
    times.push(await tasksOf(page));
    const place = page.locator('.places button, #log .user .chips button').first();
    await place.click();
    await page.waitForSelector('#document[open]');
    await page.keyboard.press('Escape');
    times.push(await tasksOf(page));
    times.forEach(([longest], i) => { worst[i] = Math.max(worst[i], longest); });
    console.log(name.padEnd(36) + times.map(([longest, n]) => `${longest.toFixed(0)} (${n})`.padStart(8)).join(''));
  }
  console.log(`${wanted.length} documents: the longest tasks, ms: ${worst.map(one => one.toFixed(0)).join(', ')}`);
  await browser.close();
  await server.close();
}

/** The nearest cosine and coverage. */
const figures = found => `${Math.max(0, ...found.map(({ cosine = 0 }) => cosine)).toFixed(2)}/`
  + Math.max(0, ...found.map(({ coverage }) => coverage)).toFixed(2);

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
