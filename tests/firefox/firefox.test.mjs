/** The package and its chat page in Firefox. */
import { clicking } from '../hosts/clicking.mjs';
import { launchFirefox } from '../hosts/firefox.mjs';
import { smoke } from '../hosts/smoke.mjs';
import { pageOf, truth } from '../hosts/truth.mjs';

smoke('Firefox', launchFirefox, { shares: true });
clicking('Firefox', launchFirefox);
truth('Firefox', () => pageOf(launchFirefox));
