/** Formulas and code in answers: typeset by libraries that are loaded only then, and whatever a model writes, nothing
 * else than MathML and spans gets into the page.  Ground truth: the text as it was written, and lists of what MathML
 * may have. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { TINY, open, put, setUp, state } from './chat-page.mjs';

const where = await setUp(undefined, { tree: true });
let page;
/** The files that the page and its workers asked for. @type {string[]} */
const requests = [];
before(async () => {
  page = await open(where, `?model=${TINY}`, {}, page => {
    page.context().on('request', request => requests.push(request.url()));
    return page.addInitScript(() => { globalThis.hacked = () => { globalThis.ran = true; }; });
  });
  await state(page, 'ready');
});
after(() => page.close());
afterEach(() => assert.deepEqual(page.problems, []));

/** Shows an answer, and waits until its last formula, one that is added to its end, is typeset. */
async function shown(...texts) {
  await page.evaluate(async texts => {
    const { Markdown } = await import('/web/chat/conversation/markdown.js');
    document.querySelector('#boxes')?.remove();
    document.body.insertAdjacentHTML('beforeend', '<div id="boxes"></div>');
    for (const text of [...texts, '\\(the^{last}\\)']) {
      const box = document.createElement('div'), markdown = new Markdown(box);
      document.querySelector('#boxes').append(box);
      markdown.show(text);
      markdown.end();
    }
  }, texts);
  await page.waitForSelector('#boxes > :last-child math', { timeout: 60000 });
  return page.locator('#boxes > :not(:last-child)').evaluateAll(all => all.map(one => one.innerHTML));
}

