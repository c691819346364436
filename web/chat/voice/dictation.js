/* Dictation: a microphone beside the message box writes what the reader says.  The browser recognizes the words, on
 * this machine or by its own service, as the reader has chosen in the settings.
 * https://webaudio.github.io/web-speech-api/ */
import { element, iconButton, toast } from '../dom.js';

/** @typedef {'local' | 'service'} Where  recognizes the words: this machine, or the service of the browser */

/** What went wrong, by the error of the browser. @type {Record<string, string>} */
const WHY = {
  'not-allowed': 'The browser does not allow this page to use the microphone.',
  'audio-capture': 'The browser has found no microphone.',
  'network': 'The browser’s service cannot be reached.',
  'service-not-allowed': 'The browser does not allow its speech recognition here.',
};
/** Errors that are none to the reader: nothing was said, or the page has ended it. */
const SILENT = ['no-speech', 'aborted'];

const field = element('prompt', 'textarea');
const button = iconButton('microphone', 'Dictate', () => recognition ? recognition.stop() : void start());
button.id = 'dictate';
/** @type {Where} */
let where = 'local';
/** Writes what is said now. @type {any} */
let recognition;

/** The browser's own class. */
const recognizer = () => /** @type {any} */ (globalThis).SpeechRecognition
  ?? /** @type {any} */ (globalThis).webkitSpeechRecognition;

/** Shows the microphone, or takes it away. @param {Where | 'off'} wanted */
export function offerDictation(wanted) {
  if (wanted === 'off') {
    recognition?.abort();
    button.remove();
    return;
  }
  where = wanted;
  if (!button.isConnected) element('attach', 'button').after(button);
}

async function start() {
  const Recognizer = recognizer(), lang = navigator.language;
  if (!Recognizer) return void toast('This browser does not recognize speech.');
  button.disabled = true;
  const isReady = where === 'service' || await hasLanguage(Recognizer, lang).catch(() => false);
  button.disabled = false;
  if (isReady) listen(new Recognizer(), lang);
}

/** Whether this machine recognizes a language.  Otherwise it says what can be done.
 * @param {any} Recognizer @param {string} lang @returns {Promise<boolean>} */
async function hasLanguage(Recognizer, lang) {
  const options = { langs: [lang], processLocally: true }, status = await Recognizer.available?.(options);
  if (status === 'available') return true;
  if (status === 'downloadable') {
    toast(`The browser must download a language pack for ${lang} first.`, 'Download it', async () => {
      const isInstalled = await Recognizer.install(options).catch(() => false);
      toast(isInstalled ? 'The language pack is installed.' : 'The language pack could not be installed.');
    });
  } else {
    toast(status === 'downloading' ? 'The browser is still downloading the language pack.'
      : `This browser does not recognize ${lang} on this machine. The settings can allow its service.`);
  }
  return false;
}

/** @param {any} started @param {string} lang */
function listen(started, lang) {
  recognition = started;
  Object.assign(started, { lang, continuous: true, interimResults: true, ...where === 'local'
    && { processLocally: true } });
  const before = field.value && !/\s$/.test(field.value) ? `${field.value} ` : field.value;
  let written = field.value;
  started.onresult = (/** @type {{results: Iterable<{transcript: string}[]>}} */ { results }) => {
    if (field.value !== written) return started.abort();   // the reader writes, or has sent the message
    written = before + [...results].map(([{ transcript }]) => transcript).join('');
    field.value = written;
    field.dispatchEvent(new Event('input'));
  };
  started.onerror = (/** @type {{error: string}} */ { error }) => {
    if (!SILENT.includes(error)) toast(WHY[error] ?? `The browser could not recognize speech (${error}).`);
  };
  started.onend = () => {
    recognition = undefined;
    button.setAttribute('aria-pressed', 'false');
  };
  button.setAttribute('aria-pressed', 'true');
  try {
    started.start();
  } catch {
    started.onend();
    toast('The browser could not begin to recognize speech.');
  }
}

field.form?.addEventListener('submit', () => recognition?.abort());
