/** How a dim is divided among ranks. */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import { chunkOf } from '../../lib/core/chunks.js';

describe('the chunk rule', () => {
  it('gives full chunks to the first ranks and the rest to the last ones', () => {
    const sizes = (size: number, ranks: number) =>
      Array.from({ length: ranks }, (_, rank) => chunkOf(size, ranks, rank).size);
    assert.deepEqual(sizes(5, 4), [2, 2, 1, 0]);
    assert.deepEqual(sizes(10, 4), [3, 3, 3, 1]);
    assert.deepEqual(sizes(3, 4), [1, 1, 1, 0]);
    assert.deepEqual(sizes(6, 4), [2, 2, 2, 0]);
    assert.deepEqual(sizes(257, 2), [129, 128]);
    assert.deepEqual(chunkOf(5, 4, 3), { size: 0, offset: 5 });
  });
});
