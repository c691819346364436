/** WebKitGTK has no memories with 64-bit addresses, and says so. */
import { addresses } from '../hosts/addresses.mjs';
import { pageOf } from '../hosts/truth.mjs';
import { launchWebKit } from '../hosts/webkit.mjs';

addresses('WebKit', () => pageOf(() => launchWebKit()), { wide: false, threads: [] });
