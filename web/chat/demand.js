/* What the inspector computes only when it is asked to. */
import { make, note } from './dom.js';
import { explain } from './explain.js';

/** A button that computes, a place for what comes of it, and the sentence when nothing does.
 * @param {HTMLElement} view @param {string} label @param {(place: HTMLElement) => Promise<void>} compute */
export function onDemand(view, label, compute) {
  const place = make('div', { className: 'result' });
  const button = make('button', { type: 'button', className: 'primary', onclick: run }, label);
  async function run() {
    button.disabled = true;
    place.replaceChildren(make('p', { className: 'figures', role: 'status' }, 'Computing…'));
    try {
      const fresh = make('div', { className: 'result' });
      await compute(fresh);
      place.replaceChildren(...fresh.childNodes);
    } catch (error) {
      place.replaceChildren(problem(error));
    }
    button.disabled = false;
  }
  view.append(button, place);
  return run;
}

/** Why there is no result. @param {unknown} error */
export function problem(error) {
  const { title, advice, detail } = explain(error);
  return make('div', { className: 'problem' }, make('p', {}, `${title}. ${advice}`), note(detail));
}
