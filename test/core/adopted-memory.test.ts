/**
 * The memory of an ArrayBuffer lives until queued work on it is done, even if no object refers to
 * it.
 */
import assert from 'node:assert/strict';
import { fromBlob, memory, ones, scope, type Tensor } from '../../lib/index.js';

const COUNT = 4 << 20;

/** A copy of an adopted array that has yet to be made when array and tensor are gone. */
function copyOfGarbage(value: number): Tensor {
  return scope(() => fromBlob(new Float32Array(COUNT).fill(value)).clone());
}

describe('memory of an ArrayBuffer', () => {
  it('outlives its tensor until the work on it is done', () => {
    const x = ones([1200, 1200]);
    const busy = x.matmul(x); // the copies below wait behind it
    const copies = [1, 2, 3].map(copyOfGarbage);
    ones([3]).add(1); // a next command, with which dropped memory is let go
    memory.collect();
    const others = [4, 5, 6].map((value) => new Float32Array(COUNT).fill(value));
    assert.deepEqual(
      copies.map((copy) => copy.mean().item()),
      [1, 2, 3],
    );
    assert.equal(others.length, 3);
    assert.equal(busy.select(0, 0).select(0, 0).item(), 1200);
  });
});
