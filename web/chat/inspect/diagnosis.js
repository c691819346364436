/* What `plumb diagnose` says of another engine's dump: the verdict as a sentence, its evidence, the whole report. */
import { Plumb } from '../../index.js';
import { announce, make, paragraph, problem } from '../dom.js';
import { ExplainedError, explain } from '../explain.js';

/** Diagnoses a dump in a worker, and fills the box with the progress and a button that stops it, and then with the
 * verdict, or with the reason why there is none.
 * @param {HTMLElement} box @param {() => Promise<Record<string, Blob>>} filesOf  the model's files, in order
 * @param {File} dump @param {AbortSignal} signal  ends it, too */
export async function showDiagnosis(box, filesOf, dump, signal) {
  const stop = new AbortController(), abort = () => stop.abort();
  const line = make('span', { className: 'figures', role: 'status' }, 'Looking for the mistake…');
  const bar = make('progress', { max: 100 });
  bar.setAttribute('aria-label', 'Diagnosis');
  box.replaceChildren(bar, make('div', { className: 'row' }, line, make('button', { type: 'button', onclick: abort },
    'Stop')));
  signal.addEventListener('abort', abort);
  try {
    const model = await filesOf();
    const { code, out, err } = await Plumb.command(['diagnose', ...Object.keys(model), '--against', 'theirs'], {
      files: { ...model, theirs: dump }, signal: stop.signal, onProgress(text) {
        const [, percent] = /^diagnose (\d+) %/.exec(text) ?? [];
        if (percent) bar.value = Number(percent);
        line.textContent = text.replace(/^diagnose/, 'Looking for the mistake:')
          .replace(/^loading/, 'Reading the model:');
      } });
    if (!out.trim()) {
      throw new ExplainedError('This dump cannot be diagnosed', 'Choose a dump of the same model.',
        err.trim().replace(/^plumb: theirs:/, `${dump.name}:`));
    }
    const report = read(out);
    box.replaceChildren(
      make('p', { className: 'verdict', 'data-agree': String(code === 0) }, report.verdict),
      make('ul', { className: 'evidence' }, ...report.evidence.map(text => make('li', {}, text))),
      make('details', {}, make('summary', {}, 'The whole report'), make('pre', { className: 'wide', tabIndex: 0,
        role: 'region', 'aria-label': 'The whole report' }, out.trim())));
    announce(report.verdict);
  } catch (error) {
    if (signal.aborted) throw error;
    box.replaceChildren(stop.signal.aborted ? paragraph('The diagnosis was stopped.') : problem(explain(error)));
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

/** The verdict of a report, and what supports it: what is unusual about the tokens, the lines of the mistake that fits
 * best, and those after the verdict up to its advice. @param {string} out */
function read(out) {
  const lines = out.trim().split('\n'), at = lines.findIndex(line => line.startsWith('verdict: '));
  const first = lines.findIndex(line => line.startsWith('1. '));
  const after = (/** @type {number} */ from) => {
    const rest = lines.slice(from + 1), end = rest.findIndex(line => !/^ +(?!to narrow it down)/.test(line));
    return (end < 0 ? rest : rest.slice(0, end)).map(line => line.trim());
  };
  return {
    verdict: lines[at]?.slice('verdict: '.length) ?? lines[0],
    evidence: [...lines.filter(line => line.startsWith('their tokens: ')),
      ...first >= 0 ? [lines[first].slice('1. '.length), ...after(first)] : [], ...at >= 0 ? after(at) : []],
  };
}
