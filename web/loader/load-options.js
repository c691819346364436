/* The options of Plumb.load, as a type; options.js checks them. */

/** @typedef {object} LoadOptions
 * @property {number | 'auto'} [threads]  1 to 64; default 'auto': one for each processor, 8 at most.  Where two of them
 *   share a core half as many may be as fast.  A browser gives more than one to pages that are cross-origin isolated,
 *   and to the engine in its worker
 * @property {typeof import('../base/options.js').PRECISIONS[number]} [precision]  how activations are rounded before
 *   they are multiplied with weights.  'exact16', the default: to 16 bits.  'fast8': to 8 bits, as llama.cpp does;
 *   faster on some CPUs, and the text is another
 * @property {number} [contextLength]  tokens of prompt and answer together; default: what the model was trained for,
 *   at most 2048
 * @property {typeof import('../base/options.js').KV_TYPES[number]} [kvType]  how the keys and values of the context are
 *   kept: 'i16', 16 bits, the default; 'q8', half of that memory and less precise; 'f32', twice, and slow
 * @property {AbortSignal} [signal]  ends the load at any time and frees what it took
 * @property {(progress: import('./progress.js').Progress) => void} [onProgress]
 * @property {string | URL} [workerUrl]  of engine-worker.js on the page's own origin, with thread-worker.js,
 *   template-worker.js and command-worker.js beside it, for a page that takes the package from another origin and whose
 *   policy forbids workers from blob: URLs
 * @property {boolean} [persist]  ask the browser not to evict what this site stores; some browsers ask the user
 * @property {boolean} [worker]  run the engine in a worker, the default.  false: in the caller's thread, which each
 *   call blocks while it computes
 * @property {import('./download.js').CacheMode} [cache]  of URLs, in fetch's words.  'default': the whole copy on
 *   this machine without a question to the server, and what there is of one that is not whole; 'no-cache': the server
 *   is asked whether the copy is still right; 'reload': downloaded anew; 'no-store': no copy is read or kept.
 *   Where none can be kept the model loads all the same, and its warnings say why
 * @property {string | string[]} [sha256]  in hex digits, of the file or of each part; what has another is
 *   PLUMB_ERROR_CHECKSUM, and its copy is removed */

export {};
