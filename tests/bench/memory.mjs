/** How much memory a browser takes. */
import { readFileSync } from 'node:fs';

/** Bytes that all processes of the browser hold, counting shared pages once; NaN except on Linux.
 * @param {import('playwright-core').CDPSession} session  of the browser */
export async function held(session) {
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  let bytes = 0;
  for (const { id } of processInfo) {
    try {
      bytes += 1024 * Number(/^Pss: *(\d+)/m.exec(readFileSync(`/proc/${id}/smaps_rollup`, 'utf8'))[1]);
    } catch (error) {
      if (error.code !== 'ENOENT' && error.code !== 'ESRCH') return NaN;
    }
  }
  return bytes;
}
