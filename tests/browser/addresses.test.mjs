/** Modules with 64-bit addresses in Chromium. */
import { addresses } from '../hosts/addresses.mjs';
import { launch } from '../hosts/browser.mjs';
import { pageOf } from '../hosts/truth.mjs';

addresses('Chromium', () => pageOf(launch.chromium), { wide: true, threads: [1, 2] });
