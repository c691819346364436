/* Numbers of bytes as people write them: 6G, 500M. */

export const EXPECTED_SIZE = 'a number of bytes, such as 6G';

/** The number of bytes in a text, or undefined. @param {string} text */
export function parseSize(text) {
  const [, digits, unit] = /^(\d{1,15}(?:\.\d+)?)([KMGT]?)B?$/i.exec(text) ?? [];
  const bytes = Math.round(Number(digits) * 1024 ** ' KMGT'.indexOf(unit?.toUpperCase() || ' '));
  return bytes >= 1 ? bytes : undefined;
}
