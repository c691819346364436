/** Modules with 64-bit addresses in Firefox. */
import { addresses } from '../hosts/addresses.mjs';
import { launchFirefox } from '../hosts/firefox.mjs';
import { pageOf } from '../hosts/truth.mjs';

addresses('Firefox', () => pageOf(launchFirefox), { wide: true, threads: [1, 2] });
