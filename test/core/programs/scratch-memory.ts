/**
 * Runs a kernel that needs scratch memory while the allocator's cache, and then tensors, take
 * nearly all of the device.
 */
import {
  cuda,
  full,
  int32,
  int64,
  memory,
  ones,
  scope,
  type Tensor,
  zeros,
} from '../../../lib/index.js';

const GIB = 2 ** 30;
const COUNT = 2 ** 27; // 2 GiB of scratch to sort their indices
const ROOM = 0.75 * GIB; // that is left outside the cache

const table = zeros([16], { dtype: int32, device: 'cuda' });
const index = full([COUNT], 3, { dtype: int64, device: 'cuda' });
const source = ones([1], { dtype: int32, device: 'cuda' }).expand([COUNT]);
cuda.synchronize();

/** Tensors of a GiB until little is left outside them. */
function fill(): Tensor[] {
  const filling: Tensor[] = [];
  while (cuda.getDeviceProperties().freeBytes > ROOM + GIB)
    filling.push(zeros([GIB / 4], { device: 'cuda' }));
  return filling;
}

let error: unknown = null;
const filling = fill();
const before = memory.stats('cuda');
try {
  scope(() => table.indexAdd_(0, index, source));
  cuda.synchronize();
} catch (caught) {
  const { code, message, details } = caught as Error & { code: string; details: unknown };
  error = { code, message, details };
}
for (const t of filling) t.dispose();
const emptied = memory.stats('cuda');
table.zero_();
scope(() => table.indexAdd_(0, index, source));
const sum = table.tolist() as number[];
const large = memory.stats('cuda'); // given back by the synchronisation
scope(() => table.indexAdd_(0, index.narrow(0, 0, 1000), source.narrow(0, 0, 1000)));
cuda.synchronize();
const after = memory.stats('cuda'); // small enough to be kept
const scratchBlocks = memory
  .snapshot('cuda')
  .segments.flatMap((segment) => segment.blocks)
  .filter((block) => block.state === 'scratch');
process.stdout.write(
  `${JSON.stringify({ error, before, emptied, large, after, sum, scratchBlocks })}\n`,
);
