/* Loads models, and shows the progress or the reason of a failure in a strip above the message box. */
import { Plumb } from '../index.js';
import { dotted, duration, element, megabytes } from './dom.js';
import { explain } from './explain.js';
import { prepare } from './offered.js';

/** @typedef {import('../api/plumb.js').Model} Model
 * @typedef {import('../loader/source.js').Source} Source */

/** @param {() => import('../api/plumb.js').LoadOptions} options  the current settings
 * @param {(state: 'loading' | 'failed' | 'ready') => void} changed */
export function createLoader(options, changed) {
  const bar = element('bar', 'progress'), text = element('loading-text', 'p');
  /** @type {AbortController | undefined} */
  let running;
  /** @type {Model | undefined} */
  let model;
  /** @type {import('./offered.js').Kind} */
  let kind = 'answers';
  /** Resolves when earlier models are closed: two are never in memory at once. @type {Promise<unknown>} */
  let closing = Promise.resolve();
  const loader = {
    get model() { return model; },
    /** What the model does. */
    get kind() { return kind; },
    /** The model that is loaded, or that was to be loaded. @type {Source} */
    source: '',
    /** Replaces the model with this one. @param {Source} source */
    async load(source) {
      running?.abort();
      const controller = running = new AbortController();
      close(model);
      model = undefined;
      loader.source = source;
      bar.removeAttribute('value');
      text.textContent = 'Connecting';
      show('loading');
      await closing;
      if (running !== controller) return;
      try {
        const onProgress = (/** @type {import('../loader/progress.js').Progress} */ progress) => {
          if (running === controller) showProgress(progress);
        };
        const loaded = await Plumb.load(source, { ...options(), persist: true, signal: controller.signal, onProgress });
        const found = await prepare(loaded);
        if (running !== controller) return close(loaded);
        kind = found;
        model = loaded;
        running = undefined;
        show('ready');
      } catch (error) {
        if (running !== controller) return;
        running = undefined;
        loader.fail(source, explain(error));
      }
    },
    /** Shows why there is no model, and offers to load this one.
     * @param {Source} source @param {ReturnType<typeof explain>} why */
    fail(source, { title, advice, detail }) {
      element('retry', 'button').textContent = loader.source === source ? 'Try again' : 'Load it';   // not tried yet
      loader.source = source;
      element('failure-title', 'h2').textContent = title;
      element('failure-advice', 'p').textContent = advice;
      element('failure-detail', 'p').textContent = detail;
      show('failed');
    },
  };

  /** @param {Model | undefined} old */
  function close(old) {
    closing = Promise.all([closing, old?.close().catch(() => {})]);   // a model that broke down is gone, too
  }

  /** @param {import('../loader/progress.js').Progress} progress */
  function showProgress({ phase, bytes, total, rate, secondsLeft, attempt = 0 }) {
    if (phase === 'prepare' || phase === 'ready') {
      bar.removeAttribute('value');
      text.textContent = `${megabytes(bytes)} MB loaded, getting ready`;
      return;
    }
    if (total) bar.value = bytes / total;
    const amount = total ? `${megabytes(bytes)} of ${megabytes(total)} MB` : `${megabytes(bytes)} MB`;
    text.textContent = phase === 'wait'
      ? dotted([amount, `connection lost; trying again${attempt > 1 ? ` (${attempt})` : ''}`])
      : dotted([amount, phase === 'read' && 'from this device', `${megabytes(rate)} MB/s`,
        secondsLeft !== undefined && `${duration(secondsLeft)} left`]);
  }

  /** @param {'loading' | 'failed' | 'ready'} state */
  function show(state) {
    element('loading', 'section').hidden = state !== 'loading';
    element('failure', 'section').hidden = state !== 'failed';
    changed(state);
  }

  element('cancel', 'button').addEventListener('click', () => running?.abort());
  element('retry', 'button').addEventListener('click', () => void loader.load(loader.source));
  return loader;
}
