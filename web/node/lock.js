/* Locks between processes that share a folder, by the method of the package proper-lockfile: the holder of a lock
 * touches its file every `beat` milliseconds, and a lock that was not touched for `stale` milliseconds may be taken.
 * So the processes need not see each other, as those of two containers do not.  Two things are added.  If the holder's
 * process id is valid in this process, a dead holder is recognized at once.  The age of a lock is measured by the clock
 * of the file system, which may be that of another machine. */
import { randomUUID } from 'node:crypto';
import { closeSync, fstatSync, linkSync, openSync, readFileSync, readlinkSync, renameSync, rmSync, statSync,
  writeFileSync, writeSync } from 'node:fs';
import { hostname } from 'node:os';
import { Busy } from '../loader/busy.js';

/** Times in milliseconds, which tests shorten: `beat` and `stale` as above; `poll` is how long a process waits before
 * it looks at a held lock again.  Tests set `elsewhere` to make processes appear to be on different machines. */
export const times = { beat: 2000, stale: 10000, poll: 100, elsewhere: false };

/** @typedef {object} Held
 * @property {(atOnce?: boolean) => void} check  throws if someone else has taken the lock meanwhile, such as while this
 *   process was stopped; atOnce: looks in any case, and not only if a beat is due
 * @property {() => void} release */

/** Takes a lock; throws Busy if it is held.  If only time can tell whether its holder is alive, it waits until the lock
 * is touched or becomes stale. @param {string} path @returns {Promise<Held>} */
export async function take(path) {
  // seen is what the lock was at the time `since`.  If it changes, a live process holds it.
  for (let since = performance.now(), seen = lookAt(path); ;) {
    const held = tryTake(path);
    if (held) return held;
    const found = lookAt(path);
    if (found) {
      if (found.sure || seen && (found.touched !== seen.touched || found.text !== seen.text)) throw new Busy();
      if (!seen) [since, seen] = [performance.now(), found];
      // The clock of another machine may be wrong by any amount, so a lock that nobody touches in this time is stale.
      if (performance.now() - since > times.stale) {
        const stolen = tryTake(path, found.text);
        if (stolen) return stolen;
        throw new Busy();
      }
    }
    await new Promise(resolve => setTimeout(resolve, times.poll));
  }
}

/** Whether someone holds the lock, as far as this can be known at once. @param {string} path */
export const isHeld = path => lookAt(path)?.held ?? false;

/** Takes the lock if it is free or stale.  A hard link creates its file with the text already in it, and fails if the
 * file exists.  A stale lock is replaced by the process that holds a second lock, PATH.steal: without it, of two
 * processes that find the same stale lock, the second could replace the new lock of the first.
 * @param {string} path @param {string} [dead]  the text of a lock that is known to be stale
 * @returns {Held | undefined} */
function tryTake(path, dead) {
  const text = `${process.pid} ${startTime(process.pid)} ${machine()} ${randomUUID()}`, own = `${path}.${randomUUID()}`;
  writeFileSync(own, text);
  const isHeldNow = (/** @type {ReturnType<typeof lookAt>} */ found) => found?.held && found.text !== dead;
  try {
    if (!link(own, path, text)) {
      if (isHeldNow(lookAt(path))) return undefined;
      const stealing = tryTake(`${path}.steal`);
      if (!stealing) return undefined;
      try {
        // Nobody else replaces the lock now, but its holder may remove it, and another process may then link its own at
        // any time.  A rename would replace that one, so it is only used while a stale lock is there.
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

/** Keeps a lock that was just taken alive.  Its file stays open, so that it is recognized by its inode, and a beat
 * never touches the lock of another process. @param {string} path @param {string} text @returns {Held} */
function hold(path, text) {
  const file = openSync(path, 'r+'), { ino, dev } = fstatSync(file);
  let last = performance.now(), lost = false;
  const isOwn = () => {
    try {
      const found = statSync(path);
      return found.ino === ino && found.dev === dev;
    } catch {
      return false;
    }
  };
  const beat = () => {
    last = performance.now();
    lost ||= !isOwn();
    if (!lost) writeSync(file, text, 0);   // the same text, only to update the file's time
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
    check(atOnce) {
      if (atOnce || performance.now() - last > times.beat) beat();
      if (lost) {
        throw new Error('another process has taken over the lock, because this process did not refresh it in time');
      }
    },
    release() {
      clearInterval(timer);
      if (isOwn()) rmSync(path, { force: true });
      closeSync(file);
    },
  };
}

/** Creates the lock's file; returns false if it exists. @param {string} own  a file with the lock's text
 * @param {string} path @param {string} text */
function link(own, path, text) {
  try {
    try {
      linkSync(own, path);
    } catch (error) {
      if (/** @type {any} */ (error).code === 'EEXIST') return false;
      writeFileSync(path, text, { flag: 'wx' });   // the file system has no hard links
    }
    return true;
  } catch (error) {
    if (/** @type {any} */ (error).code === 'EEXIST') return false;
    throw error;
  }
}

/** What a lock's file says, or undefined if there is none.  held: it counts as held; sure: it is known whether its
 * holder is alive, and not only guessed from the time; touched: when it was last touched, by the clock of the file
 * system; text: undefined if this user may not read the file.  A file with other text than a lock's is not held.
 * @param {string} path */
function lookAt(path) {
  const touched = statSync(path, { throwIfNoEntry: false })?.mtimeMs;
  if (touched === undefined) return undefined;
  let text;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if (/** @type {any} */ (error).code === 'ENOENT') return undefined;   // it was removed meanwhile
  }
  const [, pid, began, where] = /^([1-9]\d*) (\d*)(?: (\S+)|$)/.exec(text ?? '') ?? [];
  const sure = where !== undefined && where === machine();
  if (sure && !(isAlive(Number(pid)) && startTime(Number(pid)) === began)) return { text, touched, sure, held: false };
  const isLock = text === undefined || pid !== undefined;
  return { text, touched, sure, held: isLock && fileTime(path) - touched < times.stale };
}

/** The time by the clock of the file system, or by that of this machine if nothing can be written.
 * @param {string} path  a file beside which a temporary one is created */
function fileTime(path) {
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
function isAlive(pid) {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return /** @type {any} */ (error).code === 'EPERM';
  }
}

/** When a process began, in ticks of the system, or '' if the system does not report it.  A process with the same id
 * that began at another time is a different one. @param {number} pid */
function startTime(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];   // field 22; the name before may have any characters
  } catch {
    return '';
  }
}

/** Identifies the processes that see the same process ids as this one: by the boot id and the pid namespace on Linux,
 * and by the host's name on other systems.  On a Linux that does not report them, it is different at each call. */
function machine() {
  if (times.elsewhere) return `elsewhere/${randomUUID()}`;
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${boot}/${readlinkSync('/proc/self/ns/pid')}`;
  } catch {
    return process.platform === 'linux' ? `unknown/${randomUUID()}` : encodeURIComponent(hostname());
  }
}
