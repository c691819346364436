/* The chat page, which uses the package like any other user.  It joins the model, the conversation and the panels.
 *
 *   ?model=URL   loads this model instead of the last chosen one or the default one */
import { PlumbError } from '../index.js';
import { createContextMeter } from './context-meter.js';
import { continuation } from './continuation.js';
import { createConversationList } from './conversation-list.js';
import { newConversation, openStore } from './conversation-store.js';
import { announce, count, dotted, element, focusPrompt, problem, recall, remember, toast } from './dom.js';
import { acceptDrops } from './drop.js';
import { explain, ExplainedError } from './explain.js';
import { createLoader } from './loading.js';
import { createModelsDialog } from './models-dialog.js';
import { OFFERED } from './offered.js';
import { isolate, keepPage } from './offline.js';
import { createPanel } from './panels.js';
import { Settings } from './settings.js';
import { createSettingsDialog } from './settings-dialog.js';
import { withSchemaShown } from '../answers/system-text.js';

/** Milliseconds between two saves of a growing answer, and between two updates of its speed. */
const SAVE_INTERVAL = 200, SPEED_INTERVAL = 500;
/** How many of the likeliest tokens the inspector shows beside the chosen one. */
const ALTERNATIVES = 5;
const UNSAVED = 'Not saved: the browser cannot store it. Export what you want to keep.';
/** Errors after which a model cannot answer any more: its engine broke down, or its worker is gone. */
const FATAL = ['PLUMB_ERROR', 'PLUMB_ERROR_STATE'];

/** Errors of a schema: it is not one, or has keywords that cannot be kept. */
const BROKEN = ['PLUMB_ERROR_ARGUMENT', 'PLUMB_ERROR_UNSUPPORTED'];

const page = {
  main: element('scroll', 'main'), welcome: element('welcome', 'section'), log: element('log', 'ol'),
  prompt: element('prompt', 'textarea'), send: element('send', 'button'),
  stop: element('stop', 'button'), status: element('status', 'p'),
  newChat: element('new-chat', 'button'), compare: element('compare', 'section'),
};

/** Ends the running answer. @type {AbortController | undefined} */
let running;
/** @type {'loading' | 'failed' | 'ready'} */
let modelState = 'loading';
/** Whether the last message waits for a model. */
let waiting = false;
let conversation = newConversation();
/** Removes the offer to undo the last replacement. */
let dismissUndo = () => {};
/** The tokens of answers with their probabilities, for the inspector.
 * @type {WeakMap<import('./conversation-store.js').Message, import('./inspect.js').Token[]>} */
const tokens = new WeakMap();

const settings = new Settings();
createSettingsDialog(settings, changed => {
  if (changed && modelState !== 'failed' && loader.source) void loader.load(loader.source);
  else void meter.measure();
}, trainedContext);
const loader = createLoader(settings.loading, state => {
  modelState = state;
  if (state === 'loading') stop();
  show();
  updateInspector();
  settled();
});
/** Whether the draft is short enough. */
let fits = true;
const meter = createContextMeter({ model: () => comparesTexts() ? undefined : loader.model,
  busy: () => running !== undefined, conversation: () => prompt(conversation.messages), system }, draftFits => {
  fits = draftFits;
  canSend();
});
const models = createModelsDialog({ loader, options: settings.loading, offered: OFFERED });
const side = createPanel('side', 'menu');
/** @type {Promise<typeof import('./inspect.js')> | undefined} */
let inspector;
/** The box in which texts are compared, once there was a model for it.
 * @type {typeof import('./compare.js') | undefined} */
let comparison;
createPanel('inspect', 'open-inspect', open => {
  if (!open) return;
  inspector ??= import('./inspect.js');
  inspector.then(updateInspector, () => toast('The inspector could not be loaded. Reload the page.'));
});

const loading = isolate().catch(() => {}).then(() => models.start());
// The Markdown library takes 20 ms to start, and the page takes longer.  The model loads meanwhile.
const { createMessageList } = await import('./message-list.js');
const list = createMessageList({ edit, regenerate, continueAnswer, busy: () => running !== undefined });
/** Removes the line that says that another tab has changed the conversation. */
let dismissOtherTab = () => {};
/** Whether that line was shown for this conversation. */
let otherTabShown = false;
const store = await openStore({
  saving(saved) {
    element('chats-note', 'p').textContent = saved ? '' : UNSAVED;
    if (!saved) toast(UNSAVED, 'Export all', () => element('export-json', 'button').click());
  },
  diverged(copy) {
    if (copy === conversation) {
      dismissOtherTab();
      remember('chat', copy.id);
    }
    toast(`Another tab has continued this conversation. This tab continues in a copy: “${copy.title}”`);
    chats.show();
  },
  changed() {
    chats.show();
    const theirs = store.get(conversation.id);
    if (running || otherTabShown || !theirs || theirs === conversation) return;
    otherTabShown = true;
    dismissOtherTab = toast('Another tab has continued this conversation', 'Show it',
      () => choose(store.get(conversation.id)));
  },
});
const chats = createConversationList(store, { current: () => conversation, choose, onChosen: side.closeIfCovering });
choose(store.get(recall('chat')));
void loading.then(keepPage);