test('an answer without formulas and known code loads no library; one with them loads what it needs', async () => {
  const isLibrary = url => /katex|highlight/.test(url);
  await put(page, [{ messages: [{ role: 'user', content: 'Show me' },
    { role: 'assistant', content: 'No *formula* for $5 or $10.\n\n```\nplain\n```\n\n```nolanguage\nx\n```' }] }]);
  assert.deepEqual(requests.filter(isLibrary), []);
  await put(page, [{ messages: [{ role: 'user', content: 'And now' },
    { role: 'assistant', content: 'So \\(a^2\\).\n\n```py\nif x: # why\n```' }] }]);
  await page.waitForSelector('#log math');
  await page.waitForSelector('#log .code [class*=comment]');
  assert.equal(await page.locator('#log .code code').textContent(), 'if x: # why');
  // The service worker may ask, too.
  assert.deepEqual([...new Set(requests.filter(isLibrary).map(url => url.replace(/.*\//, '')))].sort(),
    ['core.min.js', 'katex.min.js', 'python.min.js']);
});

test('each way to write a formula is typeset, prices and sentences are not', async () => {
  const [inline, block, own, dollars, letters, ...others] = await shown('\\(a^2\\)', 'So $$\\frac{1}{2}$$ it is',
    '\\[\nx\n= 1\n\\]', 'with $x_1$, $y$ and $\\alpha$.', '$\\mathbb{R}$ $\\mathbf{v}$ $\\mathcal{L}$',
    'from $5 to $10', '$HOME:$PATH', 'US$5 or A$6 or $7', 'the $profit of all$ firms', '`$x$`', 'a \\(b', '$x$5');
  assert.match(inline, /<math><semantics><mrow><msup><mi>a<\/mi><mn>2<\/mn><\/msup>/);
  assert.match(block, /<math display="block">.*<mfrac>/);
  assert.match(own, /<math display="block">/);
  assert.equal(dollars.match(/<math>/g).length, 3);
  for (const letter of 'ℝ𝐯ℒ') assert.ok(letters.includes(letter), letter);
  for (const other of others) assert.ok(!other.includes('<math'), other);
});

const HOSTILE = ['\\href{javascript:hacked()}{x}', '\\url{javascript:hacked()}',
  '\\includegraphics{https://evil.example/x.png}', '\\htmlStyle{position:fixed}{x}', '\\htmlId{prompt}{x}',
  '\\htmlClass{box}{x}', '\\htmlData{a=b}{x}', '\\text{<img src=x onerror=hacked()>}', '<script>hacked()</script>',
  '\\def\\a{\\a\\a}\\a', '\\def\\a#1{#1#1#1#1}\\a{\\a{\\a{\\a{\\a{\\a{\\a{x}}}}}}}', '\\rule{9999em}{9999em}',
  '\\color{url(https://evil.example)}{x}', '\\kern{99999em}x', '\\unicode{x}', '\\mathchoice', '\\frac', '}{', '\\\\',
  '&', '#', '%', '\\begin{matrix}', '\\verb|<b>|', '\\char"1F600', '\\newcommand{\\b}[9]{#9}\\b',
  `${'{'.repeat(1900)}`, `${'\\sqrt{'.repeat(300)}x${'}'.repeat(300)}`, `x${'^{x'.repeat(400)}${'}'.repeat(400)}`,
  `${'\\left('.repeat(200)}${'\\right)'.repeat(200)}`, '\\\u0000\u202e\ud800'];

test('hostile formulas and code add only MathML and spans, lead nowhere and load nothing', async () => {
  const code = ['</code><img src=x onerror=hacked()>', '"'.repeat(5000), '/*'.repeat(5000), '<'.repeat(5000),
    '`${'.repeat(3000), '('.repeat(9000), 'a'.repeat(19000), ' '.repeat(9000) + 'x'];
  const all = await shown(...HOSTILE.flatMap(one => [`\\(${one}\\)`, `$$${one}$$`]),
    ...['js', 'html', 'md', 'cpp', 'bash', 'php'].flatMap(name => code.map(one => `\`\`\`${name}\n${one}\n\`\`\``)));
  assert.equal(all.length, 2 * HOSTILE.length + 6 * code.length);
  const strange = await page.evaluate(() => {
    const found = new Set();
    for (const one of document.querySelectorAll('#boxes *')) {
      const { tagName } = one;
      if (!/^(P|BR|SPAN|DIV|PRE|CODE|BUTTON|EM|STRONG|math|semantics|m[a-z]+)$/.test(tagName)) found.add(tagName);
      for (const { name, value } of one.attributes) {
        if (/^(on|style|id|name|src|href|xlink|action)/.test(name) || /evil|javascript/.test(value)) found.add(name);
      }
    }
    return [...found];
  });
  assert.deepEqual(strange, []);
  assert.equal(await page.evaluate(() => globalThis.ran), undefined);
  assert.ok(requests.every(url => !url.includes('evil')));
  const { width, height } = await page.locator('#boxes').boundingBox();
  assert.ok(width < 3000 && height < 100000);
});

test('a formula or code that takes too long is left as it was written, and the next one is typeset', async () => {
  // A service worker would answer for the library.
  const other = await open(where, `?model=${TINY}`, {}, page =>
    page.route('**/katex.min.js', route => route.fulfill({ contentType: 'text/javascript',
      body: `globalThis.katex = { renderToString(text) { if (text === 'stop') for (;;);
        return '<math><mi>x</mi></math>'; } };` })));
  await state(other, 'ready');
  await put(other, [{ messages: [{ role: 'user', content: 'Endless' },
    { role: 'assistant', content: 'First \\(stop\\), then \\(go\\).' }] }]);
  await other.waitForSelector('#log math');
  assert.equal(await other.locator('#log .assistant .text p').textContent(), 'First \\(stop\\), then x.');
  await other.close();
});

test('a formula is typeset while the answer grows, once, and an open one waits; code is highlighted when it ends',
  async () => {
    const text = 'It is \\(a^2\\) and so \\[ \\frac{1}{2} \\] holds.\n\n```js\nlet a = 1;\n```\n\nEnd.';
    const seen = await page.evaluate(async text => {
      const { Markdown } = await import('/web/chat/conversation/markdown.js');
      const box = document.createElement('div'), markdown = new Markdown(box);
      document.querySelector('#boxes').replaceChildren(box);
      const counts = [];
      for (let i = 1; i <= text.length; i++) {
        markdown.show(text.slice(0, i));
        if (/\\\)$|\\\]$|`$/.test(text.slice(0, i))) await new Promise(resolve => setTimeout(resolve, 300));
        counts.push([box.querySelectorAll('math').length, box.querySelectorAll('.code code span').length]);
      }
      return counts;
    }, text);
    for (const [i, [math, spans]] of seen.entries()) {
      const before = seen[i - 1] ?? [0, 0];
      assert.ok(math >= before[0] && spans >= before[1], `at ${i}: what was typeset stays so`);
    }
    assert.deepEqual(seen[text.indexOf('```js') + 10], [2, 0]);
    assert.equal(seen.at(-1)[0], 2);
    assert.ok(seen.at(-1)[1] > 0);
  });

test('a megabyte of dollars or of open formulas is shown as text, at once', async () => {
  const all = await shown('$'.repeat(1e6), '$a'.repeat(5e5), '\\('.repeat(5e5), '$$\n'.repeat(3e5));
  for (const html of all) assert.ok(!html.includes('<math') && html.length > 8e5);
});
