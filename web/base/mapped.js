/** Yields what use makes of the values of a generator, and returns its result.  Ends it if the loop is left.
 * @template T, U, R @param {AsyncIterator<T, R, void>} values @param {(value: T) => Iterable<U>} use
 * @returns {AsyncGenerator<U, R, void>} */
export async function* mapped(values, use) {
  try {
    for (;;) {
      const { done, value } = await values.next();
      if (done) return value;
      yield* use(value);
    }
  } finally {
    await values.return?.();
  }
}
