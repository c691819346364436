/* Modules with 64-bit addresses.  Their addresses and sizes are BigInts in JavaScript; here they become numbers, so
 * that all other files treat both kinds of modules alike.  All numbers are exact: a memory has far less than 2^53
 * bytes.  tools/addresses.mjs has written into the module which arguments and results are addresses; a module without
 * this section has 32-bit addresses. */

/** @typedef {{exports: Record<string, string>, imports: Record<string, string>}} Addresses  signatures by the names of
 *   functions: a character for each argument, then one for the result; 'a': an address or a size, '-': another type */

/** @param {WebAssembly.Module} module @returns {Addresses | undefined}  undefined: it has 32-bit addresses */
export function addressesOf(module) {
  const [section] = WebAssembly.Module.customSections(module, 'addresses');
  return section && JSON.parse(new TextDecoder().decode(section));
}

/** @param {string | undefined} signature @param {any[]} args @param {(x: any) => number | bigint} convert */
const converted = (signature = '', args, convert) => args.map((one, i) => signature[i] === 'a' ? convert(one) : one);

/** A BigInt that arrives is a signed integer. @param {bigint} value */
const toNumber = value => Number(BigInt.asUintN(64, value));

/** The exports of a module, with numbers as addresses.
 * @param {Record<string, any>} exports @param {Addresses} addresses @returns {Record<string, any>} */
export function exportsOf(exports, addresses) {
  return Object.fromEntries(Object.entries(exports).map(([name, one]) => {
    const signature = addresses.exports[name];
    if (!signature?.includes('a')) return [name, one];
    const call = /** @type {Function} */ (one), isAddress = signature.endsWith('a');
    return [name, (/** @type {any[]} */ ...args) => {
      const result = call(...converted(signature, args, BigInt));
      return isAddress ? toNumber(result) : result;
    }];
  }));
}

/** A function for a module to import, which gets numbers as addresses. @param {Function} own
 * @param {string | undefined} signature */
export function imported(own, signature) {
  if (!signature?.includes('a')) return own;
  const isAddress = signature.endsWith('a');
  return (/** @type {any[]} */ ...args) => {
    const result = own(...converted(signature.slice(0, -1), args, toNumber));
    return isAddress ? BigInt(result) : result;
  };
}

/** Whether this host has memories with 64-bit addresses.  The module below has nothing but such a memory:
 * (memory i64 0). */
export function hasAddresses64() {
  return WebAssembly.validate(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 5, 3, 1, 4, 0));
}
