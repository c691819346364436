/** Several processes and one folder of copies: locks, and processes that are killed or suspended.  Ground truth: the
 * file itself (its sha256 by Node's own hash) and every request that the server saw. */
import assert from 'node:assert/strict';
import { fork, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs, { chmodSync, existsSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { copies, copyPath, expected, files, flaky, IDS, load, other, otherwise, quick, sha256 } from './downloads.mjs';
import { fails, random, root, server, tiny } from './helpers.mjs';

/** The start time of a process in ticks, from proc_pid_stat(5); its name has no spaces or parentheses. */
const hasProc = existsSync('/proc/self/stat');
const began = pid => hasProc ? readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1).split(' ')[19] : '';
const { isHeld, take, times } = await import('../../web/node/lock.js');
/** The name of this machine as a lock of this process gives it. */
async function machine() {
  const path = join(copies, 'probe.lock'), held = await take(path);
  const text = readFileSync(path, 'utf8');
  held.release();
  return text.split(' ')[2];
}

test('the lock of a dead process is ignored; the lock of a live process holds while it is refreshed', async t => {
  const { url } = await flaky(t, () => ({}));
  await load(url);
  const lock = copyPath().replace(/gguf$/, 'lock'), here = await machine();
  const long = Date.now() / 1000 - 60;
  for (const [text, touched, held] of [[`999999999 5 ${here}`, undefined, false], ['nonsense', undefined, false],
    ['', undefined, false], [`0 5 ${here}`, undefined, false], [`-1 5 ${here}`, undefined, false],
    [`${process.ppid} 5 ${here}`, undefined, !hasProc],
    [`${process.ppid} ${began(process.ppid)} ${here}`, undefined, true],
    [`${process.ppid} ${began(process.ppid)} ${here}`, long, false],
    ['7 5 elsewhere', long, false], ['7 5', long, false]]) {   // of another machine, of an older version
    writeFileSync(lock, text);
    if (touched) utimesSync(lock, touched, touched);
    const { logits, warnings } = await load(url, { cache: 'reload' });
    assert.equal(logits, expected);
    assert.equal(warnings.length, held ? 1 : 0, text);
    if (held) await fails(quick.removeCached(url), 'PLUMB_ERROR_STATE', /another tab or process is using it/);
    rmSync(lock, { force: true });
    if (held) await load(url, { cache: 'reload' });
  }
  assert.deepEqual(files().filter(name => !/\.(gguf|json)$/.test(name)), [], 'nothing is left');
});

test('the lock of an invisible process is waited for, and is stale if nobody refreshes it for a while', async t => {
  const { url } = await flaky(t, () => ({}));
  await load(url);
  const lock = copyPath().replace(/gguf$/, 'lock'), usual = { ...times };
  t.after(() => Object.assign(times, usual));
  Object.assign(times, { stale: 1000, poll: 20 });
  writeFileSync(lock, '7 5 elsewhere');
  assert.deepEqual((await load(url, { cache: 'reload' })).warnings, []);
  writeFileSync(lock, '7 5 elsewhere');
  const loading = load(url, { cache: 'reload' });
  const beat = setInterval(() => writeFileSync(lock, '7 5 elsewhere'), 100);
  const { warnings } = await loading;
  clearInterval(beat);
  assert.match(warnings[0].message, /no copy is kept: another tab or process is using it/);
});

test('a lock holds even if this user cannot read it or cannot write to its folder', () => {
  const path = join(copies, 'x.lock'), isRoot = process.geteuid?.() === 0;
  for (const [file, folder] of [[0o200, 0o777], [0o644, 0o555]]) {
    writeFileSync(path, '7 5 elsewhere');
    chmodSync(path, file);
    chmodSync(copies, folder);
    try {
      if (isRoot) process.seteuid(65534);
      const forbidden = () => file === 0o200 ? readFileSync(path) : writeFileSync(join(copies, 'y'), '');
      assert.throws(forbidden, { code: 'EACCES' });
      assert.equal(isHeld(path), true);
    } finally {
      if (isRoot) process.seteuid(0);
      chmodSync(copies, 0o755);
    }
    const long = Date.now() / 1000 - 60;
    utimesSync(path, long, long);
    assert.equal(isHeld(path), false);
    rmSync(path);
  }
});

/** Makes the first n links to a path fail, as if another process had its lock there at that moment.
 * @param {import('node:test').TestContext} t @param {string} path @param {number} n */
function failLinks(t, path, n) {
  const { linkSync, renameSync } = fs, renamed = [];
  t.after(() => {
    Object.assign(fs, { linkSync, renameSync });
    syncBuiltinESMExports();
  });
  fs.linkSync = (from, to) => {
    if (to === path && n-- > 0) throw Object.assign(new Error('it is there'), { code: 'EEXIST' });
    linkSync(from, to);
  };
  fs.renameSync = (from, to) => {
    renamed.push(to);
    renameSync(from, to);
  };
  syncBuiltinESMExports();
  return renamed;
}

test('if the old lock disappears during the check, the new one is linked: a rename might replace another', async t => {
  const path = join(copies, 'x.lock'), renamed = failLinks(t, path, 1);
  (await take(path)).release();
  assert.deepEqual([renamed, files()], [[], []]);
});

test('waiting for a lock that comes and goes does not block the event loop', async t => {
  const path = join(copies, 'x.lock');
  failLinks(t, path, 3);
  writeFileSync(`${path}.steal`, `${process.ppid} ${began(process.ppid)} ${await machine()}`);   // of a live process
  let turned = false;
  setTimeout(() => { turned = true; }, 0);
  (await take(path)).release();
  assert.ok(turned);
});

test('a download that starts at the first byte removes the files of dead writers', async () => {
  const name = createHash('sha256').update('http://models.example/m').digest('hex');
  for (const left of ['a.part', 'a.sums', 'b.part', 'b.sums']) writeFileSync(join(copies, `${name}.${left}`), '');
  const { end } = await nearlyWhole();
  assert.deepEqual(files().map(one => one.replace(/.*\./, '')).sort(), ['json', 'lock', 'part', 'sums']);
  await end();
});

test('of many processes that find a stale lock exactly one takes it', async () => {
  // All wait for the same time, try to take the lock, and keep it until all have tried.
  const program = `
    import { folder } from ${JSON.stringify(`${root}web/node/cache-folder.js`)};
    const { lock } = await folder();
    process.on('message', async at => {
      while (Date.now() < at);
      process.send(await lock('x').then(() => true, error => error.constructor.name));
    });
    process.send('ready');`;
  const path = join(copies, 'program.mjs');
  writeFileSync(path, program);
  const said = child => new Promise((resolve, reject) => {
    child.once('message', resolve);
    child.once('exit', reject);
  });
  const text = `999999999 5 ${await machine()}`;
  for (let i = 0; i < 8; i++) {
    writeFileSync(join(copies, 'x.lock'), text);
    const children = Array.from({ length: 4 }, () => fork(path));
    await Promise.all(children.map(said));
    const answers = children.map(said), at = Date.now() + 20;
    for (const child of children) child.send(at);
    assert.deepEqual((await Promise.all(answers)).sort(), ['Busy', 'Busy', 'Busy', true]);
    for (const child of children) child.kill();
  }
  assert.deepEqual(files(), ['program.mjs', 'x.lock']);
});

/** Programs that see neither each other's process ids nor ours, as in two containers.  If the test may not do that, an
 * option makes them behave so. */
const apart = spawnSync('unshare', ['--pid', '--fork', '--mount-proc', 'true']).status === 0
  ? ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child'] : [];
const LOADER = `
  import { createHash } from 'node:crypto';
  import { times } from ${JSON.stringify(`${root}web/node/lock.js`)};
  import { Plumb } from ${JSON.stringify(`${root}web/node/index.js`)};
  Object.assign(times, { beat: 100, stale: 1500, poll: 20, elsewhere: ${apart.length === 0} });
  const model = await Plumb.load(process.argv[1], { worker: false });
  const logits = await model.feed(${JSON.stringify(IDS)});
  const { warnings } = model;
  await model.close();
  const digest = createHash('sha256').update(new Uint8Array(logits.buffer)).digest('hex');
  console.log(JSON.stringify({ logits: digest, warnings }));`;
/** Loads a URL in such a program. @param {string} url */
function elsewhere(url) {
  const [command, ...args] = [...apart, process.execPath, '--input-type=module', '-e', LOADER, url];
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', data => { text += data; });
  const end = new Promise(resolve => child.on('close', () => resolve(text && JSON.parse(text))));
  return { child, end };
}

/** A server that sends a file slowly and supports ranges. @param {import('node:test').TestContext} t
 * @param {() => {bytes: Uint8Array, etag: string, piece: number, ms: number}} state */
async function slow(t, state) {
  const ranges = [];
  const url = await server(t, ({ headers: { range } }, response) => {
    const { bytes, etag, piece, ms } = state();
    let at = Number(/\d+/.exec(range ?? '0')[0]);
    ranges.push(at);
    response.on('error', () => {});
    if (at >= bytes.length) return void response.writeHead(416, { 'Content-Range': `bytes */${bytes.length}` }).end();
    response.writeHead(at > 0 ? 206 : 200, { ETag: etag, 'Content-Length': bytes.length - at,
      ...at > 0 && { 'Content-Range': `bytes ${at}-${bytes.length - 1}/${bytes.length}` } });
    const send = () => {
      if (response.destroyed) return;
      response.write(bytes.subarray(at, at += piece));
      if (at < bytes.length) setTimeout(send, ms);
      else response.end();
    };
    send();
  });
  return { url: `${url}m`, ranges };
}
const until = async action => {
  while (!action()) await new Promise(resolve => setTimeout(resolve, 10));
};
/** A file that is renamed or removed meanwhile counts as 0 bytes. */
const partSize = () => Math.max(0, ...files().filter(name => name.endsWith('.part')).map(name =>
  statSync(join(copies, name), { throwIfNoEntry: false })?.size ?? 0));

test('of two processes that cannot see each other one writes the copy; the other warns that it keeps none', async t => {
  const { url } = await slow(t, () => ({ bytes: tiny, etag: '"one"', piece: 2000, ms: 60 }));
  const first = elsewhere(url);
  await until(() => partSize() > 0);
  const second = await elsewhere(url).end;
  assert.equal(second.logits, expected);
  assert.match(second.warnings[0].message, /no copy is kept: another tab or process is using it/);
  assert.deepEqual(await first.end, { logits: expected, warnings: [] });
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
  assert.deepEqual(files().map(name => name.replace(/.*\./, '')), ['gguf', 'json']);
});

test('the copy of a killed process in another container is resumed once its lock is stale', async t => {
  const { url, ranges } = await slow(t, () => ({ bytes: tiny, etag: '"one"', piece: 2000, ms: 20 }));
  const first = elsewhere(url);
  await until(() => partSize() >= 30000);
  first.child.kill('SIGKILL');
  const left = partSize();
  const second = await elsewhere(url).end;
  assert.deepEqual(second, { logits: expected, warnings: [] });
  assert.ok(ranges.length === 2 && ranges[1] >= left && ranges[1] % 2000 === 0, `${left}: ${ranges}`);
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
});

/** A store of this process with a copy that is complete except for its end, and a function that writes the end. */
async function nearlyWhole() {
  const { Store } = await import('../../web/loader/copy-store.js');
  const { folder } = await import('../../web/node/cache-folder.js');
  const { Sums } = await import('../../web/loader/sums.js');
  const store = new Store(folder), url = 'http://models.example/m', copy = await store.take(url);
  let hash = createHash('sha256');
  const digest = {
    begin() { hash = createHash('sha256'); },
    update(/** @type {Uint8Array} */ bytes) { hash.update(bytes); },
    end: () => hash.copy().digest().subarray(0, 8),
  };
  await copy.begin(0, { size: tiny.length, certain: true, etag: '"one"' });
  const sums = new Sums(digest);
  await copy.write(tiny.subarray(0, 60000), sums);
  return { store, url, async end() {
    await copy.write(tiny.subarray(60000), sums);
    await copy.finish(undefined, sums.all());
    await copy.close();
  } };
}

test('a process that waits for the lock of a copy gets the complete copy once it is finished', async t => {
  const usual = { ...times };
  t.after(() => Object.assign(times, usual));
  Object.assign(times, { elsewhere: true, beat: 60000, stale: 60000, poll: 20 });
  const { store, url, end } = await nearlyWhole(), { open } = store;
  const asked = new Promise(resolve => {
    store.open = async () => {
      const folder = await open();
      return { ...folder, lock(name) {
        resolve(undefined);
        return folder.lock(name);
      } };
    };
  });
  const waiting = store.take(url);
  await asked;
  await end();
  const copy = await waiting;
  assert.deepEqual([copy.complete, copy.at], [true, tiny.length]);
  await copy.close();
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
  assert.deepEqual(files().map(name => name.replace(/.*\./, '')), ['gguf', 'json']);
});

test('taking the lock of a complete copy does not change the copy', async () => {
  const { store, url, end } = await nearlyWhole();
  await end();
  const { folder } = await import('../../web/node/cache-folder.js');
  const lock = await (await folder()).lock(files()[0].replace(/\..*/, ''));
  assert.equal(lock.size(), tiny.length);
  assert.equal((await store.whole(url)).blob.size, tiny.length);
  lock.close(0);
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
});

// Three renames: the metadata at the start, the metadata of the whole file, the file itself.
for (const [rename, when] of [[2, 'before'], [2, 'after'], [3, 'after']]) {
  test(`a process that is killed ${when} rename ${rename} of a download loses none of it`, async t => {
    const { url, seen } = await flaky(t, () => ({}));
    const program = `
      import fs from 'node:fs';
      import { syncBuiltinESMExports } from 'node:module';
      const { renameSync } = fs;
      let n = 0;
      fs.renameSync = (...args) => {
        if (++n !== ${rename}) return renameSync(...args);
        if (${when === 'after'}) renameSync(...args);
        process.kill(process.pid, 'SIGKILL');
      };
      syncBuiltinESMExports();
      ${LOADER}`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program, url], { stdio: 'inherit' });
    assert.equal(await new Promise(resolve => child.on('close', (_, signal) => resolve(signal))), 'SIGKILL');
    assert.deepEqual(await load(url), { logits: expected, warnings: [] });
    const rest = rename === 2 && when === 'before' ? [`bytes=${tiny.length}-`] : [];
    assert.deepEqual(seen.map(({ range }) => range), [undefined, ...rest]);
    assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
    assert.deepEqual((await quick.listCached()).map(({ complete }) => complete), [true]);
    await load(url);
    assert.deepEqual(files().filter(name => name.endsWith('.part')), []);
  });
}

