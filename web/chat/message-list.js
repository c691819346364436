/* The messages of one conversation, and the actions on each of them. */
import { announce, copy, element, focusPrompt, icon, iconButton, make, paragraph, problem } from './dom.js';
import { JsonTree } from './json-tree.js';
import { Markdown, throttled } from './markdown.js';

/** @typedef {import('./conversation-store.js').Message} Message */
/** @typedef {object} Actions
 * @property {(index: number, text: string) => Promise<string>} edit  replaces a message of the reader and all messages
 *   after it; returns the reason as a sentence if the new message cannot be sent
 * @property {(index: number) => void} regenerate  replaces an answer with a new one
 * @property {(index: number) => void} continueAnswer  continues an answer that was cut off
 * @property {() => boolean} busy  whether an answer is running */

/** The view follows a growing text if it is within this many pixels of its end. */
const NEAR = 60;
/** In heights of the view: messages farther from the end are laid out only when the reader comes near them. */
const FAR = 4;
/** Milliseconds after which a task makes no further messages: a long conversation takes seconds. */
const SLICE = 8;

/** @param {Actions} actions */
export function createMessageList(actions) {
  const list = element('log', 'ol'), scroll = element('scroll', 'main');
  /** @type {Message[]} */
  let messages = [];
  /** Index of the first message that is shown; those before it are added later. */
  let first = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  // The first rendering takes 20 ms, or 100 ms while an engine uses all processors.  So it is done now, before that.
  setTimeout(() => new Markdown(make('div')).show('*Warm* up\n\n- `now`\n'));

  /** Keeps the end in view while change makes the text longer, unless the reader has scrolled away from the end.
   * @param {() => void} change */
  function follow(change) {
    const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR;
    change();
    if (atEnd) toEnd();
  }
  function toEnd() {
    scroll.scrollTop = scroll.scrollHeight;
  }

  /** Shows some of the messages before those that are shown, and then, one task later, the ones before them.  So the
   * reader sees the end at once, and what is in view does not move. */
  function showEarlier() {
    const fromEnd = scroll.scrollHeight - scroll.scrollTop, end = performance.now() + SLICE;
    const far = scroll.scrollHeight > FAR * scroll.clientHeight, items = [];
    while (first > 0 && (items.length === 0 || performance.now() < end)) {
      const { item } = entry(messages[--first], first);
      item.classList.toggle('far', far);
      items.unshift(item);
    }
    list.prepend(...items);
    scroll.scrollTop = scroll.scrollHeight - fromEnd;
    timer = first > 0 ? setTimeout(showEarlier) : undefined;
  }

  /** @param {Message} message @param {number} index @param {HTMLElement} [shown]  its text, if it is already shown */
  function entry(message, index, shown) {
    const item = make('li', { className: message.role }), text = shown ?? make('div', { className: 'text' });
    item.append(make('span', { className: 'hidden' }, message.role === 'user' ? 'You:' : 'Answer:'), text);
    if (message.role === 'user') return { item, text, shape: fillQuestion(item, text, message, index) };
    if (message.reasoning) text.before(reasoningOf(message.reasoning, true));
    const shape = message.json ? new JsonTree(text) : new Markdown(text);
    if (!shown && message.content) shape.show(message.content);
    fillAnswer(item, text, message, index, messages[index - 1]?.role === 'user');
    return { item, text, shape };
  }

  /** What the model thought, folded. @param {string} reasoning @param {boolean} isDone  whether it thinks no more */
  function reasoningOf(reasoning, isDone) {
    const summary = make('summary', {}, isDone ? 'Reasoning' : 'Thinking');
    return make('details', { className: 'reasoning' }, summary, make('div', {}, reasoning));
  }

  /** @param {HTMLElement} item @param {HTMLElement} text @param {Message} message @param {number} index */
  function fillQuestion(item, text, message, index) {
    text.textContent = message.content;
    const edit = iconButton('edit', 'Edit', () => {
      if (actions.busy()) return;
      const field = make('textarea', { value: message.content, rows: 1, 'aria-label': 'Edit your message' });
      const stop = () => {
        form.replaceWith(text);
        tools.hidden = false;
        edit.focus();
      };
      const why = make('p', { className: 'problem', role: 'alert' });
      const form = make('form', { className: 'editor', onsubmit: async (/** @type {Event} */ event) => {
        event.preventDefault();
        if (field.value.trim()) why.textContent = await actions.edit(index, field.value);
      } }, field, why, make('div', { className: 'row' },
        make('button', { type: 'button', onclick: stop }, 'Cancel'),
        make('button', { type: 'submit', className: 'primary' }, 'Send')));
      field.addEventListener('keydown', event => {
        if (event.key === 'Escape' && !event.isComposing) {
          event.stopPropagation();
          stop();
        } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
          event.preventDefault();
          form.requestSubmit();
        }
      });
      text.replaceWith(form);
      tools.hidden = true;
      field.focus();
    });
    const tools = make('div', { className: 'tools' }, iconButton('copy', 'Copy', () => copy(message.content)), edit);
    item.append(tools);
    return undefined;
  }

  /** @param {HTMLElement} item @param {HTMLElement} text @param {Message} message @param {number} index
   * @param {boolean} hasQuestion  whether there is a question before it, which can be answered again */
  function fillAnswer(item, text, message, index, hasQuestion) {
    if (!message.json) text.classList.add('markdown');
    if (message.problem) {
      // A message that is too long would fail again.
      const tooLong = message.problem.code === 'PLUMB_ERROR_CONTEXT';
      item.append(problem(message.problem, ...!hasQuestion ? [] : [tooLong
        ? make('button', { type: 'button', onclick: () => startEdit(index - 1) }, icon('edit'), 'Edit the message')
        : make('button', { type: 'button', onclick: () => actions.regenerate(index) }, icon('again'), 'Try again')]));
    }
    if (message.cut) item.append(cutOffNotice(message.cut.by, index, hasQuestion));
    const again = iconButton('again', 'Regenerate', () => {
      if (!actions.busy()) actions.regenerate(index);
    });
    item.append(make('div', { className: 'tools' },
      iconButton('copy', message.json ? 'Copy as JSON' : 'Copy', () => copy(message.content)),
      ...hasQuestion ? [again] : [],
      paragraph(message.figures ?? '')));
  }

  /** Says why an answer ends too early, with a button that continues it while it is the last one.
   * @param {'limit' | 'context'} by @param {number} index
   * @param {boolean} hasQuestion  whether a question is before it */
  function cutOffNotice(by, index, hasQuestion) {
    const { content, json } = messages[index] ?? {};   // JSON cannot be continued: its schema binds whole answers
    const earlier = !json && messages.slice(0, Math.max(0, index - 1)).some(({ role }) => role === 'user');
    const why = by === 'limit' ? 'The answer was cut off at the length limit in the settings.'
      : `The answer was cut off because the context is full. ${earlier ? 'It can continue without the oldest messages.'
        : 'Start a new chat, or set a longer context in the settings.'}`;
    const canGoOn = hasQuestion && content && !json && (by === 'limit' || earlier);
    return make('div', { className: 'cut' }, make('p', {}, why), ...canGoOn
      ? [make('button', { type: 'button', onclick: () => !actions.busy() && actions.continueAnswer(index) },
        'Continue')] : []);
  }

  /** Opens the editor of a message that is shown. @param {number} index */
  function startEdit(index) {
    /** @type {HTMLElement | null | undefined} */
    (list.children[index - first]?.querySelector('.tools [aria-label=Edit]'))?.click();
  }

  return {
    /** @param {Message[]} all  add and begin refer to messages of this array */
    show(all) {
      clearTimeout(timer);
      list.replaceChildren();
      messages = all;
      first = all.length;
      showEarlier();
    },
    add(/** @type {Message} */ message, /** @type {number} */ index) {
      list.append(entry(message, index).item);
      toEnd();
    },
    /** Removes messages from index on. @param {number} index */
    cut(index) {
      first = Math.min(first, index);
      while (list.children.length > index - first) list.lastElementChild?.remove();
    },
    /** Shows a growing answer, in the place of the one that it continues, if any.  Push its pieces, and those of its
     * reasoning to think, then end it.
     * @param {Message} message  the caller appends the pieces to its content and reasoning @param {number} index */
    begin(message, index) {
      const { item, text, shape } = entry(message, index);
      const before = list.children[index - first];
      if (before) before.replaceWith(item);
      else list.append(item);
      item.setAttribute('aria-busy', 'true');
      const growing = throttled(all => follow(() => shape?.show(all)), message.content);
      toEnd();
      /** @type {ReturnType<typeof reasoningOf> | undefined} */
      let details;
      const thinking = throttled(all => follow(() => {
        if (!details) text.before(details = reasoningOf('', message.content !== ''));
        details.lastElementChild?.replaceChildren(all);
      }), message.reasoning);
      return {
        push(/** @type {string} */ piece) {
          details?.firstElementChild?.replaceChildren('Reasoning');
          growing.push(piece);
        },
        think: thinking.push,
        end() {
          growing.flush();
          if (message.reasoning) thinking.flush();
          const isOpen = details?.open ?? false;
          if (!item.isConnected) return;   // another conversation is shown now
          follow(() => {
            const focused = item.contains(document.activeElement);
            // The text's element stays the same, because the reader may have selected some of it.
            const { item: complete } = entry(message, index, text);
            item.replaceWith(complete);
            complete.querySelector('.reasoning')?.toggleAttribute('open', isOpen);
            if (focused) focusPrompt();
          });
          announce(message.problem ? `The answer failed: ${message.problem.title}`
            : message.figures?.endsWith('stopped') ? 'Stopped'
            : message.cut ? 'The answer was cut off' : 'The answer is complete');
        },
      };
    },
  };
}
