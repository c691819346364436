/* Runs a command that prints a line for each file that it makes, such as make, and shows one line in their place: on a
 * terminal it is rewritten, and otherwise the files are counted at the end.  What the command writes to standard error,
 * such as a compiler's warnings, is shown.  With V=1 in the environment everything is shown.
 *
 *   node tools/quietly.mjs WHAT COMMAND [ARGUMENT...]    WHAT: the subject of the line, such as "the engine" */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const [what, command, ...args] = process.argv.slice(2);
const isTerminal = process.stderr.isTTY, begun = performance.now();
/** The lines of files that were made. */
let files = 0;
const seconds = () => ((performance.now() - begun) / 1000).toFixed(0);

const child = spawn(command, args, { stdio: ['inherit', process.env.V ? 'inherit' : 'pipe', 'inherit'] });
if (child.stdout) {
  createInterface({ input: child.stdout }).on('line', line => {
    if (!line.startsWith('  ')) return void console.log(line);
    files++;
    if (isTerminal) process.stderr.write(`\r\x1b[Kbuild: ${what}: file ${files}, ${seconds()} s:${line.slice(1, 60)}`);
    else if (files === 1) process.stderr.write(`build: ${what}\n`);
  });
}
const code = await new Promise(resolve => {
  child.once('error', error => {
    console.error(`build: ${command}: ${error.message}`);
    resolve(1);
  });
  child.once('close', (status, signal) => resolve(signal ? 1 : status));
});
if (files > 0) {
  const clear = isTerminal ? '\r\x1b[K' : '';
  const end = code === 0 ? 'done' : 'failed';
  process.stderr.write(`${clear}build: ${what}: ${end} after ${files} files, ${seconds()} s\n`);
}
process.exitCode = code;
