/* Locks between processes that share a folder, by the method of the package proper-lockfile: the holder of a lock
 * touches its file every `beat` milliseconds, and a lock that was not touched for `stale` milliseconds may be taken.
 * So the processes need not see each other, as those of two containers do not.  Two things are added: a dead holder whose
 * process id means something here is recognized at once, and the age of a lock is measured by the clock of the file
 * system, which may be another machine's. */
import { randomUUID } from 'node:crypto';
import { closeSync, fstatSync, linkSync, openSync, readFileSync, readlinkSync, renameSync, rmSync, statSync,
  writeFileSync, writeSync } from 'node:fs';
import { hostname } from 'node:os';
import { Busy } from '../loader/busy.js';

/** Milliseconds; tests shorten them, and say `elsewhere` where processes are to be as on different machines. */
export const times = { beat: 2000, stale: 10000, poll: 100, elsewhere: false };

/** @typedef {object} Held
 * @property {(now?: boolean) => void} check  throws if someone else has taken the lock meanwhile, as from a process
 *   that was stopped; now: not only where a beat is due
 * @property {() => void} release */

/** Takes a lock.  Where only time can tell whether its holder lives, waits until it is touched or stale; throws Busy
 * where it is held. @param {string} path @returns {Promise<Held>} */
export async function take(path) {
  for (let since = performance.now(), seen = lookAt(path); ;) {
    const held = tryTake(path);
    if (held) return held;
    const now = lookAt(path);
    if (now) {
      if (now.sure || seen && (now.touched !== seen.touched || now.text !== seen.text)) throw new Busy();
      if (!seen) [since, seen] = [performance.now(), now];
      // The clock of another machine may be wrong by any amount: what nobody touches in this time is stale.
      if (performance.now() - since > times.stale) {
        const stolen = tryTake(path, now.text);
        if (stolen) return stolen;
        throw new Busy();
      }
    }
    await new Promise(resolve => setTimeout(resolve, times.poll));
  }
}

/** Whether someone holds it, for all that can be known at once. @param {string} path */
export const isHeld = path => lookAt(path)?.held ?? false;

/** The lock, if it is free or stale.  Its file comes to be with its text in it, by a link, which fails where there is
 * one; one that is stale is replaced by who has the lock of doing that.
 * @param {string} path @param {string} [dead]  the text of a lock that is known to be stale
 * @returns {Held | undefined} */
function tryTake(path, dead) {
  const text = `${process.pid} ${beginning(process.pid)} ${machine()} ${randomUUID()}`, own = `${path}.${randomUUID()}`;
  writeFileSync(own, text);
  const isHeldNow = (/** @type {ReturnType<typeof lookAt>} */ found) => found?.held && found.text !== dead;
  try {
    if (!link(own, path, text)) {
      if (isHeldNow(lookAt(path))) return undefined;
      const stealing = tryTake(`${path}.steal`);
      if (!stealing) return undefined;
      try {
        // Where the lock has gone meanwhile another process may link its own at any time, which no rename may replace.
        while (!link(own, path, text)) {
          const found = lookAt(path);
          if (isHeldNow(found)) return undefined;
          if (!found) continue;
          renameSync(own, path);
          break;
        }
      } finally {
        stealing.release();
      }
    }
  } finally {
    rmSync(own, { force: true });
  }
  return hold(path, text);
}

/** @param {string} path @param {string} text @returns {Held} */
function hold(path, text) {
  const file = openSync(path, 'r+'), { ino, dev } = fstatSync(file);
  let last = performance.now(), lost = false;
  const isMine = () => {
    try {
      const now = statSync(path);
      return now.ino === ino && now.dev === dev;
    } catch {
      return false;
    }
  };
  const beat = () => {
    last = performance.now();
    lost ||= !isMine();
    if (!lost) writeSync(file, text, 0);   // the same text: the file system notes the time
  };
  const timer = setInterval(() => {
    try {
      beat();
    } catch {
      lost = true;
    }
  }, times.beat);
  timer.unref();
  return {
    check(now) {
      if (now || performance.now() - last > times.beat) beat();
      if (lost) throw new Error('another process has taken its lock, for this one did not say that it lives');
    },
    release() {
      clearInterval(timer);
      if (isMine()) rmSync(path, { force: true });
      closeSync(file);
    },
  };
}

/** False where there is a lock. @param {string} own  file with its text @param {string} path @param {string} text */
function link(own, path, text) {
  try {
    try {
      linkSync(own, path);
    } catch (error) {
      if (/** @type {any} */ (error).code === 'EEXIST') return false;
      writeFileSync(path, text, { flag: 'wx' });   // a file system without links
    }
    return true;
  } catch (error) {
    if (/** @type {any} */ (error).code === 'EEXIST') return false;
    throw error;
  }
}

/** What a lock's file says; undefined if there is none.  sure: whether its holder lives is known, not only guessed by
 * the time; text: undefined if this user may not read it. @param {string} path */
function lookAt(path) {
  const touched = statSync(path, { throwIfNoEntry: false })?.mtimeMs;
  if (touched === undefined) return undefined;
  let text;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if (/** @type {any} */ (error).code === 'ENOENT') return undefined;   // it is gone meanwhile
  }
  const [, pid, began, where] = /^([1-9]\d*) (\d*)(?: (\S+)|$)/.exec(text ?? '') ?? [];
  const sure = where !== undefined && where === machine();
  if (sure && !(lives(Number(pid)) && beginning(Number(pid)) === began)) return { text, touched, sure, held: false };
  const isLock = text === undefined || pid !== undefined;
  return { text, touched, sure, held: isLock && now(path) - touched < times.stale };
}

/** The time by the clock of the file system; by this machine's where nothing can be written.
 * @param {string} path  of a file beside which there may be others */
function now(path) {
  const own = `${path}.${randomUUID()}`;
  try {
    writeFileSync(own, '');
    return statSync(own).mtimeMs;
  } catch {
    return Date.now();
  } finally {
    rmSync(own, { force: true });
  }
}

/** @param {number} pid */
function lives(pid) {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return /** @type {any} */ (error).code === 'EPERM';
  }
}

/** When a process began, in the system's ticks: one of the same number that began at another time is another one.
 * Empty where the system does not say it. @param {number} pid */
function beginning(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];   // field 22; the name before may hold anything
  } catch {
    return '';
  }
}

/** Whoever has the same sees the same process ids: a run of the system and its namespace of them, or the host's name
 * where the system has neither. */
function machine() {
  if (times.elsewhere) return `elsewhere/${randomUUID()}`;
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${boot}/${readlinkSync('/proc/self/ns/pid')}`;
  } catch {
    return process.platform === 'linux' ? `unknown/${randomUUID()}` : encodeURIComponent(hostname());
  }
}
