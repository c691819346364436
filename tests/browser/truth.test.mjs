/** The real models in Chromium. */
import { launch } from '../hosts/browser.mjs';
import { pageOf, truth } from '../hosts/truth.mjs';

truth('Chromium', () => pageOf(launch.chromium));
