/** A child process whose TAP is read as it comes: the first failure ends it. */
import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';

/** Milliseconds between two looks at the time that a child used, and how many without progress mean that it hangs. */
const LOOK = 2000, STILL = 90;

/** A process of Linux and its descendants that live, which may be in groups of their own, with the clock ticks, 100 a
 * second, that each used with the children that it waited for. @returns {Map<number, number>} */
function family(root) {
  const all = new Map();   // process -> [parent, ticks]
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    try {
      // After the name: the state, the parent, and at 11 to 14 the ticks of the process and of its children.
      const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1).split(' ').map(Number);
      all.set(+pid, [fields[1], fields.slice(11, 15).reduce((a, b) => a + b)]);
    } catch { /* it has ended */ }
  }
  const isBelow = pid => pid === root || (all.has(pid) && isBelow(all.get(pid)[0]));
  return new Map([...all].filter(([pid]) => isBelow(pid)).map(([pid, [, ticks]]) => [pid, ticks]));
}

/**
 * Limits are of the processor's time, so that a busy machine ends nothing early.
 * @param {string} program @param {string[]} args
 * @param {{env?: Record<string, string | undefined>, seconds: number}} o  seconds of the processor
 * @returns {Promise<{failed: string, seconds: number}>}  failed: what failed first, empty if nothing did; the seconds
 *   that it took
 */
export function run(program, args, { env = process.env, seconds }) {
  return new Promise(resolve => {
    const begun = performance.now();
    let failed = '', rest = '', tail = '', used = 0, still = 0;
    const child = spawn(program, args, { env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    const stop = () => {
      for (const pid of [-(child.pid ?? 0), ...family(child.pid).keys()])
        try {
          process.kill(pid, 'SIGKILL');
        } catch { /* gone already */ }
    };
    const leave = () => stop();
    process.once('exit', leave);
    const timer = setInterval(() => {
      const now = [...family(child.pid).values()].reduce((a, b) => a + b, 0);
      still = now > used ? 0 : still + 1;
      used = Math.max(used, now);
      if (used < 100 * seconds && still < STILL) return;
      failed ||= still < STILL ? 'time-out' : 'stands still: time-out';
      stop();
    }, LOOK);
    child.stdout.on('data', data => {
      const lines = (rest + data).split('\n');
      rest = lines.pop() ?? '';
      const bad = lines.find(line => /^\s*not ok /.test(line));
      if (bad && !failed) {
        failed = bad.replace(/^\s*not ok \d+ - /, '').slice(0, 150);
        stop();
      }
    });
    child.stderr.on('data', data => { tail = (tail + data).slice(-20000); });
    child.on('error', error => { failed ||= error.message; });
    child.on('close', (code, signal) => {
      clearInterval(timer);
      process.removeListener('exit', leave);
      stop();   // whatever it left running
      if (code !== 0 && !failed)
        failed = (/SUMMARY: .*|runtime error: .*|Assertion .* failed|hard rss limit.*/.exec(tail)?.[0]
          ?? (signal ? `died of ${signal}` : `exit status ${code}: ${tail.trim().split('\n').at(-1)}`)).slice(0, 150);
      resolve({ failed, seconds: (performance.now() - begun) / 1000 });
    });
  });
}
