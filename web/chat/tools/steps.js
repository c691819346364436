/* The steps of an answer as the conversation shows them: each call folded, with its arguments and its result.  All of
 * it is shown as text: it comes from a model and from servers. */
import { dotted, make, paragraph, tidy } from '../dom.js';

/** @typedef {import('./kept.js').Call} Call
 * @typedef {import('./kept.js').Step} Step */
/** What happens to a call that has no result yet. @typedef {'asks' | 'runs'} State */

/** What the page's own tools have done, are doing, and could not do.
 * @type {Record<string, (given: any) => [string, string, string]>} */
const DONE = {
  calculate: ({ expression }) => [`Calculated ${expression}`, `Calculating ${expression}`,
    `Could not calculate ${expression}`],
  current_time: () => ['Looked at the clock', 'Looking at the clock', 'Could not tell the time'],
  fetch_page: ({ url }) => [`Fetched ${url}`, `Fetching ${url}`, `Did not fetch ${url}`],
};

/** What a call has done, as a line. @param {Call} call @param {State | 'ended'} [state] */
function titleOf({ name, arguments: given, at, result, failed }, state) {
  const place = `${tidy(name)}${at === undefined ? '' : ` at ${tidy(at)}`}`;
  let lines = [`Called ${place}`, `Calling ${place}`, `Called ${place}, which failed`];
  if (at === undefined && Object.hasOwn(DONE, name)) {
    try {
      lines = DONE[name](JSON.parse(given)).map(tidy);
    } catch {
      // The arguments are not there yet, or are not right.
    }
  }
  if (result === undefined && state !== 'ended') {
    return dotted([lines[1], state === 'asks' && 'waits for your answer']);
  }
  return failed || result === undefined ? lines[2] : name === 'calculate' ? `${lines[0]} = ${tidy(result)}` : lines[0];
}

/** One call. */
class CallView {
  #call;
  #title = make('summary');
  #body = make('div');
  details = make('details', { className: 'call', ontoggle: () => this.#fill() }, this.#title, this.#body);

  /** @param {Call} call */
  constructor(call) {
    this.#call = call;
    this.update();
  }

  /** Shows the call as it is now. @param {State | 'ended'} [state] */
  update(state) {
    const { result, failed } = this.#call, isDone = result !== undefined && !failed;
    this.#title.textContent = titleOf(this.#call, state);
    this.details.dataset.state = isDone ? 'done' : failed || state === 'ended' ? 'failed' : state ?? 'runs';
    this.#fill();
  }

  /** The body is made when it is first seen: an answer may have hundreds of calls. */
  #fill() {
    if (!this.details.open) return;
    const { name, at, arguments: given, result } = this.#call;
    const part = (/** @type {string} */ title, /** @type {string} */ text) => [paragraph(title), make('pre', {}, text)];
    this.#body.replaceChildren(...part('Tool', dotted([name, at])), ...part('Arguments', given),
      ...result === undefined ? [] : part('Result', result));
  }
}

/** The steps of one answer. */
export class Steps {
  element = make('div', { className: 'steps' });
  /** @type {Map<Call, CallView>} */
  #calls = new Map();
  /** @type {Map<Step, {box: HTMLElement, said: HTMLElement}>} */
  #steps = new Map();
  /** @type {Map<string, State>} */
  #states = new Map();

  /** Shows steps as they are now. @param {Step[]} [steps] @param {boolean} [isGrowing]  false: what has no result now
   * will never have one */
  show(steps = [], isGrowing = true) {
    for (const [step, { box }] of this.#steps) if (!steps.includes(step)) box.remove();
    for (const step of steps) {
      const { box, said } = this.#steps.get(step) ?? this.#add(step);
      said.textContent = step.content ?? '';
      for (const call of step.calls) {
        const known = this.#calls.get(call), view = known ?? new CallView(call);
        if (!known) box.append(view.details);
        this.#calls.set(call, view);
        view.update(isGrowing ? this.#states.get(call.id) : 'ended');
      }
    }
  }

  /** Says what happens to a call. @param {string} id @param {State} state */
  setState(id, state) {
    this.#states.set(id, state);
    for (const [call, view] of this.#calls) if (call.id === id) view.update(state);
  }

  /** @param {Step} step */
  #add(step) {
    const said = make('p', { className: 'plain' }), box = make('div', {}, said);
    if (step.reasoning) said.before(reasoningOf(step.reasoning, 'Reasoning'));
    this.element.append(box);
    this.#steps.set(step, { box, said });
    return { box, said };
  }
}

/** What the model thought, folded. @param {string} reasoning @param {'Reasoning' | 'Thinking'} title */
export const reasoningOf = (reasoning, title) =>
  make('details', { className: 'reasoning' }, make('summary', {}, title), make('div', {}, reasoning));
