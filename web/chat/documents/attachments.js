/* What is attached to the message that is being written: files that were chosen, dropped or pasted, as a list of names
 * above the message box.  It also knows the texts that are too long to be stored with a conversation. */
import { count, dotted, element, iconButton, make, paragraph, size, toast } from '../dom.js';
import { storable } from './stored.js';

/** @typedef {import('./stored.js').Document} Document
 * @typedef {import('../conversation/conversation-store.js').Message} Message */

/** Documents of one message at most. */
const MOST = 20;

export class Attachments {
  #changed;
  #list = element('attached', 'ul');
  /** Those that were read, in order. @type {(Document & {text: string})[]} */
  #documents = [];
  #reading = 0;
  /** The last file that is read, or waits for it. @type {Promise<unknown>} */
  #last = Promise.resolve();
  /** Texts of this visit by the digests of their files. @type {Map<string, Document & {text: string}>} */
  #texts = new Map();

  /** @param {() => void} changed */
  constructor(changed) {
    this.#changed = changed;
    const chooser = element('attach-file', 'input');
    element('attach', 'button').addEventListener('click', () => chooser.click());
    chooser.addEventListener('change', () => {
      const files = [...chooser.files ?? []];
      chooser.value = '';
      this.add(files);
    });
    element('prompt', 'textarea').addEventListener('paste', event => {
      const files = [...event.clipboardData?.files ?? []];
      if (files.length === 0) return;
      event.preventDefault();
      this.add(files);
    });
  }

  /** Whether a file is being read. */
  get isReading() { return this.#reading > 0; }

  /** Reads files, and attaches them. @param {File[]} files */
  add(files) {
    const room = MOST - this.#documents.length - this.#reading;
    if (files.length > room) toast(`A message has at most ${MOST} documents`);
    for (const file of files.slice(0, Math.max(0, room))) void this.#attach(file);
  }

  /** @param {File} file */
  async #attach(file) {
    const controller = new AbortController(), { signal } = controller, { name } = file;
    const note = make('span', { className: 'figures' }, 'waiting'), bar = make('progress', { 'aria-label': 'Reading' });
    const chip = this.#chip(name, [note, bar], () => controller.abort());
    this.#reading++;
    this.#changed();
    try {
      const document = await this.#inTurn(async () => {
        note.textContent = 'reading';
        const { readDocument } = await import('./library.js');
        return readDocument(file, { signal, onProgress({ page, total }) {
          note.textContent = `page ${page} of ${total}`;
          bar.max = total;
          bar.value = page;
        } });
      });
      if (signal.aborted) return;
      this.#texts.set(document.digest, document);
      if (this.#documents.every(({ digest }) => digest !== document.digest)) {
        this.#documents.push(document);
        chip.replaceWith(this.#chip(document.name, [figuresOf(document)], () => {
          this.#documents = this.#documents.filter(one => one !== document);
          this.#changed();
        }));
      }
      const { total = 0, pages = [] } = document;
      if (pages.length < total) toast(`Only the first ${count(pages.length, 'page')} of ${document.name} are read`);
    } catch (error) {
      if (signal.aborted) return;
      const { message } = /** @type {Error} */ (error), { nameOf } = await import('./stored.js');
      toast(`Not attached: ${nameOf(name)}. ${message}.`, 'Close', () => {});
    } finally {
      chip.remove();
      this.#reading--;
      this.#changed();
    }
  }

  /** Reads one file after the other: each may take much memory. @template T @param {() => Promise<T>} read
   * @returns {Promise<T>} */
  #inTurn(read) {
    const turn = this.#last.then(read);
    this.#last = turn.catch(() => {});
    return turn;
  }

  /** Adds an entry to the list. @param {string} name @param {Node[]} about  after the name
   * @param {() => void} removed */
  #chip(name, about, removed) {
    const remove = iconButton('close', `Remove ${name}`, () => {
      const next = chip.nextElementSibling ?? chip.previousElementSibling;
      chip.remove();
      removed();
      (next?.querySelector('button') ?? element('attach', 'button')).focus();
    });
    const chip = make('li', {}, make('bdi', {}, name), ...about, remove);
    this.#list.append(chip);
    return chip;
  }

  /** Removes what is attached from the box, and returns it for a message. */
  take() {
    const documents = this.#documents.map(storable);
    this.#documents = [];
    this.#list.replaceChildren();
    return documents;
  }

  /** A document of the conversation with its text, if that is known.
   * @param {string} digest @param {Message[]} messages */
  document(digest, messages) {
    const stored = messages.flatMap(({ documents = [] }) => documents).filter(one => one.digest === digest);
    return stored.find(({ text }) => text !== undefined) ?? this.#texts.get(digest) ?? stored[0];
  }
}

/** Such as "12 kB · 3 pages". @param {Document} document */
export const figuresOf = ({ size: bytes, total }) =>
  paragraph(dotted([size(bytes), total !== undefined && count(total, 'page')]));
