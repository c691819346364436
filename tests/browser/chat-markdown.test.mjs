/** The chat page renders a model's output as Markdown, and as nothing else.  Hostile answers enter as imported
 * conversations, and piece by piece through the function that shows a growing answer. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { TINY, open, put, reload, screenshot, setUp, state } from './chat-page.mjs';

const where = await setUp([], { tree: true });
let page;
before(async () => {
  page = await open(where, `?model=${TINY}`, { permissions: ['clipboard-read', 'clipboard-write'] }, page =>
    page.addInitScript(() => {
      globalThis.alert = globalThis.hacked = () => { globalThis.ran = true; };
    }));
  await state(page, 'ready');
});
after(() => page.close());

const HOSTILE = [
  '<script>hacked()</script>', '<img src=x onerror=hacked()>', '<svg onload=hacked()><script>hacked()</script></svg>',
  '<iframe src="javascript:parent.hacked()" srcdoc="<script>parent.hacked()</script>"></iframe>',
  '[click](javascript:hacked())', '[click](JaVaScRiPt&colon;hacked())', '[click](java\nscript:hacked())',
  '[data](data:text/html,<script>hacked()</script>)', '[vb](vbscript:hacked)', '[file](file:///etc/passwd)',
  '![beacon](https://evil.example/beacon.png)', '![x](javascript:hacked())',
  '[![b](https://evil.example/b.png)](https://a.example)',
  '<style>body { display: none }</style>', '<link rel=stylesheet href=https://evil.example/x.css>',
  '<form id=composer action=https://evil.example><input name=body><button>send</button></form>',
  '<meta http-equiv=refresh content="0;url=https://evil.example">', '<base href=https://evil.example/>',
  '<math><mtext><table><mglyph><style><img src=x onerror=hacked()></style></mglyph></table></mtext></math>',
  '<a id=prompt name=prompt>clobbered</a><img name=getElementById>',
  '<template><img src=x onerror=hacked()></template>',
  '<details open ontoggle=hacked()>', '<video src=https://evil.example/v onerror=hacked()></video>',
  '<object data="javascript:hacked()"></object><embed src=https://evil.example/e>',
  '```"><img src=x onerror=hacked()>\ncode\n```', '```js onload=hacked()\n</code></pre><script>hacked()</script>\n```',
  '<div style="position:fixed;inset:0">over all</div>', '<https://evil.example/"onmouseover="hacked()>',
  '[a](<https://a.example/" onmouseover="hacked()>)', '| a |\n|---|\n| <img src=x onerror=hacked()> |',
  '- <svg/onload=hacked()>\n  1. [x](javascript:hacked())', '> <script>hacked()\n> </script>',
  '# <img src=x onerror=hacked()>',
  '<noscript><p title="</noscript><img src=x onerror=hacked()>">', '&lt;script&gt;hacked()&lt;/script&gt;',
  '<!--><img src=x onerror=hacked()>-->', '<![CDATA[<img src=x onerror=hacked()>]]>',
  '<xmp><img src=x onerror=hacked()></xmp>',
];
const ALLOWED = ['A', 'BLOCKQUOTE', 'BR', 'BUTTON', 'CODE', 'DEL', 'DIV', 'EM', 'H3', 'H4', 'H5', 'H6', 'HR', 'LI',
  'OL', 'P', 'PRE', 'SPAN', 'STRONG', 'TABLE', 'TBODY', 'TD', 'TH', 'THEAD', 'TR', 'UL'];

/** Elements and attributes that no text may have added. @param {string} selector */
const strange = selector => page.evaluate(([selector, allowed]) => {
  const found = [];
  for (const one of document.querySelectorAll(`${selector} *`)) {
    if (!allowed.includes(one.tagName)) found.push(one.outerHTML.slice(0, 80));
    for (const { name, value } of one.attributes) {
      if (/^on|^style$|^id$|^name$|^src|^action$|^form/.test(name)) found.push(`${one.tagName} ${name}=${value}`);
      if (name === 'href' && !/^(https?|mailto):/.test(value)) found.push(`href=${value}`);
    }
    if (one.tagName === 'A' && !(one.target === '_blank' && /noopener/.test(one.rel) && /noreferrer/.test(one.rel))) {
      found.push(one.outerHTML);
    }
  }
  return found;
}, [selector, ALLOWED]);

