/* Bytes as hex digits, for checksums, file names and ids. */

/** @param {Uint8Array} bytes @returns {string}  two lowercase digits for each byte */
export const hex = bytes => Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('');

/** @param {number} n  number of bytes @returns {string} */
export const randomHex = n => hex(crypto.getRandomValues(new Uint8Array(n)));
