/* The chat page, which uses the package like any other user.  It joins the model, the conversation and the panels.
 *
 *   ?model=URL   loads this model instead of the last chosen one or the default one */
import { withSchemaShown } from '../answers/system-text.js';
import { Answering } from './conversation/answering.js';
import { Chips } from './conversation/chips.js';
import { ContextMeter } from './conversation/context-meter.js';
import { ConversationList } from './conversation/conversation-list.js';
import { newConversation, openStore } from './conversation/conversation-store.js';
import { announce, element, focusPrompt, make, nameOf, problem, recall, remember, toast } from './dom.js';
import { acceptDrops } from './drop.js';
import { Attachments } from './documents/attachments.js';
import { withDocuments } from './documents/given.js';
import { explain } from './explain.js';
import { Loader } from './models/loading.js';
import { ModelsDialog } from './models/models-dialog.js';
import { describedOffer, OFFERED } from './models/offered.js';
import { isolate, keepPage } from './offline.js';
import { createPanel } from './panels.js';
import { SavedStates } from './conversation/saved-states.js';
import { setAside, turn } from './conversation/versions.js';
import { Settings } from './settings.js';
import { createSettingsDialog } from './settings-dialog.js';
import { countChosen, messagesOf } from './tools/kept.js';
import { helpWithWriting } from './writing/writing.js';

const UNSAVED = 'Not saved: the browser cannot store it. Export what you want to keep.';

const page = {
  main: element('scroll', 'main'), welcome: element('welcome', 'section'), log: element('log', 'ol'),
  prompt: element('prompt', 'textarea'), send: element('send', 'button'),
  stop: element('stop', 'button'), status: element('status', 'p'),
  newChat: element('new-chat', 'button'), compare: element('compare', 'section'),
};

const state = {
  /** The answer that grows. @type {Answering | undefined} */
  running: undefined,
  /** @type {'loading' | 'failed' | 'ready'} */
  model: 'loading',
  /** Whether the last message waits for a model. */
  waiting: false,
  /** Index of an answer that is given again once there is a model. @type {number | undefined} */
  again: undefined,
  /** Whether the draft is short enough. */
  fits: true,
  conversation: newConversation(),
  /** Removes the line that says that another tab has changed the conversation. */
  dismissOtherTab() {},
  /** Whether that line was shown for this conversation. */
  otherTabShown: false,
  /** @type {Promise<typeof import('./inspect/inspect.js')> | undefined} */
  inspector: undefined,
  /** Reads an answer aloud, if the reader wants that. @type {((item: HTMLElement) => void) | undefined} */
  aloud: undefined,
  /** Ends reading aloud. @type {(() => void) | undefined} */
  stopReading: undefined,
  /** The box in which texts are compared, once there was a model for it.
   * @type {typeof import('./inspect/compare.js') | undefined} */
  comparison: undefined,
};
/** The tokens of answers with their probabilities, for the inspector.
 * @type {WeakMap<import('./conversation/conversation-store.js').Message, import('./inspect/inspect.js').Token[]>} */
const tokens = new WeakMap();

const states = new SavedStates();
const settings = new Settings();
createSettingsDialog(settings, changed => {
  if (changed && state.model !== 'failed' && loader.source) void loader.load(loader.source);
  else void meter.measure();
  chips.show();
  void showVoice();
}, trainedContext);
const attachments = new Attachments(canSend);
const loader = new Loader(settings.loading, now => {
  state.model = now;
  if (now === 'loading') {
    stop();
    states.forget();
  }
  show();
  updateInspector();
  settled();
});
const meter = new ContextMeter({
  model: () => comparesTexts() ? undefined : loader.model, busy, system,
  conversation: () => prompt(state.conversation.messages), told, hasTools: () => chosenTools() !== undefined,
}, fits => {
  state.fits = fits;
  canSend();
});
const models = new ModelsDialog({ loader, options: settings.loading, offered: OFFERED });
const chips = new Chips({
  current: () => state.conversation, settings, loaded: () => loader.model && nameOf(loader.model.metadata),
  load: source => void models.offer(source),
  changed(chat) {
    if (store.get(chat.id)) void store.put(chat);
    void meter.measure();
  },
  accept() {
    keepModel(state.conversation);
    chips.show();
    if (store.get(state.conversation.id)) void store.put(state.conversation);
    if (state.waiting) void answer();
  },
});
const side = createPanel('side', 'menu');
createPanel('inspect', 'open-inspect', open => {
  if (!open) return;
  state.inspector ??= import('./inspect/inspect.js');
  state.inspector.then(updateInspector, () => toast('The inspector could not be loaded. Reload the page.'));
});

