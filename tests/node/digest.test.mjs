/** What the search page identifies a model by.  Ground truth: sha256 of node:crypto. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { openAsBlob } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { digestOf } from '../../web/examples/search/digest.js';
import { tiny } from './helpers.mjs';

test('chosen files have the digest of their bytes; one that was changed or removed since has another each time',
  async t => {
    const folder = await mkdtemp(join(tmpdir(), 'plumb-digest-')), path = join(folder, 'm.gguf');
    t.after(() => rm(folder, { recursive: true }));
    const file = new File([tiny], 'm.gguf');
    assert.equal(await digestOf([file, file]), createHash('sha256').update(tiny).update(tiny).digest('hex'));
    for (const change of [() => writeFile(path, 'other'), () => rm(path)]) {
      await writeFile(path, tiny);
      const chosen = new File([await openAsBlob(path)], 'm.gguf');
      await change();
      const [one, other] = [await digestOf(chosen), await digestOf(chosen)];
      assert.match(one, /^[0-9a-f]{64}$/);
      assert.notEqual(one, other);
    }
  });
