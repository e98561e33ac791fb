/** Launches four ranks with few descriptors left; prints the outcome. */
import { closeSync, openSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { launch } from '../../../lib/distributed.js';

if (process.env['RANK'] !== undefined) await sleep(120_000); // the others, which have to be ended

const [spare] = process.argv.slice(2).map(Number) as [number];
await launch(1, async () => 0); // what is loaded for it is there
const file = new URL(import.meta.url);
const taken: number[] = [];
try {
  for (;;) taken.push(openSync('/dev/null', 'r'));
} catch {
  for (const descriptor of taken.splice(0, spare)) closeSync(descriptor);
}
const began = Date.now();
const outcome = await launch(4, file, { timeoutMs: 60_000, prefixOutput: false, args: ['0'] }).then(
  () => ({ name: 'none', message: '', rank: null }),
  (error: Error & { details: { rank?: number } }) => ({
    name: error.constructor.name,
    message: error.message,
    rank: error.details.rank ?? null,
  }),
);
const ms = Date.now() - began;
for (const descriptor of taken) closeSync(descriptor);
process.stdout.write(JSON.stringify({ ...outcome, ms }));