const loading = isolate().catch(() => {}).then(() => models.start());
// The Markdown library takes 20 ms to start, and the page takes longer.  The model loads meanwhile.
const { MessageList } = await import('./conversation/message-list.js');
const list = new MessageList({
  edit, regenerate, turn: turnTo, continueAnswer, openDocument, busy, aloud: () => state.aloud,
});
const store = await openStore({
  removed: id => states.remove(id),
  saving(saved) {
    element('chats-note', 'p').textContent = saved ? '' : UNSAVED;
    if (!saved) toast(UNSAVED, 'Export all', () => element('export-json', 'button').click());
  },
  diverged(copy) {
    if (copy === state.conversation) {
      state.dismissOtherTab();
      remember('chat', copy.id);
    }
    toast(`Another tab has continued this conversation. This tab continues in a copy: “${copy.title}”`);
    chats.show();
  },
  changed() {
    chats.show();
    const theirs = store.get(state.conversation.id);
    if (busy() || state.otherTabShown || !theirs || theirs === state.conversation) return;
    state.otherTabShown = true;
    state.dismissOtherTab = toast('Another tab has continued this conversation', 'Show it',
      () => choose(store.get(state.conversation.id)));
  },
});
const chats = new ConversationList(store, {
  current: () => state.conversation, choose, onChosen: side.closeIfCovering,
});
helpWithWriting({ all: () => store.list(), current: () => state.conversation, choose });
choose(store.get(recall('chat')));
void showVoice();
void loading.then(keepPage);

// ---- the model ----

/** Called when loading a model ends, and when the page becomes usable: the later of both has an effect. */
function settled() {
  if (page.main.inert) return;
  if (state.model === 'failed' && idle()) element('retry', 'button').focus();
  else if (state.model === 'ready') void ready();
}

/** Whether the reader uses no other control, so that the focus may move. */
function idle() {
  return !document.activeElement?.closest('body *') || document.activeElement.closest('#loading, #failure') !== null;
}

async function ready() {
  const { model } = loader;
  if (!model) return;
  models.loaded();
  const { kind } = loader;
  document.body.dataset.kind = kind;
  page.prompt.placeholder = kind === 'continues' ? 'Write the beginning of a text' : 'Write a message';
  side.offer(!comparesTexts());
  if (comparesTexts()) return compare(model, kind);
  chips.show();
  if (idle()) focusPrompt();
  if (state.waiting) void answer();
  else void meter.measure();
}

/** Whether an answer grows. */
function busy() { return state.running !== undefined; }

/** Whether the model compares texts instead of answering messages. */
function comparesTexts() {
  return loader.model !== undefined && ['compares', 'ranks'].includes(loader.kind);
}

/** Shows the box in which texts are compared.  The conversation waits for another model.
 * @param {import('../api/plumb.js').Model} model @param {import('./models/offered.js').Kind} kind */
async function compare(model, kind) {
  try {
    state.comparison = await import('./inspect/compare.js');
    await state.comparison.showComparison(page.compare, model, kind, updateInspector);
    if (idle() && matchMedia('(pointer: fine)').matches) element('compare-query', 'input').focus();
  } catch (error) {
    if (model === loader.model) page.compare.replaceChildren(problem(explain(error)));
  }
}

/** The number of tokens for which the model was trained. */
function trainedContext() {
  const { metadata = {} } = loader.model ?? {};
  return Number(metadata[`${metadata['general.architecture']}.context_length`]) || undefined;
}

// ---- the conversation ----

