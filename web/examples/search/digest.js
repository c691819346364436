/* Identifies a model by the bytes of its files. */
import { hex, randomHex } from '../../base/hex.js';
import { partsOf } from '../../chat/models/model-files.js';
import { sha256 } from '../../dist/vendor/noble-hashes/sha2.js';
import { Plumb } from '../../index.js';

/** Bytes that are digested without a pause. */
const PIECE = 1 << 20;

/** The sha256 of all files one after the other, in hex digits.  If they are not on this device, or have been changed or
 * removed since they were chosen, a random text: then nobody knows whether the next load brings the same bytes.
 * @param {import('../../loader/source.js').Source} source  of a model that is loaded */
export async function digestOf(source) {
  const hash = sha256.create();
  for (const part of await partsOf(source)) {
    const file = part instanceof File ? part : await Plumb.openCached(part).catch(() => undefined);
    if (!file) return randomHex(32);
    for (let at = 0; at < file.size; at += PIECE) {
      const bytes = await file.slice(at, at + PIECE).arrayBuffer().catch(() => undefined);
      if (!bytes) return randomHex(32);
      hash.update(new Uint8Array(bytes));
    }
  }
  return hex(hash.digest());
}
