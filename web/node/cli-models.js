/* The commands cache and preflight: what there is to know of models before they run. */
import { Plumb } from './index.js';
import { folderPath } from './folder.js';
import { LOAD, pick, Refusal } from './cli-options.js';
import { complain, jsonLine, report, shown, watchOutput } from './cli-terminal.js';

const mb = (/** @type {number} */ bytes) => (bytes / 1e6).toFixed(1);

/** Lists the copies of URLs, or removes one.
 * @param {string[]} words @param {Record<string, any>} values @returns {Promise<number>} the exit code */
export async function cache([what, url, ...rest], { json }) {
  if (what === 'remove' && url && rest.length === 0) {
    if (!/^https?:/i.test(url)) throw new Refusal(`cache: ${url} is no URL, and only URLs have copies`);
    if (await Plumb.removeCached(url)) return 0;
    throw new Refusal(`cache: there is no copy of ${url}`, 1);
  }
  if (what !== undefined) throw new Refusal('cache: it is "plumb cache" or "plumb cache remove URL"');
  watchOutput(() => {});
  const copies = await Plumb.listCached();
  if (copies.length === 0) complain(`cache: no copies are in ${folderPath()}`);
  for (const copy of copies) {
    process.stdout.write(json ? jsonLine(copy) : shown(process.stdout, `${mb(copy.bytes).padStart(9)} MB${
      copy.complete ? '' : ` of ${copy.size === undefined ? '?' : mb(copy.size)} MB`}  ${copy.url}\n`));
  }
  return 0;
}

/** Says from the header whether a model can run here, in what memory and how fast.
 * @param {string[]} files @param {Record<string, any>} values
 * @returns {Promise<number>} the exit code: 1 too if it cannot */
export async function preflight(files, values) {
  if (files.length === 0) throw new Refusal('preflight: MODEL is needed; see plumb preflight --help');
  watchOutput(() => {});
  try {
    const plan = await Plumb.preflight(files, pick(values, LOAD));
    const { memory, fits, speed } = plan;
    const can = plan.supported && fits;
    if (values.json) {
      process.stdout.write(jsonLine(plan));
      return can ? 0 : 1;
    }
    const lines = [
      `${plan.name ?? files[0]}: ${plan.architecture ?? 'architecture unknown'}`
        + (plan.parameters ? `, ${mb(plan.parameters)} M parameters` : '')
        + (plan.fileBytes ? `, ${mb(plan.fileBytes)} MB` : ''),
      ...plan.problems.map(({ code, message }) => `not supported: ${code}: ${message}`),
      ...memory ? [`memory ${mb(memory.total)} MB of at most ${mb(memory.limit)}: weights ${mb(memory.weights)}, ${
        plan.contextLength} tokens of context ${mb(memory.kv)}, the rest ${mb(memory.scratch + memory.module)}${
        fits ? '' : '; too much'}`] : [],
      ...speed ? [`about ${speed.prefill.toFixed(0)} tokens/s of a prompt, ${speed.decode.toFixed(0)} of an answer, ${
        plan.threads} thread${plan.threads === 1 ? '' : 's'}`] : [],
      ...plan.threadsNote ? [plan.threadsNote] : [],
      ...plan.chat === false ? ['no chat template: it can continue texts only'] : [],
      `${plan.cached ? `${mb(plan.cached.bytes)} MB of it are on this machine, ` : ''}${
        plan.bytesRead} bytes were read to know this`,
    ];
    for (const line of lines) process.stdout.write(shown(process.stdout, `${line}\n`));
    return can ? 0 : 1;
  } catch (error) {
    return report(error, files.at(-1) ?? '', values.json);
  }
}