test('25 processes that are killed during a download lose nothing', async t => {
  const next = random(5);
  const padded = Buffer.concat([tiny, Buffer.alloc(1 << 20)]);
  const { url, ranges } = await slow(t, () => ({ bytes: padded, etag: '"one"', piece: 700, ms: 4 }));
  let left = 0;
  for (let i = 0; i < 25; i++) {
    const child = spawn(process.execPath, ['--input-type=module', '-e', LOADER, url], { stdio: 'inherit' });
    const end = new Promise(resolve => child.on('close', resolve));
    const enough = left + next(4000);
    await Promise.race([until(() => partSize() > enough), end]);
    child.kill('SIGKILL');
    await end;
    assert.ok(partSize() >= left, `${partSize()} bytes after ${left}`);
    left = partSize();
  }
  assert.ok(ranges.length === 25 && ranges.every((at, i) => i === 0 || at >= ranges[i - 1]), `${ranges}`);
  assert.deepEqual(await load(url, { sha256: sha256(padded) }), { logits: expected, warnings: [] });
  assert.equal(ranges.at(-1), left);
  assert.equal(sha256(readFileSync(copyPath())), sha256(padded));
});

test('a suspended process that resumes after its lock was taken writes no more', async t => {
  let state = { bytes: tiny, etag: '"one"', piece: 2000, ms: 60 };
  const { url } = await slow(t, () => state);
  const child = spawn(process.execPath, ['--input-type=module', '-e', LOADER, url],
    { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', data => { text += data; });
  const end = new Promise(resolve => child.on('close', resolve));
  await until(() => partSize() >= 10000);
  child.kill('SIGSTOP');
  state = { bytes: other, etag: '"two"', piece: 50000, ms: 0 };
  assert.deepEqual(await elsewhere(url).end, { logits: otherwise, warnings: [] });
  child.kill('SIGCONT');
  await end;
  const { logits, warnings } = JSON.parse(text);
  assert.equal(logits, expected);
  assert.match(warnings[0].message, /no copy is kept: .*another process has taken over the lock/);
  assert.equal(sha256(readFileSync(copyPath())), sha256(other));
  assert.deepEqual(await load(url), { logits: otherwise, warnings: [] });
});
