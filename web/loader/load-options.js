/* The type of the options of Plumb.load; options.js checks them. */

/** @typedef {import('./request.js').RequestOptions & OwnLoadOptions} LoadOptions */
/** @typedef {object} OwnLoadOptions
 * @property {number | 'auto'} [threads]  1 to 64; default 'auto': one for each processor, at most 8.  If two processors
 *   share a core, half as many threads may be as fast.  A browser allows more than one only on pages that are
 *   cross-origin isolated, and only if the engine runs in a worker
 * @property {typeof import('../base/parameters.js').PRECISIONS[number]} [precision]  how activations are rounded before
 *   they are multiplied with weights.  'exact16', the default: to 16 bits.  'fast8': to 8 bits, as llama.cpp does;
 *   faster on some CPUs, but the text is different
 * @property {number} [contextLength]  tokens of prompt and answer together; default: those that the model was trained
 *   for, or as many as have 512 MiB of keys and values if that is less, but at least 1024 of them.  If there is no
 *   memory for the default, it is halved, to 1024 at least, and `model.warnings` says so, as it does if contextLength
 *   is beyond the training
 * @property {typeof import('../base/parameters.js').KV_TYPES[number]} [kvType]  how the keys and values of the context
 *   are stored: 'i16', 16 bits, the default; 'q8_0' and 'q4_0', ggml's types, with 0.53 and 0.28 times that memory, but
 *   less precise, and only for heads whose lengths are multiples of 32; 'f32', twice that memory, and slow
 * @property {number} [snapshots]  how many copies of the states of recurrent layers are kept, 2 to 64, so that an
 *   edited or repeated chat need not be computed from its beginning: after each prompt, and after every 64 tokens of an
 *   answer; default: as many as fit into 64 MiB, 2 to 16
 * @property {'lookup' | false | {least?: number, most?: number}} [speculate]  whether answers compute several tokens at
 *   once where they are likely to repeat what came before (prompt lookup), as edits of a text do.  Nothing shows it but
 *   the time: tokens, log-probabilities and random numbers are the same, and it ends where it does not pay.  'lookup',
 *   the default: as many tokens as pay on this machine; false: none; {least, most}: so many of them, up to 15.  Models
 *   with recurrent layers do not compute ahead
 * @property {import('./source.js').OneSource} [draft]  a smaller model with the same vocabulary, in one file.  Where
 *   nothing is likely to be repeated, it writes the tokens that are computed at once.  It takes its memory, and reads
 *   each prompt too, so it pays where passes of several tokens are cheap: the engine measures that.
 *   PLUMB_ERROR_ARGUMENT: its vocabulary is another one
 * @property {boolean} [memory64]  true: the module with 64-bit addresses is used, although the model fits into the 4
 *   GiB of the others, so that adapters and sessions can fill up to 16 GiB; default: only if the model needs it.  It
 *   computes the same, but takes longer.  PLUMB_ERROR_UNSUPPORTED if the host has no such memories
 * @property {boolean} [reserve]  whether the memory of the whole context is taken by the load, which is the default.
 *   false: it grows with the tokens that the model's session holds, for models that are used by chats and sessions,
 *   whose memory always grows
 * @property {boolean} [shared]  uses one engine together with all pages of this origin that load the same URL with
 *   shared: true and the same threads: one download, and the memory of one.  Each page has its own sessions, and memory
 *   grows with their tokens, as with reserve: false.  When the page that holds the engine is closed, another one loads
 *   the model again from its copy; answers that are being written go on, with the same text, but what a session held
 *   between two calls of feed is lost (PLUMB_ERROR_STATE).  There are no adapters.  Where pages cannot share, as in
 *   Node, the model is loaded as usual, and its warnings say why
 * @property {AbortSignal} [signal]  ends the load at any time and frees its memory
 * @property {(progress: import('./progress.js').Progress) => void} [onProgress]
 * @property {string | URL} [workerUrl]  the URL of engine-worker.js on the page's own origin, with thread-worker.js
 *   and command-worker.js beside it, for a page that imports the package from another origin and whose policy forbids
 *   workers from blob: URLs
 * @property {boolean} [persist]  asks the browser not to evict what this site stores; some browsers ask the user
 * @property {boolean} [worker]  runs the engine in a worker, which is the default.  false: the engine runs in the
 *   caller's thread and blocks it while it computes
 * @property {import('./download.js').CacheMode} [cache]  how copies of URLs are used, in the terms of fetch.
 *   'default': a complete copy on this machine is used without asking the server, and an incomplete one is continued;
 *   'no-cache': as 'default', but the server is asked whether a complete copy is still current; 'reload': the file is
 *   downloaded again, and its copy replaced; 'no-store': no copy is read or kept.  If no copy can be kept, the model
 *   loads anyway, and its warnings say why
 * @property {string | string[]} [sha256]  in hex digits, of the file or of each part.  If a file has another checksum,
 *   the load rejects with PLUMB_ERROR_CHECKSUM, and the copy is removed
 * @property {string} [chatTemplate]  the Jinja source of a chat template to use instead of the file's, or 'chatml'; a
 *   file without a template has ChatML by default, as in llama.cpp
 * @property {LoadedAdapter[]} [adapters]  LoRAs and control vectors to load behind the model and to use; see
 *   model.setAdapters */

/** @typedef {import('./request.js').RequestOptions & OwnAdapterOptions} AdapterOptions  as in Plumb.load */
/** @typedef {object} OwnAdapterOptions
 * @property {AbortSignal} [signal]
 * @property {(progress: import('./progress.js').Progress) => void} [onProgress]
 * @property {import('./download.js').CacheMode} [cache]
 * @property {string} [sha256] */
/** @typedef {object} AdapterScale
 * @property {number} [scale]  how much it changes; 0 is as if it were not there; default 1
 * @property {[number, number]} [layers]  the first and the last layer that a control vector changes, counted from 0;
 *   default: all
 * @typedef {{source: import('./source.js').OneSource, sha256?: string} & AdapterScale} LoadedAdapter */

export {};
