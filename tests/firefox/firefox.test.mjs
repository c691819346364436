/** The package and its chat page in Firefox. */
import { launchFirefox } from '../hosts/firefox.mjs';
import { smoke } from '../hosts/smoke.mjs';

smoke('Firefox', launchFirefox, { shares: true });
