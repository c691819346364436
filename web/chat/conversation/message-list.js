/* The messages of one conversation. */
import { announce, element, focusPrompt, make } from '../dom.js';
import { Markdown, throttled } from './markdown.js';
import { entry } from './message-entry.js';
import { Reading } from './reading.js';
import { reasoningOf } from '../tools/steps.js';

/** @typedef {import('./conversation-store.js').Message} Message */

/** The view follows a growing text if it is within this many pixels of its end. */
const NEAR = 60;
/** In heights of the view: messages farther from the end are laid out only when the reader comes near them. */
const FAR = 4;
/** Milliseconds after which a task makes no further messages: a long conversation takes seconds. */
const SLICE = 8;

export class MessageList {
  #list = element('log', 'ol');
  #scroll = element('scroll', 'main');
  /** @type {Message[]} */
  messages = [];
  /** Index of the first message that is shown; those before it are added later. */
  #first = 0;
  /** Index of the first message after those that are shown; those from it on are added later. */
  #next = 0;
  /** When earlier and later messages are added. @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #later;

  /** @param {import('./message-entry.js').Actions} actions */
  constructor(actions) {
    this.actions = actions;
    // The first rendering takes 20 ms, or 100 ms while an engine uses all processors.  So it is done now, before that.
    setTimeout(() => new Markdown(make('div')).show('*Warm* up\n\n- `now`\n'));
  }

