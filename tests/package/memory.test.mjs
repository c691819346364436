/** Closed models leave no memory behind: after twenty models that warm up a process, twenty more let neither its heap
 * nor the process grow by 5 %.  A model takes 16 MB. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { tinyPath, root } from '../node/helpers.mjs';

for (const worker of [false, true]) {
  test(`40 models loaded, used and closed, ${worker ? 'each in a worker' : 'in this thread'}`, t => {
    const sizes = JSON.parse(execFileSync(process.execPath, ['--expose-gc', '--input-type=module', '-e', `
      import { Plumb } from '${root}web/node/index.js';
      const heap = [], process = [];
      for (let i = 0; i < 40; i++) {
        const model = await Plumb.load(${JSON.stringify(tinyPath)}, { worker: ${worker} });
        for await (const _ of model.generate('Hello', { maxTokens: 2 }));
        await model.close();
        await new Promise(resolve => setTimeout(resolve, 50));
        gc();
        const { rss, heapUsed } = globalThis.process.memoryUsage();
        heap.push(heapUsed);
        process.push(rss);
      }
      console.log(JSON.stringify({ heap, process }));`], { encoding: 'utf8' }));
    for (const [name, all] of Object.entries(sizes)) {
      t.diagnostic(`${name}: ${all.map(size => (size / 1e6).toFixed(2)).join(' ')}`);
      const [warm, last] = [all.slice(17, 20), all.slice(-3)].map(three => Math.min(...three));
      assert.ok(last < 1.05 * warm, `${name}: ${warm} bytes after 20 models, ${last} after 40`);
    }
  });
}
