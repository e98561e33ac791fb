/** Calls that the op table's own samples do not cover: uneven and empty pieces, kept dims, several dims, absent operands. */
import type { Sample } from '../../lib/core/op.js';
import { sampleTensor } from '../../lib/ops/samples.js';

export const moreSamples: Record<string, () => Sample<object>[]> = {
  add: () => [{ inputs: [sampleTensor([2, 5, 3]), sampleTensor([5, 1], { seed: 2 })], params: { alpha: 0.5 } }],
};
