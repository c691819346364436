/* What the page's modules share: elements, words for numbers, and what the browser remembers for it. */

/** An element of index.html, which is there.
 * @template {keyof HTMLElementTagNameMap} T @param {string} id @param {T} _tag
 * @returns {HTMLElementTagNameMap[T]} */
export const element = (id, _tag) => /** @type {any} */ (document.getElementById(id));

/** A new element. @template {keyof HTMLElementTagNameMap} T @param {T} tag
 * @param {Record<string, any>} [set]  properties; 'aria-...', 'data-...' and role as attributes
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

/** A symbol of index.html. @param {string} name */
export function icon(name) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg'), use = document.createElementNS(space, 'use');
  svg.setAttribute('aria-hidden', 'true');
  use.setAttribute('href', `#i-${name}`);
  svg.append(use);
  return svg;
}

/** A button with a symbol alone. @param {string} symbol @param {string} label @param {() => void} onclick */
export const iconButton = (symbol, label, onclick) =>
  make('button', { type: 'button', className: 'icon', title: label, 'aria-label': label, onclick }, icon(symbol));

/** @param {string} text @param {string} [className] */
export const note = (text, className = 'figures') => make('p', { className }, text);

/** Shows a sentence for a while, with something to do about it.
 * @param {string} text @param {string} [label] @param {() => void} [action] */
export function toast(text, label, action) {
  const box = element('toast', 'div');
  clearTimeout(fading);
  box.replaceChildren(make('span', {}, text));
  if (label) {
    box.append(make('button', { type: 'button', onclick: () => {
      box.replaceChildren();
      action?.();
    } }, label));
  }
  fading = setTimeout(() => box.replaceChildren(), label ? 12000 : 5000);
}
/** @type {ReturnType<typeof setTimeout> | undefined} */
let fading;

/** Tells screen readers alone. @param {string} text */
export function announce(text) {
  element('live', 'div').textContent = text;
}

/** @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast('Copied');
  } catch {
    toast('The browser does not let this page copy');
  }
}

/** Hands a file to the reader. @param {string} name @param {string} type @param {string} text */
export function save(name, type, text) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  make('a', { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

// ---- words ----

/** "98.4 MB" @param {number} bytes */
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

/** @param {number} n @param {string} noun */
export const count = (n, noun) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;

/** @param {(string | false | undefined)[]} parts */
export const dotted = parts => parts.filter(Boolean).join('  ·  ');

/** @param {string} url */
export function fileName(url) {
  const name = url.replace(/[?#].*$/s, '').split('/').at(-1) || url;
  try {
    return decodeURIComponent(name);
  } catch {
    return name;   // a % that begins no byte, as in 100%.gguf
  }
}

// ---- what the browser remembers; a browser that does not let it is no failure ----

/** @param {string} key @returns {any}  undefined: nothing that makes sense */
export function recall(key) {
  try {
    return JSON.parse(localStorage.getItem(`plumb.${key}`) ?? 'null') ?? undefined;
  } catch {
    return undefined;
  }
}

/** @param {string} key @param {any} value  undefined: forget it */
export function remember(key, value) {
  try {
    if (value === undefined) localStorage.removeItem(`plumb.${key}`);
    else localStorage.setItem(`plumb.${key}`, JSON.stringify(value));
  } catch {
    // Blocked, or full.
  }
}
