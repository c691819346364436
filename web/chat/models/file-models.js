/* Models that are files of this computer.  A page cannot find a file again by its name, so the handles of files are
 * kept where the browser has some, and the browser asks the reader before it lets the page read them again.  Without a
 * handle the reader is asked for the file.  A model has the key "file:NAME", of its first file. */
import { openDatabase } from '../database.js';
import { count, size, tidy } from '../dom.js';
import { ExplainedError } from '../explain.js';

/** @typedef {FileSystemFileHandle & {queryPermission?: () => Promise<string>, requestPermission?: () =>
 *   Promise<string>}} Handle
 * @typedef {{id: string, names: string[], sizes: number[], handles: Handle[], when: number}} Kept
 * @typedef {import('../../loader/source.js').Source} Source */

const PREFIX = 'file:';
/** How many models are remembered. */
const MOST = 20;

/** @type {ReturnType<typeof openDatabase> | undefined} */
let opening;
const database = () => opening ??= openDatabase('plumb-files', 'models');

/** @param {unknown} source @returns {source is string} */
export const isFileKey = source => typeof source === 'string' && source.startsWith(PREFIX);

/** The files that a source is; undefined if it is something else. @param {Source} source
 * @returns {File[] | undefined} */
export function filesOf(source) {
  const all = [source].flat();
  return all.every(one => one instanceof File) ? /** @type {File[]} */ (all) : undefined;
}

/** @param {File[]} files */
export const keyOf = files => PREFIX + files[0].name;

/** How the page shows the model of a key. @param {string} key */
export const nameOfKey = key => tidy(key.slice(PREFIX.length).replace(/\.gguf$/i, ''));

/** Remembers the files of a model. @param {File[]} files @param {Handle[]} handles  of these files, or others.  Files
 * without handles of their own have those that they had before */
export async function keepFiles(files, handles) {
  const store = await database(), all = /** @type {Kept[]} */ (await store.read()), key = keyOf(files);
  const before = all.find(({ id, sizes }) => id === key && sizes.join() === files.map(({ size }) => size).join());
  const known = [...handles, ...before?.handles ?? []];
  const own = files.map(({ name }) => known.find(handle => handle.name === name));
  const old = all.sort((a, b) => b.when - a.when).slice(MOST - 1);
  await store.write(records => {
    for (const { id } of old) records.delete(id);
    records.put({ id: key, names: files.map(({ name }) => name), sizes: files.map(({ size }) => size),
      handles: own.every(Boolean) ? own : [], when: Date.now() });
  });
}

/** @param {string} key @returns {Promise<Kept | undefined>} */
const recordOf = async key => (await (await database()).get([key]))[0];

/** Why these are not the files of a key; undefined if they may be. @param {string} key @param {File[]} files */
export async function differenceOf(key, files) {
  const record = await recordOf(key).catch(() => undefined);
  const names = record?.names ?? [key.slice(PREFIX.length)], chosen = files.map(({ name }) => name);
  if (names.join('/') !== chosen.join('/')) return `Expected ${tidy(names[0])}, not ${tidy(chosen[0])}.`;
  const [before, now] = [record?.sizes ?? [], files.map(({ size }) => size)].map(sizes =>
    sizes.reduce((a, b) => a + b, 0));
  return !record || before === now ? undefined : `It had ${size(before)}, and this one has ${size(now)}.`;
}

/** The files of a key, with the browser's permission, for which it may ask after a click.  Throws an ExplainedError if
 * the reader must do something. @param {string} key @returns {Promise<File[]>} */
export async function reopen(key) {
  const name = nameOfKey(key), record = await recordOf(key).catch(() => undefined);
  if (!record || record.handles.length === 0) throw new ChooseFile(`${name} is a file on your computer`, record);
  for (const handle of record.handles) {
    const allowed = await handle.queryPermission?.() ?? 'granted';
    if (allowed === 'granted' || await handle.requestPermission?.().catch(() => '') === 'granted') continue;
    throw new ExplainedError(`${name} is a file on your computer`,
      'Load it again, and allow the browser to let this page read it; or choose another model.', '');
  }
  const files = await Promise.all(record.handles.map(handle => handle.getFile())).catch(() => {
    throw new ChooseFile(`${name} is not where it was`, record);
  });
  const difference = await differenceOf(key, files);
  if (difference === undefined) return files;
  await keepFiles(files, record.handles);   // the reader knows now, and may try again
  throw new ExplainedError(`The file ${name} has changed`, 'Load it again if it is what you want.', difference);
}

/** The reader must choose a file again. */
export class ChooseFile extends ExplainedError {
  /** @param {string} title @param {Kept | undefined} record */
  constructor(title, record) {
    const names = record?.names ?? [];
    super(title, 'Choose it again, or choose another model.', names.length > 1 ? `${tidy(names[0])} and ${
      count(names.length - 1, 'other file')}` : names.map(tidy).join(''));
  }
}
