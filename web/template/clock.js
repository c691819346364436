/* The time as text, for chat templates. */

const MONTHS = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October',
  'November', 'December'];
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const two = (/** @type {number} */ n) => String(n).padStart(2, '0');

/** @type {Record<string, (at: Date) => string | number>} */
const FORMATS = {
  Y: at => at.getFullYear(), y: at => two(at.getFullYear() % 100), m: at => two(at.getMonth() + 1),
  d: at => two(at.getDate()), e: at => String(at.getDate()).padStart(2), B: at => MONTHS[at.getMonth()],
  b: at => MONTHS[at.getMonth()].slice(0, 3), A: at => DAYS[at.getDay()], a: at => DAYS[at.getDay()].slice(0, 3),
  H: at => two(at.getHours()), I: at => two(at.getHours() % 12 || 12), M: at => two(at.getMinutes()),
  S: at => two(at.getSeconds()), p: at => at.getHours() < 12 ? 'AM' : 'PM', '%': () => '%',
  F: at => formatTime('%Y-%m-%d', at), T: at => formatTime('%H:%M:%S', at),
};

/** strftime of C, in the C locale and the local time zone. @param {unknown} format @param {Date} at */
export function formatTime(format, at) {
  return String(format).replaceAll(/%([\s\S]?)/g, (place, letter) => {
    if (!Object.hasOwn(FORMATS, letter)) throw new Error(`strftime_now: ${place} is not supported`);
    return String(FORMATS[letter](at));
  });
}