test('an imported hostile conversation runs no script, loads nothing and changes nothing', async () => {
  await put(page, [{ title: '<img src=x onerror=hacked()>', messages: HOSTILE.flatMap((content, i) =>
    [{ role: 'user', content: `${i}: ${content}` }, { role: 'assistant', content }]) }]);
  assert.equal(await page.locator('#log > li').count(), 2 * HOSTILE.length);
  assert.deepEqual(await strange('#log .text'), []);
  assert.equal(await page.locator('#log img, #log script, #log style, #log form, #log iframe, #chats img').count(), 0);
  const links = page.locator('#log .text a');
  const all = await links.evaluateAll(all => all.map(one => one.getAttribute('href')));
  assert.ok(all.length >= 3, 'harmless links are there');
  for (const href of all) {
    assert.match(href, /^https:\/\/(evil|a)\.example(\/|$)/);
  }
  await page.waitForTimeout(300);
  assert.equal(await page.evaluate(() => globalThis.ran), undefined);
  assert.deepEqual(page.problems, []);
  assert.ok(await page.isVisible('#prompt'));
  assert.equal(await page.evaluate(() => document.getElementById('prompt').tagName), 'TEXTAREA');
});

test('images are shown as links, so reading an answer contacts no server', async () => {
  const image = page.locator('#log a[href="https://evil.example/beacon.png"]');
  assert.equal(await image.textContent(), 'beacon');
});

test('hostile text is also harmless while it grows by one character and when it is cut at any place', async () => {
  await page.evaluate(() => document.body.insertAdjacentHTML('beforeend', '<div id="growing"></div>'));
  for (const text of [...HOSTILE, HOSTILE.join('\n\n')]) {
    const step = text.length > 500 ? 7 : 1;
    const found = await page.evaluate(async ([text, step]) => {
      const { Markdown } = await import('/web/chat/conversation/markdown.js');
      const box = document.querySelector('#growing');
      box.replaceChildren();
      const markdown = new Markdown(box);
      for (let i = 1; i < text.length; i += step) {
        markdown.show(text.slice(0, i));
        const bad = box.querySelector('script, img, svg, iframe, style, form, meta, math, [onerror], [onload]');
        if (bad) return bad.outerHTML;
      }
      markdown.show(text);
    }, [text, step]);
    assert.equal(found, undefined);
    assert.deepEqual(await strange('#growing'), [], text);
  }
  assert.equal(await page.evaluate(() => globalThis.ran), undefined);
  assert.deepEqual(page.problems, []);
  await page.evaluate(() => document.querySelector('#growing').remove());
});

const TEXT = `# Title

Some *text* with \`code\`, **bold** and [a link](https://example.com/x).
Its second line.

1. one

2. two
   - nested

   \`\`\`sh
   ls
   \`\`\`
- [x] done
- [ ] not yet

| a | b |
|---|:-:|
| 1 | 2 |

\`\`\`python
def f():

    return 1
\`\`\`

> quoted
> twice

Last paragraph
---
end`;

test('a text that grows in any steps ends with the same rendering as the whole text at once', async () => {
  const all = await page.evaluate(async text => {
    const { Markdown } = await import('/web/chat/conversation/markdown.js');
    const grown = steps => {
      const box = document.createElement('div');
      const markdown = new Markdown(box);
      for (let i = steps; i < text.length; i += steps) markdown.show(text.slice(0, i));
      markdown.show(text);
      return box.innerHTML;
    };
    return [grown(text.length), ...[1, 2, 3, 5, 8, 13, 50].map(grown)];
  }, TEXT);
  for (const other of all.slice(1)) assert.equal(other, all[0]);
  const [whole] = all;
  assert.match(whole, /<h3>Title<\/h3>/);
  assert.match(whole, /Some <em>text<\/em> with <code>code<\/code>, <strong>bold<\/strong>.*<br>\s*Its second line/s);
  assert.match(whole,
    /<a href="https:\/\/example.com\/x" target="_blank" rel="noopener noreferrer nofollow">a link<\/a>/);
  assert.match(whole, /<td>1<\/td>\s*<td align="center">2<\/td>/);
  assert.match(whole, /☑ .*done/s);
});

test('code that grows after other blocks is shown once, and the other blocks stay', async () => {
  const wrong = await page.evaluate(async () => {
    const { Markdown } = await import('/web/chat/conversation/markdown.js');
    const text = 'Before it.\n\n- one\n- two\n\n```js\nlet a = 1;\nlet b = 2;\n', fence = text.indexOf('let');
    const show = (markdown, box, end) => {
      markdown.show(text.slice(0, end));
      return box.innerHTML;
    };
    const box = document.createElement('div'), markdown = new Markdown(box), wrong = [];
    for (let end = 1; end <= text.length; end++) {
      const fresh = document.createElement('div');
      const found = show(markdown, box, end), expected = show(new Markdown(fresh), fresh, end);
      if (end > fence && found !== expected) wrong.push([end, found, expected]);
    }
    return wrong;
  });
  assert.deepEqual(wrong, []);
});

