/* The messages of one conversation, and what can be done with each of them. */
import { announce, copy, element, icon, iconButton, make, note, problem, toPrompt } from './dom.js';
import { Markdown, paced } from './markdown.js';

/** @typedef {import('./store.js').Message} Message */
/** @typedef {object} Actions
 * @property {(index: number, text: string) => void} edit  a message of the reader anew, and all behind it
 * @property {(index: number) => void} regenerate  an answer anew
 * @property {() => boolean} busy  whether an answer is under way */

/** How near to its end the reader counts as reading along, in pixels. */
const NEAR = 60;
/** How far from its end messages are laid out only when the reader comes near, in heights of what is seen. */
const FAR = 4;
/** Milliseconds after which no further message is made in one go: a long conversation takes seconds. */
const SLICE = 8;

/** @param {Actions} actions */
export function createLog(actions) {
  const list = element('log', 'ol'), scroll = element('scroll', 'main');
  /** @type {Message[]} */
  let messages = [];
  /** Of the messages that are shown; those before it are still to come. */
  let first = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  // The first rendering takes 20 ms, which an engine with all processors makes 100: it has none of them yet.
  setTimeout(() => new Markdown(make('div')).show('*Warm* up\n\n- `now`\n'));

  /** Keeps the end in view while change makes the text longer, unless the reader has scrolled away from it.
   * @param {() => void} change */
  function follow(change) {
    const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR;
    change();
    if (atEnd) toEnd();
  }
  function toEnd() {
    scroll.scrollTop = scroll.scrollHeight;
  }

  /** Shows the last of the messages before those that are shown, then, one task later, those before them: the reader
   * sees the end at once, and stays where he is. */
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

  /** @param {Message} message @param {number} index */
  function entry(message, index) {
    const item = make('li', { className: message.role });
    const text = make('div', { className: 'text' });
    item.append(make('span', { className: 'hidden' }, message.role === 'user' ? 'You:' : 'Answer:'), text);
    if (message.role === 'user') fillQuestion(item, text, message, index);
    else fillAnswer(item, text, message, index, messages[index - 1]?.role === 'user');
    return { item, text };
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
      const form = make('form', { className: 'editor', onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        if (field.value.trim()) actions.edit(index, field.value);
      } }, field, make('div', { className: 'row' },
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
  }

  /** @param {HTMLElement} item @param {HTMLElement} text @param {Message} message @param {number} index
   * @param {boolean} asked  whether there is a question before it, to be answered anew */
  function fillAnswer(item, text, message, index, asked) {
    text.classList.add('markdown');
    if (message.content) new Markdown(text).show(message.content);
    if (message.problem) {
      item.append(problem(message.problem, ...asked ? [make('button', { type: 'button',
        onclick: () => actions.regenerate(index) }, icon('again'), 'Try again')] : []));
    }
    const again = iconButton('again', 'Regenerate', () => {
      if (!actions.busy()) actions.regenerate(index);
    });
    item.append(make('div', { className: 'tools' },
      iconButton('copy', 'Copy', () => copy(message.content)), ...asked ? [again] : [], note(message.figures ?? '')));
  }

  return {
    /** @param {Message[]} all  to which those that are added and begun belong */
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
    /** Forgets messages from index on. @param {number} index */
    cut(index) {
      first = Math.min(first, index);
      while (list.children.length > index - first) list.lastElementChild?.remove();
    },
    /** An answer that grows: push its pieces, then end it.
     * @param {Message} message  its content grows with it @param {number} index */
    begin(message, index) {
      const { item, text } = entry(message, index);
      list.append(item);
      item.setAttribute('aria-busy', 'true');
      const markdown = new Markdown(text);
      const growing = paced(all => follow(() => markdown.show(all)));
      toEnd();
      return {
        push: growing.push,
        end() {
          growing.flush();
          if (!item.isConnected) return;   // another conversation is shown
          follow(() => {
            const focused = item.contains(document.activeElement);
            const done = entry(message, index).item;
            // What is shown stays as it is: the reader may have marked some of it.
            done.querySelector('.text')?.replaceWith(text);
            item.replaceWith(done);
            if (focused) toPrompt();
          });
          announce(message.problem ? `The answer failed: ${message.problem.title}`
            : message.figures?.endsWith('stopped') ? 'Stopped' : 'The answer is complete');
        },
      };
    },
  };
}
