/* Typesets formulas and highlights code, away from the page's thread: nobody knows how long the libraries take for
 * what a model writes, so the page ends this worker when it takes too long.  It loads a library when it needs it.
 *
 * Takes {id, kind, text, name}; answers {id, hasBegun: true} when the libraries are there, and then {id, html}. */

const VENDOR = new URL('../../dist/vendor/', import.meta.url);
/** What a formula may be: nothing that leads to an address or a file (trust), no endless macros, no huge sizes (in em).
 * "strict" is about style, not safety. */
const LIMITS = { trust: false, maxExpand: 200, maxSize: 20, strict: 'ignore', throwOnError: true, output: 'mathml' };

/** @typedef {(text: string, name: string) => string} Typesetter  name: "block" or "inline", or the language */
/** Load what a kind of text needs. @type {Record<string, (name: string) => Promise<any>>} */
const LOADERS = {
  formula: () => import(`${VENDOR}katex/katex.min.js`),
  async code(language) {
    const [{ default: hljs }, { default: grammar }] = await Promise.all(['core', language].map(name =>
      import(`${VENDOR}highlightjs-cdn-assets/${name}.min.js`)));
    if (!hljs.getLanguage(language)) hljs.registerLanguage(language, grammar);
    highlighter = hljs;
  },
};
/** @type {any} */
let highlighter;
/** @type {Record<string, Typesetter>} */
const TYPESETTERS = {
  formula: (text, name) => /** @type {any} */ (globalThis).katex.renderToString(text,
    { ...LIMITS, displayMode: name === 'block' }),
  code: (text, language) => highlighter.highlight(text, { language, ignoreIllegals: true }).value,
};

addEventListener('message', async ({ data: { id, kind, text, name } }) => {
  let html = '';
  try {
    await LOADERS[kind](name);
    postMessage({ id, hasBegun: true });
    html = TYPESETTERS[kind](text, name);
  } catch {
    // It is no formula, or the library could not be loaded: the text stays as it was written.
  }
  postMessage({ id, html });
});
