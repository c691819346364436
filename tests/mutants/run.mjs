/** A child process whose TAP is read as it comes: the first failure ends it. */
import { spawn } from 'node:child_process';

/**
 * @param {string} program @param {string[]} args @param {{env?: Record<string, string | undefined>, seconds: number}} o
 * @returns {Promise<{failed: string, seconds: number}>}  failed: what failed first, empty if nothing did
 */
export function run(program, args, { env = process.env, seconds }) {
  return new Promise(resolve => {
    const begun = performance.now();
    let failed = '', rest = '', tail = '';
    const child = spawn(program, args, { env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    const stop = () => {
      try {
        process.kill(-(child.pid ?? 0), 'SIGKILL');
      } catch { /* gone already */ }
    };
    const leave = () => stop();
    process.once('exit', leave);
    const timer = setTimeout(() => {
      failed ||= 'time-out';
      stop();
    }, seconds * 1000);
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
      clearTimeout(timer);
      process.removeListener('exit', leave);
      stop();   // whatever it left running
      if (code !== 0 && !failed)
        failed = (/SUMMARY: .*|runtime error: .*|Assertion .* failed|hard rss limit.*/.exec(tail)?.[0]
          ?? (signal ? `died of ${signal}` : `exit status ${code}: ${tail.trim().split('\n').at(-1)}`)).slice(0, 150);
      resolve({ failed, seconds: (performance.now() - begun) / 1000 });
    });
  });
}
