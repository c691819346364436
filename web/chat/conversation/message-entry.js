/* One message as the page shows it, with the actions on it. */
import { copy, icon, iconButton, make, paragraph, problem } from '../dom.js';
import { JsonTree } from './json-tree.js';
import { Markdown } from './markdown.js';
import { placeOf } from './versions.js';
import { chipsOf, placesOf } from '../documents/shown.js';
import { reasoningOf, Steps } from '../tools/steps.js';

/** @typedef {import('./conversation-store.js').Message} Message
 * @typedef {{actions: Actions, messages: Message[], startEdit: (index: number) => void,
 *   follow: (change: () => void) => void}} MessageList  startEdit: opens the editor of a message that is shown;
 *   follow: makes a change, and keeps the end in view */
/** @typedef {object} Actions
 * @property {(index: number, text: string) => Promise<string>} edit  replaces a message of the reader and all messages
 *   after it by a new version; returns the reason as a sentence if the new message cannot be sent
 * @property {(index: number) => void} regenerate  replaces an answer with a new version
 * @property {(index: number, step: -1 | 1) => void} turn  shows the version before or after the one that is shown
 * @property {(index: number) => void} continueAnswer  continues an answer that was cut off
 * @property {import('../documents/shown.js').Open} openDocument
 * @property {() => ((item: HTMLElement) => void) | undefined} aloud  reads an answer aloud, or ends reading it, if the
 *   reader wants that
 * @property {() => boolean} busy  whether an answer is running */

/** @param {MessageList} list @param {Message} message @param {number} index
 * @param {{shown?: {text: HTMLElement, steps?: Steps}, isGrowing?: boolean}} [how]  shown: its text and steps, if they
 *   are already shown; isGrowing: there is more to come */
export function entry(list, message, index, { shown, isGrowing = false } = {}) {
  const item = make('li', { className: message.role }), text = shown?.text ?? make('div', { className: 'text' });
  item.append(make('span', { className: 'hidden' }, message.role === 'user' ? 'You:' : 'Answer:'), text);
  if (message.role === 'user') {
    fillQuestion(list, item, text, message, index);
    return { item, text, shape: undefined, steps: undefined };
  }
  const steps = shown?.steps ?? new Steps();
  steps.show(message.steps, isGrowing);
  text.before(steps.element);
  if (message.reasoning) text.before(reasoningOf(message.reasoning, 'Reasoning'));
  const shape = message.json ? new JsonTree(text) : new Markdown(text, change => list.follow(change));
  if (!shown && message.content) {
    shape.show(message.content);
    if (!isGrowing && shape instanceof Markdown) shape.end();
  }
  if (!message.json) text.classList.add('markdown');
  fillAnswer(list, item, message, index);
  return { item, text, shape, steps };
}

/** @param {MessageList} list @param {HTMLElement} item @param {HTMLElement} text @param {Message} message
 * @param {number} index */
function fillQuestion({ actions }, item, text, message, index) {
  text.textContent = message.content;
  text.before(...chipsOf(message.documents, actions.openDocument));
  const edit = iconButton('edit', 'Edit', () => {
    if (actions.busy()) return;
    const editor = editorOf(message.content, content => actions.edit(index, content), () => {
      editor.replaceWith(text);
      tools.hidden = false;
      edit.focus();
    });
    text.replaceWith(editor);
    tools.hidden = true;
    editor.querySelector('textarea')?.focus();
  });
  const tools = make('div', { className: 'tools' }, iconButton('copy', 'Copy', () => copy(message.content)), edit,
    ...versionsOf(actions, message, index));
  item.append(tools);
}

/** Arrows that turn between the versions of a message, if it has several.
 * @param {Actions} actions @param {Message} message @param {number} index */
