/** The package and its chat page in Firefox. */
import { launchFirefox } from '../hosts/firefox.mjs';
import { smoke } from '../hosts/smoke.mjs';
import { pageOf, truth } from '../hosts/truth.mjs';

smoke('Firefox', launchFirefox, { shares: true });
truth('Firefox', () => pageOf(launchFirefox));
