/* The dialog with the tools of one conversation: which of the page's are on, the servers that the reader has added, and
 * how many steps the model may take.  A request is sent only when a server is added, turned on or turned off. */
import { Plumb } from '../../index.js';
import { count, dotted, iconButton, make, problem, tidy } from '../dom.js';
import { explain } from '../explain.js';
import { createDialog } from '../panels.js';
import { BUILTIN } from './builtin.js';
import { MOST_STEPS, STEPS } from './kept.js';
import { McpServer } from './mcp.js';
import { closeServer, forgetServer, keepServer, knownServers, MOST_SERVERS } from './servers.js';

/** @typedef {import('./servers.js').Known} Known */
/** @typedef {object} Subject
 * @property {import('../conversation/conversation-store.js').Conversation} chat
 * @property {boolean} hasSchema  answers are bound to a JSON Schema, so that there are no calls
 * @property {() => void} onDone */

/** Seconds in which the schemas of a server's tools are checked; the others are taken as they are. */
const PATIENCE = 20;

/** @type {Subject} */
let subject;
/** The connection that is being made. @type {AbortController | undefined} */
let connecting;

/** @returns {import('./kept.js').Chosen} */
const chosen = () => subject.chat.tools ?? { on: [], servers: [], steps: STEPS };

/** @param {Partial<import('./kept.js').Chosen>} change */
function choose(change) {
  const now = { ...chosen(), ...change };
  if (now.on.length + now.servers.length > 0 || now.steps !== STEPS) subject.chat.tools = now;
  else delete subject.chat.tools;
}

/** @param {string[]} list @param {string} one @param {boolean} isIn */
const changed = (list, one, isIn) => [...list.filter(other => other !== one), ...isIn ? [one] : []];

/** @param {string} id @param {string} label @param {string} about
 * @param {(input: HTMLInputElement) => void} onchange */
function switchOf(id, label, about, onchange) {
  const input = make('input', { type: 'checkbox', role: 'switch', id, 'aria-describedby': `${id}-about`,
    onchange: () => onchange(input) });
  const name = make('label', { htmlFor: id }, make('bdi', {}, label));
  return { input, box: make('div', { className: 'field switch' }, name, input,
    make('p', { className: 'figures', id: `${id}-about` }, about)) };
}

const own = BUILTIN.map(({ name, label, about }) => ({ name, ...switchOf(`tool-${name}`, label, about, ({ checked }) =>
  choose({ on: changed(chosen().on, name, checked) })) }));
const noSchema = make('p', { className: 'about problem' },
  'Answers of this conversation are bound to a JSON Schema. So the model is not told about tools.');
const list = make('ul', { className: 'servers' });
const address = make('input', { id: 'server-address', type: 'url', placeholder: 'https://', autocomplete: 'off',
  spellcheck: false, 'aria-describedby': 'server-about', onkeydown: (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Enter' && !event.isComposing) void addServer();
  } });
const add = make('button', { type: 'button', onclick: () => void addServer() }, 'Add');
const failure = make('div', { role: 'alert' });
const steps = make('input', { id: 'tool-steps', type: 'number', min: '1', max: String(MOST_STEPS), step: '1',
  'aria-describedby': 'steps-about', oninput: () => {
    const most = Number(steps.value), isRight = Number.isInteger(most) && most >= 1 && most <= MOST_STEPS;
    steps.setAttribute('aria-invalid', String(!isRight));
    if (isRight) choose({ steps: most });
  } });
const note = make('p', { className: 'figures', role: 'status' });
const close = iconButton('close', 'Close the tools', () => {});
close.dataset.close = 'tools';
document.body.append(make('dialog', { id: 'tools', 'aria-labelledby': 'tools-title' },
  make('div', { className: 'bar' }, make('h2', { id: 'tools-title' }, 'Tools'), close),
  make('div', { className: 'body' },
    noSchema,
    make('p', {}, 'In this conversation, the model may use what is on here. Nothing is sent before you have seen the '
    + 'address and what would be sent, and have allowed it.'),
    make('fieldset', {}, make('legend', {}, 'Built in'), ...own.map(({ box }) => box)),
    make('fieldset', {}, make('legend', {}, 'From MCP servers'), list,
      make('div', { className: 'field' }, make('label', { htmlFor: 'server-address' }, 'Address of an MCP server'),
        make('div', { className: 'row' }, address, add),
        make('p', { className: 'figures', id: 'server-about' }, 'Adding a server, and turning it on, asks it for its '
        + 'tools. It learns your network address, and nothing of your conversations.'), failure)),
    make('fieldset', {}, make('legend', {}, 'Budget'),
      make('div', { className: 'field' }, make('label', { htmlFor: 'tool-steps' }, 'Most steps for one answer'), steps,
        make('p', { className: 'figures', id: 'steps-about' },
          `A step ends with calls, or with the answer; 1 to ${MOST_STEPS}.`)))),
  make('div', { className: 'foot' }, note,
    make('button', { type: 'button', className: 'primary', onclick: () => dialog.close() }, 'Done'))));
