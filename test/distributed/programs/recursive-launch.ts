/**
 * A program that launches itself: with one rank, so that it would be a chain. What the rank hears
 * goes to stderr.
 */
import { fileURLToPath } from 'node:url';
import { launch } from '../../../lib/distributed.js';

await launch(1, fileURLToPath(import.meta.url));