test('headings begin at level three and skip no level, however the text grows', async () => {
  const text = '### A\n\na\n\n##### B\n\nb\n\n### C\n\nc\n\n# D\n\nd\n\n## E\n\ne\n\n### F\n\nf\n\n###### G\n';
  const all = await page.evaluate(async text => {
    const { Markdown } = await import('/web/chat/conversation/markdown.js');
    return [1, 4, text.length].map(step => {
      const box = document.createElement('div'), markdown = new Markdown(box);
      for (let i = step; i < text.length; i += step) markdown.show(text.slice(0, i));
      markdown.show(text);
      return [...box.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(one => one.tagName + one.textContent).join(' ');
    });
  }, text);
  for (const headings of all) assert.equal(headings, 'H3A H4B H3C H3D H4E H5F H6G');
});

test('blocks before the last two are not updated while a text grows', async () => {
  const { touched, changes, blocks } = await page.evaluate(async () => {
    const { Markdown } = await import('/web/chat/conversation/markdown.js');
    const box = document.createElement('div');
    const markdown = new Markdown(box), touched = [];
    let text = '', changes = 0;
    const observer = new MutationObserver(() => {});
    observer.observe(box, { subtree: true, childList: true, characterData: true, attributes: true });
    for (let i = 0; i < 50; i++) {
      for (const piece of ['Paragraph ', `${i}\n\n`]) {
        const settled = [...box.children].slice(0, -2);
        markdown.show(text += piece);
        for (const { target, removedNodes } of observer.takeRecords()) {
          changes++;
          const bad = settled.find(block => block.contains(target) || [...removedNodes].includes(block));
          if (bad) touched.push(`${bad.textContent}, behind ${text.length} characters`);
        }
      }
    }
    return { touched, changes, blocks: box.children.length };
  });
  assert.deepEqual([touched, blocks], [[], 50]);
  assert.ok(changes >= 50, `${changes} changes were seen`);
});

test('rendering a growing text parses at most its last three blocks', async () => {
  const most = await page.evaluate(async () => {
    const { Markdown } = await import('/web/chat/conversation/markdown.js');
    const { default: { prototype } } = await import('/web/dist/vendor/markdown-it/markdown-it.esm.min.mjs');
    const { parse } = prototype;
    let most = 0;
    prototype.parse = function (text, env) {
      most = Math.max(most, text.length);
      return parse.call(this, text, env);
    };
    const markdown = new Markdown(document.createElement('div'));
    const text = Array.from({ length: 100 }, (_, i) => `Paragraph ${String(i).padStart(3, '0')}\n\n`).join('');
    for (let i = 5; i <= text.length; i += 5) markdown.show(text.slice(0, i));
    prototype.parse = parse;
    return most;
  });
  const block = 'Paragraph 000\n\n'.length;
  assert.ok(most >= block && most <= 3 * block, `${most} characters, of blocks of ${block}`);
});

test('Markdown that is nested too deeply or too long is shown as plain text', async () => {
  const whole = await page.evaluate(async () => {
    const { Markdown } = await import('/web/chat/conversation/markdown.js');
    const texts = ['>'.repeat(15000), '['.repeat(15000), '- '.repeat(5000), 'a'.repeat(100000), '*a '.repeat(6000)];
    return texts.map(text => {
      const box = document.createElement('div');
      new Markdown(box).show(text);
      const shown = box.textContent.replace(/\s/g, '');
      const same = shown === (text.startsWith('-') ? '' : text.replace(/\s/g, ''));   // a bullet is not text
      return same && box.childNodes.length > 0 || [shown.slice(0, 40), shown.length];
    });
  });
  assert.deepEqual(whole, whole.map(() => true));
  assert.deepEqual(page.problems, []);
});

test('a conversation with a hostile answer of 78 kB opens, also after a reload, and can be deleted', async () => {
  const hostile = '*a_'.repeat(26000);
  await put(page, [{ title: 'Hostile', messages: [{ role: 'user', content: 'hi' },
    { role: 'assistant', content: hostile }] }]);
  for (const again of [false, true]) {
    if (again) await reload(page);
    await page.waitForFunction(text => document.querySelector('#log .assistant .text')?.textContent === text, hostile);
  }
  await page.locator('#chats li', { hasText: 'Hostile' }).getByRole('button', { name: /^Delete/ }).click();
  await page.waitForFunction(() => !document.querySelector('#log .assistant'));
  assert.ok(!await page.locator('#chats li', { hasText: 'Hostile' }).count());
  await state(page, 'ready');
});

test('a JSON answer of 100 kB is shown as text: a tree of it would be too large', async () => {
  const content = `[${`[${'0,'.repeat(400)}0],`.repeat(120)}0]`;
  await put(page, [{ messages: [{ role: 'user', content: 'JSON' }, { role: 'assistant', content, json: true }] }]);
  await page.waitForFunction(text => document.querySelector('#log .assistant pre')?.textContent === text, content);
  assert.equal(await page.locator('#log .tree li').count(), 0);
});

// An address without a host would lead to a place of the page itself.
test('a link or an image that does not lead to another site is shown as it was written', async () => {
  const links = await page.evaluate(async () => {
    const { Markdown } = await import('/web/chat/conversation/markdown.js');
    const addresses = ['<>', '#', '#a', '?a', 'a', '/a', '//a.example', 'http:', 'https:a', 'https:///a', 'mailto:'];
    return addresses.flatMap(address =>
      [`[text](${address})`, `![text](${address})`, `[text][r]\n[r]: ${address}`, `text[^1]\n[^1]: ${address}`])
      .map(text => {
        const box = document.createElement('div');
        new Markdown(box).show(text);
        return [text, box.querySelectorAll('a').length, box.textContent.trim()];
      });
  });
  assert.deepEqual(links, links.map(([text]) => [text, 0, text.trim()]));
  const empty = await page.evaluate(async () => {
    const { Markdown } = await import('/web/chat/conversation/markdown.js');
    const box = document.createElement('div');
    new Markdown(box).show('[text]() ![text]()');
    return box.innerHTML;
  });
  assert.equal(empty, '<p>text text</p>\n');
});

test('LaTeX is shown as it was written, in text, in lines of its own and while it grows', async () => {
  const formulas = ['$E = m_a c_b^2$', '\\(a^2 * b_1 * c_2\\)', '\\[x_{1}\\,y_{2}\\]', '$$a \\\\ b$$', '\\(\\{a\\}\\)',
    '$\\int_0^1 x^2\\,dx = \\frac{1}{3}$', '$\\text{costs \\$5}$'];
  const blocks = ['\\[\nx = a \\\\\n+ b_1 * c_2\n- d*e\n\\]', '$$\n# a_1_2\n1. b\n=\n$$', '\\[ a_1 + b_1 \\]'];
  const others = ['It costs $5 or $10, *or* $20', 'between $5-$10', '\\$5 and \\$6', '\\\\(a\\\\)',
    '\\[ no *end*\n\na', 'a $$ no *end*'];
  const shown = await page.evaluate(async ([formulas, blocks, others]) => {
    const { Markdown } = await import('/web/chat/conversation/markdown.js');
    const textOf = (text, step) => {
      const box = document.createElement('div'), markdown = new Markdown(box);
      for (let i = step; i < text.length; i += step) markdown.show(text.slice(0, i));
      markdown.show(text);
      for (const br of box.querySelectorAll('br')) br.replaceWith('\n');
      return [...box.childNodes].map(node => node.textContent.trim()).join('\n').replace(/\n+/g, '\n').trim();
    };
    return [1, 1000].map(step => [
      formulas.map(one => textOf(`Then *so* ${one} holds, and ${one}.`, step)),
      blocks.map(one => textOf(`Then:\n${one}\nand *so* on`, step)), others.map(one => textOf(one, step))]);
  }, [formulas, blocks, others]);
  for (const [inText, inLines, plain] of shown) {
    assert.deepEqual(inText, formulas.map(one => `Then so ${one} holds, and ${one}.`));
    assert.deepEqual(inLines, blocks.map(one => `Then:\n${one}\nand so on`));
    assert.deepEqual(plain, ['It costs $5 or $10, or $20', 'between $5-$10', '$5 and $6', '\\(a\\)', '[ no end\na',
      'a $$ no end']);
  }
});

test('a code block shows its language and a copy button; messages are copied as Markdown', async () => {
  await put(page, [{ messages: [{ role: 'user', content: 'show me' }, { role: 'assistant', content: TEXT }] }]);
  const block = page.locator('#log .code').last();
  assert.equal(await block.locator('span').first().textContent(), 'python');
  await block.getByRole('button', { name: 'Copy the code' }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'def f():\n\n    return 1');
  await page.locator('#log > .assistant').getByRole('button', { name: 'Copy', exact: true }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), TEXT);
  await screenshot(page, 'markdown');
});