function versionsOf(actions, message, index) {
  const { at, of } = placeOf(message);
  if (of === 1) return [];
  const button = (/** @type {string} */ name, /** @type {string} */ label, /** @type {-1 | 1} */ step) => {
    const made = iconButton(name, label, () => actions.turn(index, step));
    made.disabled = step < 0 ? at === 1 : at === of;
    return made;
  };
  const group = make('div', { className: 'versions', role: 'group', 'aria-label': `Version ${at} of ${of}`,
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      const arrow = { ArrowLeft: group.firstElementChild, ArrowRight: group.lastElementChild }[event.key];
      if (!(arrow instanceof HTMLButtonElement) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      arrow.click();
    } }, button('left', 'Earlier version', -1), paragraph(`${at} / ${of}`), button('right', 'Later version', 1));
  return [group];
}

/** @param {string} value @param {(content: string) => Promise<string>} send  returns why it cannot be sent
 * @param {() => void} stop */
function editorOf(value, send, stop) {
  const field = make('textarea', { value, rows: 1, 'aria-label': 'Edit your message' });
  const why = make('p', { className: 'problem', role: 'alert' });
  const form = make('form', { className: 'editor', onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (field.value.trim()) why.textContent = await send(field.value);
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
  return form;
}

/** @param {MessageList} list @param {HTMLElement} item @param {Message} message @param {number} index */
function fillAnswer(list, item, message, index) {
  const { actions } = list, hasQuestion = list.messages[index - 1]?.role === 'user';   // which can be answered again
  if (message.problem) {
    // A message that is too long would fail again.
    const tooLong = message.problem.code === 'PLUMB_ERROR_CONTEXT';
    item.append(problem(message.problem, ...!hasQuestion ? [] : [tooLong
      ? make('button', { type: 'button', onclick: () => list.startEdit(index - 1) }, icon('edit'), 'Edit the message')
      : make('button', { type: 'button', onclick: () => actions.regenerate(index) }, icon('again'), 'Try again')]));
  }
  item.append(...placesOf(list.messages[index - 1]?.places, message.content, actions.openDocument));
  const hasParts = message.content || message.reasoning || message.steps;
  if (message.cut && hasParts) item.append(cutOffNotice(list, message.cut.by, index));
  const again = iconButton('again', 'Regenerate', () => {
    if (!actions.busy()) actions.regenerate(index);
  });
  const aloud = actions.aloud();
  item.append(make('div', { className: 'tools' },
    iconButton('copy', message.json ? 'Copy as JSON' : 'Copy', () => copy(message.content)),
    ...hasQuestion ? [again] : [],
    ...aloud && message.content && !message.json ? [iconButton('aloud', 'Read aloud', () => aloud(item))] : [],
    ...versionsOf(actions, message, index),
    paragraph(message.figures ?? '')));
}

/** Says why an answer ends too early, with a button that continues it while it is the last one.
 * @param {MessageList} list @param {NonNullable<Message['cut']>['by']} by @param {number} index */
function cutOffNotice({ messages, actions }, by, index) {
  const { content, reasoning, steps } = messages[index] ?? {};
  const earlier = messages.slice(0, Math.max(0, index - 1)).some(({ role }) => role === 'user');
  const why = {
    limit: 'The answer was cut off at the length limit in the settings.',
    context: `The answer was cut off because the context is full. ${earlier ? 'It can continue without the oldest '
      + 'messages.' : 'Start a new chat, or set a longer context in the settings.'}`,
    stop: 'The answer was stopped.', failure: 'The answer was cut off by the failure.',
    steps: 'The model may take no more steps for this answer.',
  }[by];
  const hasBegun = content || reasoning || steps;
  const canGoOn = messages[index - 1]?.role === 'user' && hasBegun && (by !== 'context' || earlier);
  return make('div', { className: 'cut' }, make('p', {}, why), ...canGoOn
    ? [make('button', { type: 'button', onclick: () => !actions.busy() && actions.continueAnswer(index) },
      by === 'steps' ? 'Allow as many steps again' : 'Continue')] : []);
}