/** What the model is given: the messages without failed answers and the questions to those.
 * @param {import('./conversation/conversation-store.js').Message[]} messages
 * @returns {import('../api/plumb.js').Message[]} */
function prompt(messages) {
  const kept = messages.filter(({ problem }, i) => !problem && !messages[i + 1]?.problem);
  return [...system(), ...kept.flatMap(message => [...messagesOf(message),
    ...message.steps && !message.content ? [] : [{ role: message.role, content: withDocuments(message),
      ...message.reasoning && { reasoning_content: message.reasoning } }]])];
}

/** The tools that the conversation has on; undefined: none, or a schema binds its answers. */
function chosenTools() {
  const { tools } = state.conversation;
  return countChosen(tools) > 0 && settings.schema() === undefined ? tools : undefined;
}

/** What the model is told of them. */
async function told() {
  const chosen = chosenTools(), tools = chosen ? (await import('./tools/toolset.js')).toldTools(chosen) : [];
  return tools.length > 0 ? { tools } : undefined;
}

/** The system message, if the settings have one, or a schema that it tells the model.
 * @returns {import('../api/plumb.js').Message[]} */
function system() {
  const content = settings.system();
  return withSchemaShown('settings', content ? [{ role: 'system', content }] : [], { schema: settings.schema() });
}

/** @param {import('./conversation/conversation-store.js').Conversation} [chosen]  undefined: a new one */
function choose(chosen) {
  stop();
  state.stopReading?.();
  state.dismissOtherTab();
  state.otherTabShown = false;
  state.conversation = chosen ?? newConversation();
  state.again = undefined;
  // It was left before there was a model to answer it.
  state.waiting = state.conversation.messages.at(-1)?.role === 'user';
  remember('chat', chosen?.id);
  list.show(state.conversation.messages);
  chats.show();
  show();
  chips.show();
  updateInspector();
  if (state.waiting) void answer();
  else void meter.measure();
}

/** Notes the model that answers in a conversation. @param {typeof state.conversation} chat */
function keepModel(chat) {
  const { model, source } = loader;
  if (!model) return;
  chat.model = { name: nameOf(model.metadata), ...typeof source === 'string' && { source } };
}

/** Sends the text in the message box, if it fits into the context. */
async function send() {
  const text = page.prompt.value, chat = state.conversation;
  if (state.running || state.waiting || attachments.isReading || !text.trim()) return;
  if (!meter.isShort(text)) {
    if (await meter.problemOf(text).catch(() => '')) return meter.measureDraft();
    const hasChanged = chat !== state.conversation || page.prompt.value !== text;
    if (state.running || state.waiting || hasChanged) return;
  }
  page.prompt.value = '';
  ask(text, attachments.take());
}

/** @param {string} text @param {import('./documents/stored.js').Document[]} [documents]
 * @param {import('./conversation/versions.js').Versions} [versions]  of the message */
function ask(text, documents = [], versions) {
  const { id, messages } = state.conversation;
  messages.push({ role: 'user', content: text, ...documents.length > 0 && { documents }, ...versions && { versions } });
  list.add(messages[messages.length - 1], messages.length - 1);
  remember('chat', id);
  saveConversation();
  chats.show();
  focusPrompt();   // the button that was clicked is gone
  void answer();
}

/** @param {number} index @param {string} text @returns {Promise<string>}  why it cannot be sent */
async function edit(index, text) {
  const chat = state.conversation;
  const problem = meter.isShort(text) || state.running ? '' : await meter.problemOf(text).catch(() => '');
  if (problem || state.running || chat !== state.conversation) return problem;
  const { documents } = chat.messages[index];
  ask(text, documents, replace(index));
  return '';
}

/** Continues the last answer, which was cut off. @param {number} index */
function continueAnswer(index) {
  const { messages } = state.conversation;
  if (state.running || state.waiting || index !== messages.length - 1) return;
  focusPrompt();   // the button that was clicked is gone
  void answer(messages[index]);
}

/** @param {number} index */
function regenerate(index) {
  if (state.running) return;
  state.again = index;
  focusPrompt();
  void answer();
}

