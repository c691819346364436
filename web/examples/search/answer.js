/* Answers a question from the notes: passages are found by words and meaning, and a chat model, which is loaded for the
 * first question, answers from them.  The smallest model would invent facts, so a grammar lets it only quote a sentence
 * of them.  If nothing is near the question, no model is asked. */
import { QUOTE, withDocuments } from '../../chat/documents/given.js';
import { sentencesIn } from '../../chat/documents/search.js';
import { placesOf } from '../../chat/documents/shown.js';
import { announce, dotted, element, make, recall, remember } from '../../chat/dom.js';
import { explain } from '../../chat/explain.js';
import { OFFERED } from '../../chat/models/offered.js';
import { askAbout, isKept, SecondModel } from '../../chat/models/second-model.js';

/** @typedef {import('../../chat/documents/stored.js').Place} Place
 * @typedef {(digest: string, place?: Place) => void} Open */

/** The models that can answer: what they do, and whether they only quote. */
const MODELS = [{ ...OFFERED[0], about: 'quotes a sentence', quotes: true },
  { ...OFFERED[1], about: 'writes an answer', quotes: false }];
/** The key of the chosen model in local storage. */
const KEY = 'search.answers';
const NOT_FOUND = 'Not found in your notes.';
/** The most tokens of an answer, and the longest sentence that is quoted. */
const LONGEST = 300, MOST_QUOTED = 600;

export class Answers {
  #find;
  #open;
  #section = element('answer', 'section');
  #text = element('answer-text', 'p');
  #places = element('answer-places', 'div');
  #about = element('answer-about', 'span');
  #stop = element('answer-stop', 'button');
  #other = element('answer-model', 'button');
  /** @type {AbortController | undefined} */
  #running;
  #second = new SecondModel();

  /** @param {(question: string, signal: AbortSignal) => Promise<Place[]>} find  the places that may answer; none if
   * nothing is near @param {Open} open  shows a place */
  constructor(find, open) {
    this.#find = find;
    this.#open = open;
    this.#stop.addEventListener('click', () => this.#running?.abort());
    this.#other.addEventListener('click', () => {
      remember(KEY, undefined);
      void this.ask(element('answer-title', 'h2').textContent ?? '');
    });
  }

  /** Answers a question, and shows the answer. @param {string} question */
  async ask(question) {
    this.#running?.abort();
    const controller = this.#running = new AbortController(), { signal } = controller;
    this.#section.hidden = false;
    element('answer-title', 'h2').textContent = question;
    this.#text.replaceChildren();
    this.#places.replaceChildren();
    this.#show('Searching', true);
    try {
      const figures = await this.#answer(question, signal);
      if (controller !== this.#running) return;
      this.#show(figures, false);
      announce(this.#text.textContent ?? '');
    } catch (error) {
      if (controller !== this.#running) return;
      this.#second.failed(error);
      const { title, advice, detail } = explain(error);
      this.#show(signal.aborted ? 'Stopped' : dotted([`${title}. ${advice}`, detail]), false);
    }
  }

  /** Takes the answer away. */
  clear() {
    this.#running?.abort();
    this.#running = undefined;
    this.#section.hidden = true;
  }

  /** @param {string} about @param {boolean} isRunning */
  #show(about, isRunning) {
    this.#about.textContent = about;
    this.#stop.hidden = !isRunning;
    this.#other.hidden = isRunning || !this.#second.isLoaded;
    this.#section.setAttribute('aria-busy', String(isRunning));
  }

  /** Returns what is said of the answer. @param {string} question @param {AbortSignal} signal */
  async #answer(question, signal) {
    const places = await this.#find(question, signal);
    signal.throwIfAborted();
    if (places.length === 0) {
      this.#text.textContent = NOT_FOUND;
      return '';
    }
    this.#places.replaceChildren(...placesOf(places, '', this.#open, 'notes'));
    this.#show('', true);
    const { model, name, quotes } = await this.#model(signal), chat = model.chat({ contextEnd: 'trim' });
    this.#show(`${name} reads the passages`, true);
    let answer = '';
    for await (const piece of chat.send(withDocuments({ content: question, places }, quotes ? QUOTE : undefined),
      { temperature: 0, maxTokens: LONGEST, signal, ...quotes && { grammar: quotesOf(places) } })) {
      answer += piece;
      this.#text.replaceChildren(...linked(answer, places, this.#open));
    }
    signal.throwIfAborted();
    this.#places.replaceChildren(...placesOf(places, answer, this.#open, 'notes'));
    const { tokens = 0, decodeRate = 0, finishReason } = chat.lastStats ?? {};
    return dotted([name, tokens > 1 && `${decodeRate.toFixed(1)} tokens/s`,
      finishReason === 'length' && 'cut off at the longest answer']);
  }

  /** The model that the reader has chosen. @param {AbortSignal} signal */
  async #model(signal) {
    const where = { anchor: this.#text, signal };
    let wanted = MODELS.find(({ hub }) => hub === recall(KEY));
    if (!wanted || !this.#second.is(wanted) && !await isKept(wanted)) {
      wanted = await askAbout(where, 'Which model shall answer?', 'It is downloaded once, and runs in this tab. '
        + 'Nothing of your notes is sent.',
      MODELS.map(one => ({ text: `${one.name}, ${one.about}, ${one.size} MB`, value: one })));
      remember(KEY, wanted.hub);
    }
    return { ...wanted, model: await this.#second.load(wanted, where) };
  }
}

/** A grammar of answers that name the number of a passage and quote one sentence of it; not a heading if it has others.
 * @param {Place[]} places */
const quotesOf = places => `root ::= ${places.flatMap(({ text }, i) => {
  const all = sentencesIn(text).map(([start, end]) => text.slice(start, end).replace(/\s+/g, ' ').trim())
    .filter(Boolean);
  const whole = all.filter(sentence => /\p{P}$/u.test(sentence));
  return (whole.length > 0 ? whole : all).map(sentence =>
    JSON.stringify(`[${i + 1}] “${[...sentence.replace(/[\p{Cc}\p{Cs}]/gu, ' ')].slice(0, MOST_QUOTED).join('')}”`));
}).join(' | ')}`;

/** An answer whose numbers of passages, such as [1], show them. @param {string} answer @param {Place[]} places
 * @param {Open} open */
const linked = (answer, places, open) => answer.trimStart().split(/(\[\d{1,2}\])/).map(part => {
  const place = places[Number(/^\[(\d+)\]$/.exec(part)?.[1]) - 1];
  return place ? make('button', { type: 'button', title: `Show the place in ${place.name}`,
    onclick: () => open(place.digest, place) }, part) : part;
});