// ---- the model ----

/** Called when loading a model ends, and when the page becomes usable: the later of both has an effect. */
function settled() {
  if (page.main.inert) return;
  if (modelState === 'failed' && idle()) element('retry', 'button').focus();
  else if (modelState === 'ready') void ready();
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
  if (idle()) focusPrompt();
  if (waiting) void answer();
  else void meter.measure();
}

/** Whether the model compares texts instead of answering messages. */
function comparesTexts() {
  return loader.model !== undefined && ['compares', 'ranks'].includes(loader.kind);
}

/** Shows the box in which texts are compared.  The conversation waits for another model.
 * @param {import('../api/plumb.js').Model} model @param {import('./offered.js').Kind} kind */
async function compare(model, kind) {
  try {
    comparison = await import('./compare.js');
    await comparison.showComparison(page.compare, model, kind, updateInspector);
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
 * @param {import('./conversation-store.js').Message[]} messages @returns {import('../api/plumb.js').Message[]} */
function prompt(messages) {
  const kept = messages.filter(({ problem }, i) => !problem && !messages[i + 1]?.problem);
  return [...system(), ...kept.map(({ role, content, reasoning }) =>
    ({ role, content, ...reasoning && { reasoning_content: reasoning } }))];
}

/** The system message, if the settings have one, or a schema that it tells the model.
 * @returns {import('../api/plumb.js').Message[]} */
function system() {
  const content = settings.system();
  return withSchemaShown('settings', content ? [{ role: 'system', content }] : [], { schema: settings.schema() });
}

/** @param {import('./conversation-store.js').Conversation} [chosen]  undefined: a new one */
function choose(chosen) {
  stop();
  dismissUndo();
  dismissOtherTab();
  otherTabShown = false;
  conversation = chosen ?? newConversation();
  waiting = conversation.messages.at(-1)?.role === 'user';   // it was left before there was a model to answer it
  remember('chat', chosen?.id);
  list.show(conversation.messages);
  chats.show();
  show();
  updateInspector();
  if (waiting) void answer();
  else void meter.measure();
}

/** Sends the text in the message box, if it fits into the context. */
async function send() {
  const text = page.prompt.value, chat = conversation;
  if (running || waiting || !text.trim()) return;
  if (!meter.isShort(text)) {
    if (await meter.problemOf(text).catch(() => '')) return meter.measureDraft();
    if (running || waiting || chat !== conversation || page.prompt.value !== text) return;   // changed meanwhile
  }
  page.prompt.value = '';
  dismissUndo();   // undoing would remove this question, too
  ask(text);
}

/** @param {string} text */
function ask(text) {
  conversation.messages.push({ role: 'user', content: text });
  list.add(conversation.messages[conversation.messages.length - 1], conversation.messages.length - 1);
  remember('chat', conversation.id);
  saveConversation();
  chats.show();
  focusPrompt();   // the button that was clicked is gone
  void answer();
}

/** @param {number} index @param {string} text @returns {Promise<string>}  why it cannot be sent */
async function edit(index, text) {
  const chat = conversation;
  const problem = meter.isShort(text) || running ? '' : await meter.problemOf(text).catch(() => '');
  if (problem || running || chat !== conversation) return problem;
  cut(index);
  ask(text);
  return '';
}

/** Continues the last answer, which was cut off. @param {number} index */
function continueAnswer(index) {
  const { messages } = conversation;
  if (running || waiting || index !== messages.length - 1) return;
  if (!loader.model) return void toast('The model is not loaded yet');
  focusPrompt();   // the button that was clicked is gone
  void answer(messages[index]);
}

/** @param {number} index */
function regenerate(index) {
  if (running) return;
  cut(index);
  focusPrompt();
  void answer();
}

/** @param {number} index  of the first message that is forgotten */
function cut(index) {
  waiting = false;
  const chat = conversation, before = [...chat.messages];
  chat.messages.length = index;
  list.cut(index);
  if (before.at(-1)?.problem && index === before.length - 1) return;   // there is nothing worth restoring
  dismissUndo = toast('The answers from this point on were replaced', 'Undo', () => {
    stop();
    chat.messages = before;
    void store.put(chat);
    choose(chat);
  });
}

function saveConversation() {
  conversation.updated = Date.now();
  void store.put(conversation);
}

/** Saves a growing or complete answer, unless its conversation was deleted in this tab meanwhile.
 * @param {import('./conversation-store.js').Conversation} chat */
function save(chat) {
  if (!store.isRemoved(chat.id)) void store.put(chat);
}

/** Answers the last message.
 * @param {import('./conversation-store.js').Message} [open]  continues this answer, the last message, instead */
async function answer(open) {
  const model = comparesTexts() ? undefined : loader.model;
  waiting = !model && !open;
  show();
  if (!model) return;
  const controller = running = new AbortController();
  const chat = conversation, before = open?.cut?.tokens ?? 0;
  /** @type {import('./conversation-store.js').Message} */
  const message = open ?? { role: 'assistant', content: '' };
  if (!open) chat.messages.push(message);
  const index = chat.messages.length - 1, known = { figures: message.figures, cut: message.cut };
  message.figures = 'stopped';   // shown if the page is reloaded during the answer
  delete message.cut;
  const messages = prompt(chat.messages.slice(0, index)), sampling = settings.sampling();
  const schema = open ? undefined : settings.schema();
  if (schema !== undefined) message.json = true;
  const view = list.begin(message, index);
  save(chat);
  /** @type {import('./inspect.js').Token[]} */
  const seen = open && tokens.get(open) || [];
  tokens.set(message, seen);
  show();
  updateInspector();
  announce('Answering');
  page.status.textContent = 'Reading';
  meter.clear();
  let first = 0, counted = 0, shownAt = 0, savedAt = performance.now(), used;
  try {
    const thinks = schema === undefined && sampling.reasoningBudget !== 0;
    const template = sampling.reasoningBudget === undefined && thinks ? {} : { enable_thinking: thinks };
    const options = { ...sampling, template,
      ...schema !== undefined && { schema, showSchema: false, reasoningBudget: undefined },
      logprobs: ALTERNATIVES, signal: controller.signal,
      onToken: (/** @type {import('./inspect.js').Token} */ token) => seen.push(token),
      onDelta: (/** @type {{reasoning?: string}} */ { reasoning }) => {
        if (reasoning === undefined) return;
        if (!message.reasoning) page.status.textContent = 'Thinking';
        message.reasoning = (message.reasoning ?? '') + reasoning;
        view.think(reasoning);
      } };
    const { pieces, trimmed } = await generate(model, messages, open, options);
    for await (const piece of pieces) {
      const now = performance.now();
      if (first === 0) [first, counted] = [now, seen.length];
      message.content += piece;
      view.push(piece);
      if (running === controller && now - shownAt > SPEED_INTERVAL && now > first) {
        page.status.textContent = `${((seen.length - counted) * 1000 / (now - first)).toFixed(1)} tokens/s`;
        shownAt = now;
      }
      if (now - savedAt > SAVE_INTERVAL) {
        savedAt = now;
        save(chat);
      }
    }
    const stats = model.lastStats;
    if (stats) {
      const total = before + stats.tokens;
      message.figures = summary({ ...stats, tokens: total }, trimmed());
      if (stats.finishReason === 'length') {
        message.cut = { by: stats.tokens === sampling.maxTokens ? 'limit' : 'context', tokens: total };
      }
      used = stats.promptTokens + stats.tokens;
    }
  } catch (error) {
    // Closing the model to load another one makes the answer fail, but counts as stopping it.
    if (!controller.signal.aborted) {
      const why = schema !== undefined && error instanceof PlumbError && BROKEN.includes(error.code)
        ? explain(new ExplainedError('No answer can keep the JSON Schema', 'Change it in the settings.', error.message))
        : explain(error);
      if (open) {   // the part that there was before is still an answer
        message.cut = known.cut;
        if (known.figures === undefined) delete message.figures;
        else message.figures = known.figures;
        toast(`The answer could not be continued. ${why.title}. ${why.advice}`);
      } else {
        message.problem = why;
        delete message.figures;
      }
      if (error instanceof PlumbError && FATAL.includes(error.code)) void loader.load(loader.source);
    }
  }
  view.end();
  chat.updated = Date.now();
  save(chat);
  if (running !== controller) return;
  running = undefined;
  show();
  chats.show();
  updateInspector();
  void (used === undefined ? meter.measure() : meter.set(used));
}

/** Asks the model, and returns the answer in pieces.
 * @param {import('../api/plumb.js').Model} model
 * @param {import('../api/plumb.js').Message[]} messages  up to the question
 * @param {import('./conversation-store.js').Message | undefined} open  the answer to continue
 * @param {import('../api/chat.js').SendOptions} options
 * @returns {Promise<{pieces: AsyncIterable<string>, trimmed: () => number}>}  trimmed: how many of the first messages
 *   did not fit */
async function generate(model, messages, open, options) {
  if (open) {
    const { onDelta: _, template: __, ...rest } = options;
    const { ids, trimmed } = await continuation(model, messages, open, options.maxTokens);
    return { pieces: model.generate(ids, rest), trimmed: () => trimmed };
  }
  const question = messages.pop();
  const chat = model.chat({ messages, contextEnd: 'trim' });
  return { pieces: chat.send(question ?? '', options), trimmed: () => chat.trimmed };
}

/** @param {import('../api/plumb.js').Stats} stats @param {number} trimmed */
function summary({ tokens, decodeRate, promptTokens, reusedTokens, prefillRate, finishReason }, trimmed) {
  const read = promptTokens - reusedTokens;
  return dotted([count(tokens, 'token'), `${decodeRate.toFixed(1)} tokens/s`,
    `${read} read at ${prefillRate.toFixed(0)}/s`,
    trimmed > 0 && `without the first ${count(trimmed, 'message')}`, finishReason === 'abort' && 'stopped']);
}

function stop() {
  running?.abort();
  running = undefined;
}

/** Updates the inspector, if it was opened. */
function updateInspector() {
  void inspector?.then(({ inspect }) => inspect(subject()));
}

/** The inspector's subject: the last answer and the messages before it, or the text that was compared.
 * @returns {import('./inspect.js').Subject | undefined} */
function subject() {
  const { model, source } = loader;
  if (!model || running) return undefined;
  if (comparesTexts()) {
    const text = comparison?.comparedText();
    return { model, source, embeds: true, ...text && { ids: () => model.tokenize(text) } };
  }
  const index = conversation.messages.findLastIndex(({ role, content }) => role === 'assistant' && content !== '');
  const message = conversation.messages[index];
  if (!message) return { model, source, embeds: false };
  const messages = prompt(conversation.messages.slice(0, index + 1));
  return { model, source, embeds: false, tokens: tokens.get(message),
    ids: () => model.tokenizeChat(messages, { addGenerationPrompt: false }) };
}

// ---- the page's states ----

function show() {
  document.body.dataset.state = running ? 'answering' : modelState;
  page.compare.inert = modelState !== 'ready' && page.compare.childElementCount > 0;
  page.welcome.hidden = page.log.childElementCount > 0;
  element('log-title', 'h2').hidden = !page.welcome.hidden;
  page.stop.hidden = !running;
  page.send.hidden = Boolean(running);
  page.newChat.disabled = page.log.childElementCount === 0;
  if (!running) page.status.textContent = waiting ? 'Waiting for the model' : '\u00a0';
  canSend();
}

function canSend() {
  page.send.disabled = waiting || !fits || !page.prompt.value.trim();
}

page.prompt.addEventListener('input', canSend);
page.prompt.addEventListener('keydown', event => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  void send();
});
element('composer', 'form').addEventListener('submit', event => {
  event.preventDefault();
  void send();
});
page.stop.addEventListener('click', () => {
  running?.abort();
  focusPrompt();
});
document.addEventListener('keydown', event => {
  if (event.key !== 'Escape' || event.isComposing || event.defaultPrevented) return;
  if (!drops.cancel() && !document.querySelector('dialog[open]')) running?.abort();
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
element('ideas', 'ul').addEventListener('click', event => {
  if (event.target instanceof HTMLButtonElement) ask(event.target.textContent ?? '');
});
addEventListener('pagehide', () => {
  if (running) store.saveNow(conversation);
});

// ---- dropped files ----

const drops = acceptDrops(files => {
  if (files.every(({ name }) => name.endsWith('.json'))) void chats.importFiles(files);
  else models.openFiles(files);
});

// ---- everything is attached ----

for (const part of [page.main, element('search', 'input'), element('chats-foot', 'div')]) part.inert = false;
settled();