/** Takes the messages from index on out of view.  Returns the versions of the message that replaces them.
 * @param {number} index */
function replace(index) {
  state.again = undefined;
  state.stopReading?.();
  list.cut(index);
  return setAside(state.conversation.messages, index);
}

/** Shows another version of the messages from index on. @param {number} index @param {-1 | 1} step */
function turnTo(index, step) {
  const chat = state.conversation;
  if (state.running) return;
  [state.waiting, state.again] = [false, undefined];
  state.stopReading?.();
  turn(chat.messages, index, step);
  list.showFrom(index);
  void store.put(chat);
  chats.show();
  show();
  updateInspector();
  void meter.measure();
}

function saveConversation() {
  state.conversation.updated = Date.now();
  void store.put(state.conversation);
}

/** Saves a growing or complete answer, unless its conversation was deleted in this tab meanwhile.
 * @param {import('./conversation/conversation-store.js').Conversation} chat */
function save(chat) {
  if (!store.isRemoved(chat.id)) void store.put(chat);
}

/** Answers the last message.
 * @param {import('./conversation/conversation-store.js').Message} [open]  continues this answer, the last message,
 *   instead */
async function answer(open) {
  const model = comparesTexts() || chips.isOther ? undefined : loader.model;
  state.waiting = !model && !open;
  show();
  if (!model) {
    if (open) toast(chips.isOther ? 'Choose which model goes on' : 'The model is not loaded yet');
    return;
  }
  keepModel(state.conversation);
  chips.show();
  const { conversation: chat, again } = state, versions = again === undefined ? undefined : replace(again);
  const tools = chosenTools();
  const answering = state.running = new Answering({
    model, chat, open, versions, settings, prompt, prepare: open ? undefined : preparation(chat, model),
    told, tools: tools && (async hooks => (await import('./tools/toolset.js')).runnable(tools, hooks)),
    tokens, list, states, save: () => save(chat),
    status: text => { if (state.running === answering) page.status.textContent = text; },
  });
  show();
  updateInspector();
  announce('Answering');
  page.status.textContent = 'Reading';
  meter.clear();
  await answering.run();
  if (answering.isFatal) void loader.load(loader.source);
  if (answering.speed !== undefined) void models.measured(answering.speed);
  answering.end();
  if (state.running !== answering) return;
  state.running = undefined;
  show();
  chats.show();
  updateInspector();
  void (answering.used === undefined ? meter.measure() : meter.set(answering.used));
}

/** What is done before the model is asked, if the conversation has documents.
 * @param {import('./conversation/conversation-store.js').Conversation} chat
 * @param {import('../api/plumb.js').Model} model */
function preparation({ messages }, model) {
  if (messages.every(({ documents }) => !documents)) return undefined;
  const until = [...messages];   // up to the question
  return async (/** @type {AbortSignal} */ signal, /** @type {(text: string) => void} */ status) => {
    const { prepareQuestion } = await import('./documents/asking.js');
    return prepareQuestion({ messages: until, model, prompt, signal, status, options: settings.loading(),
      find: digest => attachments.document(digest, until) });
  };
}

/** Offers what the settings say of voice. */
async function showVoice() {
  const { dictation, aloud } = settings.values, wasOffered = state.aloud !== undefined;
  try {
    if (dictation !== 'off' || document.getElementById('dictate')) {
      (await import('./voice/dictation.js')).offerDictation(dictation);
    }
    const { readAloud, stopReading } = aloud === 'on' || wasOffered ? await import('./voice/reading-aloud.js') : {};
    state.aloud = aloud === 'on' ? readAloud : undefined;
    state.stopReading = stopReading;
    if (!state.aloud) stopReading?.();
  } catch {
    return toast('The functions of voice could not be loaded. Reload the page.');
  }
  if (wasOffered !== (state.aloud !== undefined) && !state.running) list.show(state.conversation.messages);
}

/** @param {string} digest @param {import('./documents/stored.js').Place} [place] */
async function openDocument(digest, place) {
  const { showDocument } = await import('./documents/viewer.js');
  showDocument(attachments.document(digest, state.conversation.messages), place);
}

