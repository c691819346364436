/* Reads answers aloud, with a voice of this machine: the text is given to no service. */
import { toast } from '../dom.js';

/** Upper bound on the characters that are spoken at once: some browsers stop in the middle of a longer text. */
const LONGEST = 200;
/** Milliseconds after which a browser without a list of voices has none. */
const PATIENCE = 1000;

/** The answer that is read. @type {HTMLElement | undefined} */
let current;

/** Reads an answer, or ends reading it. @param {HTMLElement} item  the message in the page */
export async function readAloud(item) {
  const wasCurrent = current === item;
  stopReading();
  if (wasCurrent) return;
  current = item;
  const lang = navigator.language, voice = voiceFor(lang, await voices());
  if (current !== item) return;
  if (!voice) {
    stopReading();
    return void toast(`This machine has no voice for ${lang}. The system’s settings can add one.`);
  }
  item.classList.add('read-aloud');
  const pieces = piecesOf(textOf(item));
  pieces.forEach((piece, i) => {
    const spoken = new SpeechSynthesisUtterance(piece);
    Object.assign(spoken, { voice, lang: voice.lang });
    spoken.onend = spoken.onerror = () => {
      if (current === item && i === pieces.length - 1) stopReading();
    };
    speechSynthesis.speak(spoken);
  });
  if (pieces.length === 0) stopReading();
}

export function stopReading() {
  current?.classList.remove('read-aloud');
  current = undefined;
  globalThis.speechSynthesis?.cancel();
}

/** The voices, which some browsers know only after a while. @returns {Promise<SpeechSynthesisVoice[]>} */
async function voices() {
  const known = globalThis.speechSynthesis?.getVoices() ?? [];
  if (known.length > 0 || !globalThis.speechSynthesis) return known;
  await new Promise(resolve => {
    speechSynthesis.addEventListener('voiceschanged', resolve, { once: true });
    setTimeout(resolve, PATIENCE);
  });
  return speechSynthesis.getVoices();
}

/** A voice of this machine for a language, of the same country if there is one.
 * @param {string} lang @param {SpeechSynthesisVoice[]} all */
function voiceFor(lang, all) {
  const [language] = lang.split('-'), local = all.filter(({ localService }) => localService);
  const same = (/** @type {SpeechSynthesisVoice} */ voice) => voice.lang.replace('_', '-');
  return local.find(voice => same(voice) === lang) ?? local.find(voice => same(voice).split('-')[0] === language);
}

/** What is read of an answer: its text, without code and formulas. @param {HTMLElement} item */
function textOf(item) {
  const copy = /** @type {HTMLElement | undefined} */ (item.querySelector('.text')?.cloneNode(true));
  for (const part of copy?.querySelectorAll('pre, math, button') ?? []) part.remove();
  for (const part of copy?.querySelectorAll('p, li, h1, h2, h3, h4, h5, h6, td, th') ?? []) part.append('\n');
  return copy?.textContent ?? '';
}

/** A text in pieces that end with a sentence where that is possible. @param {string} text */
function piecesOf(text) {
  const sentences = text.split(/(?<=[.!?。！？])\s+|\n+/).map(part => part.trim()).filter(Boolean);
  return sentences.flatMap(part => part.match(new RegExp(`.{1,${LONGEST}}(?=\\s|$)|.{1,${LONGEST}}`, 'gsu')) ?? []);
}
