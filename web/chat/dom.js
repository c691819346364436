/* What the page's modules share: elements, numbers as text, and storage in the browser. */

/** An element of index.html that is known to exist.
 * @template {keyof HTMLElementTagNameMap} T @param {string} id @param {T} _tag
 * @returns {HTMLElementTagNameMap[T]} */
export const element = (id, _tag) => /** @type {any} */ (document.getElementById(id));

/** Makes an element. @template {keyof HTMLElementTagNameMap} T @param {T} tag
 * @param {Record<string, any>} [set]  properties; 'aria-...', 'data-...' and role are set as attributes
 * @param {...(Node | string)} children @returns {HTMLElementTagNameMap[T]} */
export function make(tag, set = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(set)) {
    if (/^(aria-|data-|role$)/.test(name)) made.setAttribute(name, value);
    else /** @type {any} */ (made)[name] = value;
  }
  made.append(...children);
  return made;
}

/** A symbol that index.html defines. @param {string} name */
export function icon(name) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg'), use = document.createElementNS(space, 'use');
  svg.setAttribute('aria-hidden', 'true');
  use.setAttribute('href', `#i-${name}`);
  svg.append(use);
  return svg;
}

/** A button with only a symbol. @param {string} symbol @param {string} label @param {() => void} onclick */
export const iconButton = (symbol, label, onclick) =>
  make('button', { type: 'button', className: 'icon', title: label, 'aria-label': label, onclick }, icon(symbol));

/** @param {string} text @param {string} [className] */
export const paragraph = (text, className = 'figures') => make('p', { className }, text);

/** What failed, why, and what to do. @param {ReturnType<typeof import('./explain.js').explain>} why
 * @param {...Node} more */
export const problem = ({ title, advice, detail }, ...more) => make('div', { className: 'problem' },
  make('p', {}, `${title}. ${advice}`), ...detail ? [paragraph(detail)] : [], ...more);

/** Moves the focus to the box in which the reader writes, if the page has one; not on a phone, whose keyboard would
 * cover the text. */
export function focusPrompt() {
  if (matchMedia('(pointer: fine)').matches) element('prompt', 'textarea')?.focus({ preventScroll: true });
}

/** Shows a sentence below those that are still shown.  With an action, it stays until the action is taken or it is
 * dismissed, so nobody has to hurry.  Otherwise it disappears after a while.
 * @param {string} text @param {string} [label] @param {() => void} [action]
 * @param {() => void} [dismissed]
 * @returns {() => void} removes it at once */
export function toast(text, label, action, dismissed) {
  const box = element('toast', 'div');
  for (const line of box.children) if (line.firstElementChild?.textContent === text) line.remove();
  const line = make('p', {}, make('span', {}, text));
  /** @param {(() => void) | undefined} then */
  const end = then => {
    line.remove();
    then?.();
    if (document.activeElement === document.body) focusPrompt();
  };
  if (label) {
    line.append(make('button', { type: 'button', onclick: () => end(action) }, label),
      iconButton('close', `Dismiss: ${text}`, () => end(dismissed)));
  } else {
    const fade = () => line.matches(':hover') ? setTimeout(fade, 1000) : line.remove();
    setTimeout(fade, 5000);
  }
  box.append(line);
  return () => line.remove();
}

/** Tells only screen readers. @param {string} text */
export function announce(text) {
  element('live', 'div').textContent = text;
}

/** @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast('Copied');
  } catch {
    toast('The browser does not allow copying');
  }
}

/** Downloads a text as a file. @param {string} name @param {string} type @param {string} text */
export function downloadText(name, type, text) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  make('a', { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

// ---- numbers and names as text ----

/** Such as "98.4 MB". @param {number} bytes */
export function size(bytes) {
  if (bytes < 1e6) return `${Math.ceil(bytes / 1e3)} kB`;
  return bytes < 1e9 ? `${megabytes(bytes)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
}

/** @param {number} bytes */
export const megabytes = bytes => (bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0);

/** @param {number} seconds */
export function duration(seconds) {
  const s = Math.ceil(seconds);
  return s < 90 ? `${s} s` : `${Math.round(s / 60)} min`;
}

/** Such as "2,048".  The first use of Intl would take 40 ms while a model gets ready. @param {number} n  whole */
export const integer = n => String(n).replace(/\B(?=(\d{3})+$)/g, ',');

/** @param {number} n  whole @param {string} noun */
export const count = (n, noun) => `${integer(n)} ${noun}${n === 1 ? '' : 's'}`;

/** What a context beyond that of the training means. @param {number} trained  tokens */
export const worseBeyond = trained =>
  `The model was trained for ${count(trained, 'token')}. Its answers get worse beyond that.`;

/** @param {(string | false | undefined)[]} parts */
export const dotted = parts => parts.filter(Boolean).join('  ·  ');

/** @param {string} url */
export function fileName(url) {
  const name = url.replace(/[?#].*$/s, '').split('/').at(-1) || url;
  try {
    return decodeURIComponent(name);
  } catch {
    return name;   // a % is not part of an escape, as in 100%.gguf
  }
}

/** The longest name that is shown. */
const LONGEST_NAME = 80;

/** A name from a file or a server as the page shows it: in one line, without characters that change the direction of
 * what follows or cannot be seen, and not too long. @param {unknown} name */
export function tidy(name) {
  const text = String(name).slice(0, 4 * LONGEST_NAME).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{DI}\s]+/gu, ' ').trim();
  return text.length > LONGEST_NAME ? `${text.slice(0, LONGEST_NAME - 1)}…` : text;
}

/** The name of a model. @param {Record<string, unknown>} metadata */
export function nameOf(metadata) {
  const base = metadata['general.basename'] ?? metadata['general.name'] ?? metadata['general.architecture'];
  return tidy([base, metadata['general.size_label']].filter(Boolean).join(' '));
}

// ---- storage in the browser, which may fail without harm ----

/** @param {string} key @returns {any}  undefined: there is no usable value */
export function recall(key) {
  try {
    return JSON.parse(localStorage.getItem(`plumb.${key}`) ?? 'null') ?? undefined;
  } catch {
    return undefined;
  }
}

/** @param {string} key @param {any} value  undefined: removes the value */
export function remember(key, value) {
  try {
    if (value === undefined) localStorage.removeItem(`plumb.${key}`);
    else localStorage.setItem(`plumb.${key}`, JSON.stringify(value));
  } catch {
    // Storage is blocked or full.
  }
}
