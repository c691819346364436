/* Bytes in hex digits: checksums, names of files, ids. */

/** @param {Uint8Array} bytes @returns {string}  two small digits for each */
export const hex = bytes => Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('');

/** @param {number} n  bytes @returns {string} */
export const randomHex = n => hex(crypto.getRandomValues(new Uint8Array(n)));
