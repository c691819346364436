/** What Node cannot do ends in an error that says what to do instead: the entry for browsers, addresses that fetch
 * refuses, and addresses of Blobs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from '../../web/openai.js';
import { Plumb as InBrowser } from '../../web/index.js';
import { Plumb } from '../../web/node/index.js';
import { fails, tiny, tinyPath } from './helpers.mjs';

/** Whatever takes a model. */
const calls = (plumb, source, options) =>
  ({ load: () => plumb.load(source, options), preflight: () => plumb.preflight(source, options) });

test('the entry for browsers says in Node which one to import', async () => {
  for (const source of [tinyPath, 'http://127.0.0.1:1/m.gguf', tiny, new Blob([tiny])]) {
    for (const options of [{}, { worker: false }]) {
      for (const call of Object.values(calls(InBrowser, source, options))) {
        await fails(call(), 'PLUMB_ERROR_UNSUPPORTED', /the entry .* for browsers: in Node import 'plumb-llm'/);
      }
    }
  }
  await fails(InBrowser.command(['--help']), 'PLUMB_ERROR_UNSUPPORTED', /for browsers/);
  const asked = new OpenAI().embeddings.create({ model: tinyPath, input: 'a' });
  await fails(asked, 'PLUMB_ERROR_UNSUPPORTED', /for browsers/);
});

test('a blob: URL is loaded until it is revoked', async () => {
  const url = URL.createObjectURL(new Blob([tiny])), { fileBytes, fits } = await Plumb.preflight(url);
  assert.deepEqual([fileBytes, fits], [tiny.length, true]);
  const [model, other] = await Promise.all([Plumb.load(url), Plumb.load(tinyPath)]);
  assert.deepEqual(await model.feed([72, 101]), await other.feed([72, 101]));
  await Promise.all([model.close(), other.close()]);
  URL.revokeObjectURL(url);
  for (const gone of [url, 'blob:nodedata:none', 'blob:https://a.example/1']) {
    for (const call of Object.values(calls(Plumb, gone))) {
      await fails(call(), 'PLUMB_ERROR_IO', /^blob:.*: this process has no Blob with this URL, or it was revoked$/);
    }
  }
});

test('a message shows the whole path of a file, also with "@"', async () => {
  await fails(Plumb.load('/tmp/a@b/m-00001-of-01000.gguf'), 'PLUMB_ERROR_ARGUMENT',
    /^\/tmp\/a@b\/m-00001-of-01000.gguf: the name says that the model has 1000 parts/);
});

test('a URL with a password is refused, and no message shows the password', async () => {
  for (const [url, shown] of [
    ['http://user:pa%40ss@127.0.0.1:1/m.gguf', 'http://127.0.0.1:1/m.gguf: '],
    ['https://pa%40ss@a.example/m.gguf?a=b@c', 'https://a.example/m.gguf?...: '],
    ['HTTP://user:pa%40ss@127.0.0.1:1/m-00001-of-00002.gguf', 'http://127.0.0.1:1/m-00001-of-00002.gguf: '],
    ['https:user:pa@ss@a.example/m.gguf', 'https://a.example/m.gguf: '],
    ['https:/user:pa@ss@a.example/m.gguf', 'https://a.example/m.gguf: '],
    ['https:\\\\user:pa@ss@a.example/m.gguf', 'https://a.example/m.gguf: '],
    [' https:///user:pa@ss@a.example/m.gguf', 'https://a.example/m.gguf: '],
    ['https://user:pa@ss@a.example/m-00001-of-01000.gguf', 'https://a.example/m-00001-of-01000.gguf: '],
    ['http://user:pa%40ss@[/m.gguf', 'http://[/m.gguf: '],
    ['http:user:pa@ss@[/m.gguf', 'http:[/m.gguf: '],
    ['http:\\\\user:pa@ss@[/m.gguf', 'http:\\\\[/m.gguf: '],
    ['http://user:a/pa@ss@a.example/m.gguf', 'http://a.example/m.gguf: '],
  ]) {
    const { load, preflight } = calls(Plumb, url);
    for (const call of [load, preflight, () => Plumb.removeCached(url), () => Plumb.openCached(url)]) {
      await assert.rejects(call(), error => {
        assert.equal(error.code, 'PLUMB_ERROR_ARGUMENT');
        assert.ok(error.message.startsWith(shown), error.message);
        assert.doesNotMatch(JSON.stringify([error.message, error.details, error.stack]), /pa(%40|@)ss/);
        return true;
      });
    }
  }
});
