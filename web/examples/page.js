/* The gallery is links; this only keeps it, like the pages that it leads to, for use without a network. */
import { keepPage } from '../chat/offline.js';

void keepPage();
