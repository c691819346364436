/* A store of records in the browser's database.  Every call rejects if the browser does not allow it, as in some
 * private windows, or if the disk is full. */

/** Opens the store of that name, whose records have an `id`, in a database of its own.
 * @param {string} name  of the database @param {string} storeName */
export async function openDatabase(name, storeName) {
  const opening = indexedDB.open(name, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(storeName, { keyPath: 'id' });
  const database = await done(opening);
  database.onversionchange = () => database.close();
  return {
    /** @returns {Promise<any[]>} */
    read: () => done(database.transaction(storeName).objectStore(storeName).getAll()),
    /** The result is undefined where there is no record. @param {string[]} ids @returns {Promise<any[]>} */
    get(ids) {
      const store = database.transaction(storeName).objectStore(storeName);
      return Promise.all(ids.map(id => done(store.get(id))));
    },
    /** Resolves when the transaction is complete, as a full disk is reported only then.
     * @param {(store: IDBObjectStore) => void} change
     * @returns {Promise<void>} */
    write: change => new Promise((resolve, reject) => {
      const transaction = database.transaction(storeName, 'readwrite');
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
      change(transaction.objectStore(storeName));
    }),
  };
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