const dialog = createDialog('tools');
dialog.addEventListener('close', () => {
  connecting?.abort();
  subject.onDone();
});

/** Shows the servers, and keeps the focus. */
function showServers() {
  const focused = list.contains(document.activeElement) ? document.activeElement?.id : '';
  list.replaceChildren(...knownServers().map((known, i) => {
    const id = `server-${i}`, name = tidy(known.address);
    const usable = known.tools.filter(({ problem }) => problem === undefined);
    const about = dotted([count(usable.length, 'tool'), usable.length < known.tools.length
      && `${known.tools.length - usable.length} that cannot be used`, `MCP ${known.version}`]);
    const { input, box } = switchOf(id, known.address, about, ({ checked }) => {
      if (checked) return void connect(known.address);
      connecting?.abort();
      choose({ servers: changed(chosen().servers, known.address, false) });
      closeServer(known.address);
    });
    input.checked = chosen().servers.includes(known.address);
    const tools = known.tools.map(tool => make('li', {}, make('b', {}, make('bdi', {}, tool.name)),
      ...tool.description ? [make('p', {}, tool.description)] : [],
      ...tool.problem ? [make('p', { className: 'problem' }, `It cannot be used: ${tool.problem}.`)] : []));
    return make('li', {}, box, make('details', {}, make('summary', {}, 'What it offers',
      make('span', { className: 'hidden' }, ` at ${name}`)), make('ul', {}, ...tools)),
    make('button', { type: 'button', className: 'quiet', 'aria-label': `Remove ${name}`, onclick: () => {
      connecting?.abort();
      choose({ servers: changed(chosen().servers, known.address, false) });
      forgetServer(known.address);
      showServers();
      address.focus();
    } }, 'Remove'));
  }));
  if (focused) /** @type {HTMLElement | null} */ (list.querySelector(`#${focused}`))?.focus();
}

async function addServer() {
  if (knownServers().length >= MOST_SERVERS) {
    note.textContent = `The page knows at most ${MOST_SERVERS} servers. Remove one first.`;
  } else if (await connect(address.value.trim())) address.value = '';
}

/** Asks a server for its tools, and turns it on. @param {string} text  its address */
async function connect(text) {
  connecting?.abort();
  const { signal } = connecting = new AbortController();
  failure.replaceChildren();
  note.textContent = 'Asking the server for its tools';
  add.disabled = true;
  try {
    const server = new McpServer(text), known = await server.connect(signal);
    void server.close();
    await check(known, signal);
    if (signal.aborted) return false;
    keepServer(known);
    choose({ servers: changed(chosen().servers, known.address, true) });
    note.textContent = `${count(known.tools.length, 'tool')} added`;
    return true;
  } catch (error) {
    if (signal.aborted) return false;
    const why = explain(error);
    failure.replaceChildren(problem({ ...why, advice: why.advice || 'Try again later.' }));
    note.textContent = '';
    return false;
  } finally {
    if (connecting?.signal === signal) add.disabled = false;
    showServers();
  }
}

/** Notes which tools have schemas that answers cannot keep. @param {Known} known @param {AbortSignal} signal */
async function check({ tools }, signal) {
  const both = AbortSignal.any([signal, AbortSignal.timeout(1000 * PATIENCE)]);
  for (const [i, tool] of tools.entries()) {
    if (tool.problem !== undefined) continue;
    note.textContent = `Checking tool ${i + 1} of ${tools.length}`;
    const args = ['grammar', 'match', '--no-strict', '--json-schema', 'schema.json', '-'];
    const files = { 'schema.json': JSON.stringify(tool.parameters) };
    const { err } = await Plumb.command(args, { files, signal: both }).catch(() => ({ err: '' }));
    const [, why] = /PLUMB_ERROR_\w+: (.*)/.exec(err) ?? [];
    if (why) Object.assign(tool, { problem: tidy(`its schema is not supported: ${why}`), parameters: {} });
    if (both.aborted) return;
  }
}

/** @param {Subject} of */
export function openTools(of) {
  subject = of;
  // Servers may have been removed in another conversation.
  choose({ servers: chosen().servers.filter(one => knownServers().some(({ address }) => address === one)) });
  noSchema.hidden = !of.hasSchema;
  for (const { name, input } of own) input.checked = chosen().on.includes(name);
  steps.value = String(chosen().steps);
  steps.removeAttribute('aria-invalid');
  failure.replaceChildren();
  note.textContent = '';
  showServers();
  dialog.showModal();
}
