/** The installed package in Deno and in Bun: the first example of web/README.md, and its server for both. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { createInterface } from 'node:readline';
import { project, root } from './helpers.mjs';
import { examplesFor, expectedOf, writeRecipe } from './readme.mjs';

/** The commands of both with those options that run and serve need. */
const RUNTIMES = {
  deno: { run: ['run', '--allow-all'], serve: ['serve', '--allow-all', '--host', '127.0.0.1', '--port', '0'] },
  bun: { run: ['run'], serve: ['run', '--port=0'] },
};
const programOf = name => `${root}tests/package/runtimes/node_modules/.bin/${name}`;

let folder;
before(() => {
  folder = project();
  symlinkSync(`${root}models`, join(folder, 'models'));
  writeFileSync(join(folder, 'main.js'), examplesFor('node')[0].code);
  writeRecipe('runtimes', folder);
});

for (const [name, { run, serve }] of Object.entries(RUNTIMES)) {
  // Without the folder, `make setup` is not done, and the tests fail.
  const skip = existsSync(join(programOf(name), '..')) && !existsSync(programOf(name))
    && `npm has no ${name} for this machine`;
  const env = { ...process.env, PLUMB_CACHE: '/nowhere', NO_COLOR: '1', HOST: '127.0.0.1' };
  test(`${name} runs the example of Node`, { skip }, () => {
    const said = execFileSync(programOf(name), [...run, 'main.js'], { cwd: folder, env, encoding: 'utf8' });
    assert.match(said.replaceAll('"', "'"), expectedOf(examplesFor('node')[0].code));
  });
  test(`${name} serves`, { skip }, async t => {
    const child = spawn(programOf(name), [...serve, 'server.js'], { cwd: folder, env });
    t.after(async () => {
      child.kill();
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    });
    const lines = [child.stdout, child.stderr].map(input => createInterface({ input }));
    const url = await new Promise(resolve => {
      for (const each of lines) each.on('line', line => resolve(/http:\/\/[^/\s]+/.exec(line)?.[0]));
    });
    assert.ok(url);
    const response = await fetch(`${url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify(
      { model: 'smol', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 4, stream: true }) });
    assert.equal(response.status, 200);
    assert.match(await response.text(), /^data: \{[^]*\ndata: \[DONE\]\s*$/);
  });
}