function stop() {
  state.running?.abort();
  state.running = undefined;
}

/** Updates the inspector, if it was opened. */
function updateInspector() {
  void state.inspector?.then(({ inspect }) => inspect(subject()));
}

/** The inspector's subject: the last answer and the messages before it, or the text that was compared.
 * @returns {import('./inspect/inspect.js').Subject | undefined} */
function subject() {
  const { model, source } = loader;
  if (!model || state.running) return undefined;
  if (comparesTexts()) {
    const text = state.comparison?.comparedText();
    return { model, source, embeds: true, ...text && { ids: () => model.tokenize(text) } };
  }
  const { messages } = state.conversation;
  const index = messages.findLastIndex(({ role, content }) => role === 'assistant' && content !== '');
  const message = messages[index];
  if (!message) return { model, source, embeds: false };
  const asked = prompt(messages.slice(0, index + 1));
  return { model, source, embeds: false, tokens: tokens.get(message),
    ids: async () => model.tokenizeChat(asked, { addGenerationPrompt: false, ...await told() }) };
}

// ---- the page's states ----

function show() {
  document.body.dataset.state = state.running ? 'answering' : state.model;
  page.compare.inert = state.model !== 'ready' && page.compare.childElementCount > 0;
  page.welcome.hidden = page.log.childElementCount > 0;
  element('better', 'p').hidden = loader.source !== OFFERED[0].url;
  element('log-title', 'h2').hidden = !page.welcome.hidden;
  page.stop.hidden = !state.running;
  page.send.hidden = Boolean(state.running);
  page.newChat.disabled = page.log.childElementCount === 0;
  if (!state.running) page.status.textContent = state.waiting
    ? chips.isOther ? 'Choose which model goes on' : 'Waiting for the model' : '\u00a0';
  canSend();
}

function canSend() {
  page.send.disabled = state.waiting || !state.fits || attachments.isReading || !page.prompt.value.trim();
}

page.prompt.addEventListener('input', canSend);
page.prompt.addEventListener('keydown', event => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.defaultPrevented) return;
  event.preventDefault();
  element('composer', 'form').requestSubmit();
});
element('composer', 'form').addEventListener('submit', event => {
  event.preventDefault();
  void send();
});
page.stop.addEventListener('click', () => {
  state.running?.abort();
  focusPrompt();
});
document.addEventListener('keydown', event => {
  if (event.key !== 'Escape' || event.isComposing || event.defaultPrevented) return;
  if (!drops.cancel() && !document.querySelector('dialog[open]')) state.running?.abort();
});
// Notes are placed above the message box, which grows with its text.
new ResizeObserver(([{ borderBoxSize: [{ blockSize }] }]) =>
  document.body.style.setProperty('--composer', `${Math.ceil(blockSize)}px`)).observe(element('composer', 'form'));
page.newChat.addEventListener('click', () => {
  choose(undefined);
  chats.showAll();
  side.closeIfCovering();
  page.prompt.focus();
});
element('better', 'p').append('This model answers in the first second, and knows little. ', make('button', {
  type: 'button', className: 'link', onclick: () => models.chooseOffered(1),
}, `Load ${OFFERED[1].name}`), ` ${describedOffer(OFFERED[1])}.`);
element('ideas', 'ul').addEventListener('click', event => {
  if (event.target instanceof HTMLButtonElement) ask(event.target.textContent ?? '');
});
addEventListener('pagehide', () => {
  if (state.running) store.saveNow(state.conversation);
});

// ---- dropped files ----

const drops = acceptDrops(files => {
  if (files.every(({ name }) => name.endsWith('.json'))) void chats.importFiles(files);
  else void Promise.all(files.map(isModel)).then(are => are.includes(true) ? models.openFiles(files)
    : attachments.add(files));
});

/** Whether a file is meant as a model. @param {File} file */
const isModel = async file => /\.gguf$/i.test(file.name)
  || await file.slice(0, 4).text().then(start => start === 'GGUF', () => false);

// ---- everything is attached ----

for (const part of [page.main, element('search', 'input'), element('chats-foot', 'div')]) part.inert = false;
settled();
