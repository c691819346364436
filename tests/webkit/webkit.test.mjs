/** The package and its chat page in WebKitGTK, as it is and with SharedArrayBuffer switched on (docs/browsers.md). */
import { clicking } from '../hosts/clicking.mjs';
import { smoke } from '../hosts/smoke.mjs';
import { pageOf, truth } from '../hosts/truth.mjs';
import { launchWebKit } from '../hosts/webkit.mjs';

const noCopy = /: no copy is kept: this browser has no private file system for pages \(OPFS\)$/;
smoke('WebKit', launchWebKit, { noCopy });
smoke('WebKit with SharedArrayBuffer', () => launchWebKit({ sharedMemory: true }), { shares: true, noCopy });
clicking('WebKit', () => launchWebKit());
truth('WebKit', () => pageOf(() => launchWebKit()));
