/** The order in which compiled tensor-parallel models compute and communicate on GPUs. */
import assert from 'node:assert/strict';
import { compareOrder, compareOrderWithProduct } from './001-overlap.js';
import { describeOnGpus } from './worlds.js';

describeOnGpus('a tensor-parallel model that gathers its input', (world) => {
  for (const reorders of [true, false])
    for (const [title, compare] of [
      ['in one frame', compareOrder],
      ['with a product of its own', compareOrderWithProduct],
    ] as const)
      it(`seed 001.19: ${reorders ? 'overlaps' : 'keeps the order of the program'}, ${title}`, async () => {
        const [first, second] = await world.onRanks(2, (rank) =>
          compare(world.device, rank, reorders),
        );
        assert.deepEqual(first, second);
      });
});
