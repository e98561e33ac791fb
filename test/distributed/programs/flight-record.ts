/**
 * A rank of three that reduces three times, and then differs as its argument says: `deviates`,
 * `dies`, `hangs` or `crashes`, over a backend, by the device if it is empty, and on a device. Prints
 * its rank and the file that its error names.
 */

import {
  allReduce,
  CollectiveError,
  initProcessGroup,
  withPurpose,
} from '../../../lib/distributed.js';
import { ones } from '../../../lib/index.js';

const [fault, backend, device] = process.argv.slice(2) as [string, string, 'cpu' | 'cuda'];
const rank = Number(process.env['RANK']);
const DEVIANT = 1;
const REDUCTIONS = 3;

await initProcessGroup(backend || undefined, { timeoutMs: 3000 });

async function reduce(shape: readonly number[], purpose: string): Promise<void> {
  const t = ones(shape, { device });
  withPurpose(purpose, () => allReduce(t));
  await t.read();
}

for (let i = 0; i < REDUCTIONS; i++) await reduce([2, 3], `of step ${i}`);
if (rank === DEVIANT) {
  if (fault === 'dies') process.kill(process.pid, 'SIGKILL');
  if (fault === 'crashes') process.kill(process.pid, 'SIGSEGV');
  if (fault === 'hangs') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 60_000);
}
try {
  await reduce(rank === DEVIANT ? [5] : [2, 3], 'of the last step');
} catch (error) {
  if (!(error instanceof CollectiveError)) throw error;
  console.log(JSON.stringify({ rank, message: error.message, file: error.details.flightRecord }));
}
process.exit();