  /** @param {Message[]} all  add and begin refer to messages of this array */
  show(all) {
    clearTimeout(this.#timer);
    clearTimeout(this.#later);
    this.#list.replaceChildren();
    this.messages = all;
    this.#first = this.#next = all.length;
    this.#showEarlier();
  }

  /** Shows some of the messages before those that are shown, and then, one task later, the ones before them.  So the
   * reader sees the end at once, and what is in view does not move. */
  #showEarlier() {
    const scroll = this.#scroll, fromEnd = scroll.scrollHeight - scroll.scrollTop, end = performance.now() + SLICE;
    const far = scroll.scrollHeight > FAR * scroll.clientHeight, items = [];
    while (this.#first > 0 && (items.length === 0 || performance.now() < end)) {
      const { item } = entry(this, this.messages[--this.#first], this.#first);
      item.classList.toggle('far', far);
      items.unshift(item);
    }
    this.#list.prepend(...items);
    scroll.scrollTop = scroll.scrollHeight - fromEnd;
    this.#timer = this.#first > 0 ? setTimeout(() => this.#showEarlier()) : undefined;
  }

  /** Shows the messages from index on again, after they have changed; those that take too long are added in later
   * tasks.  The focus stays at the versions of the first one. @param {number} index */
  showFrom(index) {
    const buttons = () =>
      [...this.#list.children[index - this.#first]?.querySelectorAll('.versions button') ?? []];
    const at = buttons().findIndex(one => one === document.activeElement);
    this.cut(index);
    this.#showLater();
    if (at < 0) return;
    const [first, last] = /** @type {HTMLButtonElement[]} */ (buttons());
    const [wanted, other] = at === 0 ? [first, last] : [last, first];
    (wanted.disabled ? other : wanted).focus();
    announce(wanted.parentElement?.getAttribute('aria-label') ?? '');
  }

  /** Shows the messages before an index that are missing at the end, the first of them at once.
   * @param {number} [before] @param {number} [end]  the time after which it goes on in another task */
  #showLater(before = this.messages.length, end = performance.now() + SLICE) {
    clearTimeout(this.#later);
    const from = this.#next;
    while (this.#next < before && (this.#next === from || performance.now() < end)) {
      this.#list.append(entry(this, this.messages[this.#next], this.#next++).item);
    }
    this.#later = this.#next < before ? setTimeout(() => this.#showLater()) : undefined;
  }

  /** Keeps the end in view while change makes the text longer, unless the reader has scrolled away from the end.
   * @param {() => void} change */
  follow(change) {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroll;
    change();
    if (scrollHeight - scrollTop - clientHeight < NEAR) this.#toEnd();
  }

  #toEnd() { this.#scroll.scrollTop = this.#scroll.scrollHeight; }

  /** @param {Message} message @param {number} index */
  add(message, index) {
    this.#showLater(index, Infinity);
    this.#next = index + 1;
    this.#list.append(entry(this, message, index).item);
    this.#toEnd();
  }

  /** Removes messages from index on. @param {number} index */
  cut(index) {
    clearTimeout(this.#later);
    this.#first = Math.min(this.#first, index);
    this.#next = Math.min(this.#next, index);
    while (this.#list.children.length > index - this.#first) this.#list.lastElementChild?.remove();
  }

  /** Opens the editor of a message that is shown. @param {number} index */
  startEdit(index) {
    /** @type {HTMLElement | null | undefined} */
    (this.#list.children[index - this.#first]?.querySelector('.tools [aria-label=Edit]'))?.click();
  }

  /** Shows a growing answer, in the place of the one that it continues, if any.  Give the progress of its prompt to
   * read, push its pieces, and those of its reasoning to think, then end it.  Call beginStep when what it has written
   * is in a new step instead, showSteps after each change of the steps, and setState when something happens to a call.
   * @param {Message} message  the caller appends the pieces to its content and reasoning @param {number} index */
  begin(message, index) {
    this.#showLater(index, Infinity);
    this.#next = index + 1;
    const { item, ...first } = entry(this, message, index, { isGrowing: true }), { steps } = first;
    let { text, shape } = first;
    const before = this.#list.children[index - this.#first];
    if (before) before.replaceWith(item);
    else this.#list.append(item);
    item.setAttribute('aria-busy', 'true');
    const grows = () => throttled(all => this.follow(() => shape?.show(all)), message.content);
    let growing = grows();
    this.#toEnd();
    /** @type {ReturnType<typeof reasoningOf> | undefined} */
    let details;
    const thinks = () => throttled(all => this.follow(() => {
      if (!details) text.before(details = reasoningOf('', message.content ? 'Reasoning' : 'Thinking'));
      details.lastElementChild?.replaceChildren(all);
    }), message.reasoning);
    let thinking = thinks(), reading = new Reading(text);
    const showSteps = () => this.follow(() => steps?.show(message.steps));
    return {
      read: (/** @type {import('../../index.js').PromptProgress} */ progress) =>
        this.follow(() => reading.show(progress)),
      push(/** @type {string} */ piece) {
        reading.remove();
        details?.firstElementChild?.replaceChildren('Reasoning');
        growing.push(piece);
      },
      think(/** @type {string} */ piece) {
        reading.remove();
        thinking.push(piece);
      },
      beginStep: () => {
        reading.remove();
        growing.flush();
        thinking.flush();
        details?.remove();
        details = undefined;
        const empty = make('div', { className: 'text markdown' });
        text.replaceWith(empty);
        text = empty;
        shape = new Markdown(text, change => this.follow(change));
        [growing, thinking, reading] = [grows(), thinks(), new Reading(text)];
      },
      showSteps,
      setState: (/** @type {string} */ id, /** @type {import('../tools/steps.js').State} */ to) =>
        this.follow(() => steps?.setState(id, to)),
      end: () => {
        reading.remove();
        growing.flush();
        if (shape instanceof Markdown) shape.end();
        if (message.reasoning) thinking.flush();
        const isOpen = details?.open ?? false;
        showSteps();
        if (!item.isConnected) return;   // another chat is shown now
        this.#end(message, index, { item, shown: { text, steps }, isOpen });
      },
    };
  }

  /** Shows a growing answer as complete. @param {Message} message @param {number} index
   * @param {{item: HTMLElement, shown: NonNullable<Parameters<typeof entry>[3]>['shown'], isOpen: boolean}} how
   *   isOpen: its reasoning */
  #end(message, index, { item, shown, isOpen }) {
    this.follow(() => {
      const focused = item.contains(document.activeElement);
      // The text's element stays the same, because the reader may have selected some of it.
      const { item: complete } = entry(this, message, index, { shown });
      item.replaceWith(complete);
      complete.querySelector(':scope > .reasoning')?.toggleAttribute('open', isOpen);
      if (focused) focusPrompt();
    });
    announce(message.problem ? `The answer failed: ${message.problem.title}`
      : message.cut?.by === 'stop' ? 'Stopped' : message.cut?.by === 'steps' ? 'The steps are used up'
      : message.cut ? 'The answer was cut off' : 'The answer is complete');
  }
}
