/* The prompt library: texts that people send again and again, by name.  A few are built in; one's own are in local
 * storage, whose data is not trusted: what is not a prompt is left out. */
import { recall, remember } from '../dom.js';

/** @typedef {{name: string, text: string, isOwn?: boolean}} Prompt */

const KEY = 'prompts';
/** Upper bounds: on the prompts, and on the characters of one. */
const MOST = 500, LONGEST = 20000;
/** @type {Prompt[]} */
const BUILT_IN = [
  { name: 'explain', text: 'Explain this in simple words, with an example:\n\n' },
  { name: 'improve', text: 'Correct the spelling and grammar of this text, and change nothing else:\n\n' },
  { name: 'review', text: 'Review this code. Name mistakes first, then what could be simpler:\n\n' },
  { name: 'summarize', text: 'Summarize this text in a few sentences:\n\n' },
  { name: 'translate', text: 'Translate this text into English:\n\n' },
];

/** What is wrong with the name of a prompt, as a sentence; empty if nothing is. @param {string} name */
const problemOfName = name => /^[\p{L}\p{N}_-]{1,30}$/u.test(name) ? ''
  : 'A name has 1 to 30 letters, digits, hyphens and underscores.';

/** @returns {Prompt[]}  one's own, sorted by name */
function own() {
  const kept = recall(KEY);
  return (Array.isArray(kept) ? kept : []).filter(one => typeof one?.name === 'string'
    && problemOfName(one.name) === '' && typeof one.text === 'string' && one.text.length <= LONGEST)
    .slice(0, MOST).map(({ name, text }) => ({ name, text, isOwn: true }));
}

/** @param {Prompt} a @param {Prompt} b */
const byName = (a, b) => a.name < b.name ? -1 : 1;

/** All prompts, sorted by name.  One's own replaces a built-in one of the same name. @returns {Prompt[]} */
export function prompts() {
  return [...new Map([...BUILT_IN, ...own()].map(one => [one.name, one])).values()].sort(byName);
}

/** Keeps a prompt. @param {string} name @param {string} text @param {string} [old]  the name that it had
 * @returns {string}  why it cannot be kept, as a sentence; empty if it is */
export function keepPrompt(name, text, old = name) {
  const others = own().filter(one => one.name !== name && one.name !== old);
  const problem = problemOfName(name) || text.trim() === '' && 'The prompt has no text.'
    || text.length > LONGEST && `The prompt is longer than ${LONGEST} characters.`
    || others.length >= MOST && `There are ${MOST} prompts already.`;
  if (problem) return problem;
  remember(KEY, [...others, { name, text }].sort(byName));
  return own().some(one => one.name === name && one.text === text) ? '' : 'The browser cannot store it.';
}

/** @param {string} name */
export function removePrompt(name) {
  remember(KEY, own().filter(one => one.name !== name).map(({ text, ...one }) => ({ name: one.name, text })));
}
