/**
 * The order in which compiled tensor-parallel models compute and communicate, as PyTorch's
 * test_dtensor_compile.py requires it.
 */
import assert from 'node:assert/strict';
import { withRanks } from '../../lib/testing/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';
import { compareOrder, compareOrderWithProduct } from './001-overlap.js';
import { leavesNoMemory } from './compiled.js';

/** Every rank loads the library first, which takes long on a busy machine. */
const PROCESSES = { mode: 'process', timeoutMs: 120_000 } as const;

describe('a tensor-parallel model that gathers its input', () => {
  leavesNoMemory();

  for (const reorders of [true, false]) {
    const order = reorders
      ? 'puts computation beside communication'
      : 'keeps the order of the program';

    it(`seed 001.19: waits before the first product, and ${order}, in one frame`, async () => {
      const [first, second] = await onRanks(2, (rank) => compareOrder('cpu', rank, reorders));
      assert.deepEqual(first, second);
    });

    it(`seed 001.19: with a product of its own ${order}`, async () => {
      const [first, second] = await onRanks(2, (rank) =>
        compareOrderWithProduct('cpu', rank, reorders),
      );
      assert.deepEqual(first, second);
    });

    it(
      `seed 001.19: ${order} on ranks that are processes`,
      withRanks(
        2,
        async (rank) => {
          await compareOrder('cpu', rank, reorders);
          await compareOrderWithProduct('cpu', rank, reorders);
        },
        PROCESSES,
      ),
    );
  }
});
