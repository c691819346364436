/* Buttons for what the inspector computes only on request. */
import { make, paragraph, problem } from '../dom.js';
import { explain } from '../explain.js';

/** All computations that run, in any view. @type {Set<AbortController>} */
const runs = new Set();

/** Stops them. */
export function stopRuns() {
  for (const run of runs) run.abort();
}

/** Adds a button that starts a computation, and a place for its result or for the reason of its failure.
 * @param {HTMLElement} view @param {string} label
 * @param {(place: HTMLElement, signal: AbortSignal, show: () => void) => Promise<void>} compute
 *   a new run stops the one before.  show: shows what it has put into the place so far, which it may then change */
export function addRunButton(view, label, compute) {
  const place = make('div', { className: 'result' });
  const button = make('button', { type: 'button', className: 'primary', onclick: run }, label);
  /** @type {AbortController | undefined} */
  let running;
  async function run() {
    running?.abort();
    const controller = running = new AbortController();
    runs.add(controller);
    button.disabled = true;
    place.replaceChildren(make('p', { className: 'figures', role: 'status' }, 'Computing…'));
    try {
      const fresh = make('div', { className: 'result' });
      const show = () => {
        if (running === controller) place.replaceChildren(...fresh.childNodes);
      };
      await compute(fresh, controller.signal, show);
      if (fresh.hasChildNodes()) show();
    } catch (error) {
      const why = controller.signal.aborted ? paragraph('Stopped') : problem(explain(error));
      if (running === controller) place.replaceChildren(why);
    }
    runs.delete(controller);
    if (running === controller) button.disabled = false;
  }
  view.append(button, place);
  return run;
}
