/** How many characters must be inserted, deleted or replaced to make b of a (Levenshtein 1966).
 * @param {string} a @param {string} b */
export function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let k = 1; k <= b.length; k++) {
      next.push(Math.min(row[k] + 1, next[k - 1] + 1, row[k - 1] + Number(a[i - 1] !== b[k - 1])));
    }
    row = next;
  }
  return row[b.length];
}
