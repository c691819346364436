/* The browser's worker for the engine: it serves the methods of host.js by the protocol. */
import { serve } from '../base/protocol.js';
import { askForThread } from '../base/relay.js';
import { createHost } from '../engine/host.js';
import { platform } from './platform.js';
// These are the indirect imports, listed so that all are requested at once and not only when their importers arrive.
import '../base/async.js';
import '../base/errors.js';
import '../base/hex.js';
import '../base/math.js';
import '../base/options.js';
import '../base/parameters.js';
import '../dist/vendor/noble-hashes/_md.js';
import '../dist/vendor/noble-hashes/_u64.js';
import '../dist/vendor/noble-hashes/sha2.js';
import '../dist/vendor/noble-hashes/utils.js';
import '../engine/addresses.js';
import '../engine/budget.js';
import '../engine/decide.js';
import '../engine/embed.js';
import '../engine/engine.js';
import '../engine/feeder.js';
import '../engine/generation.js';
import '../engine/grammars.js';
import '../engine/instance.js';
import '../engine/modules.js';
import '../engine/preflight.js';
import '../engine/session.js';
import '../engine/stop.js';
import '../engine/templates.js';
import '../engine/threads.js';
import '../engine/traces.js';
import '../engine/variant.js';
import '../loader/busy.js';
import '../loader/copy-store.js';
import '../loader/download.js';
import '../loader/fetch-errors.js';
import '../loader/parts.js';
import '../loader/progress.js';
import '../loader/request.js';
import '../loader/secrets.js';
import '../loader/source.js';
import '../loader/split.js';
import '../loader/stream.js';
import '../loader/sums.js';
import '../loader/url-file.js';
import './opfs-writer.js';
import './opfs.js';

const scope = /** @type {any} */ (self);

serve({
  post: (message, transfer) => scope.postMessage(message, transfer),
  onMessage: handler => scope.addEventListener('message', (/** @type {MessageEvent} */ event) => handler(event.data)),
}, createHost({ ...platform, startThread: () => askForThread(scope) }));
