/** Launches itself with one rank, which would recurse. The error of the rank goes to stderr. */
import { fileURLToPath } from 'node:url';
import { launch } from '../../../lib/distributed.js';

await launch(1, fileURLToPath(import.meta.url));
