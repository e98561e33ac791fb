/** Fills memory in a control group, then makes garbage in it; see control-group.test.ts. */
import { empty, memory, OutOfMemoryError, type Tensor } from '../../../lib/index.js';

const BYTES = 4 * 2 ** 20;
const kept: Tensor[] = [];
let details: Readonly<Record<string, unknown>> = {};
try {
  while (kept.length < 200) kept.push(empty([BYTES / 4]));
} catch (error) {
  if (!(error instanceof OutOfMemoryError)) throw error;
  details = error.details;
}
const filled = kept.length;
for (const t of kept.splice(0)) t.dispose();
for (let i = 0; i < 200; i++) empty([BYTES / 4]);
const { peakReservedBytes } = memory.stats();
console.log(
  JSON.stringify({ filled, totalBytes: details['totalBytes'] ?? null, peakReservedBytes }),
);
