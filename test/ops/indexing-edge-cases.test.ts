/**
 * Masks and indices at the edges of what PyTorch accepts: 0-dim, repeated, negative, of wrong
 * shapes.
 */
import assert from 'node:assert/strict';
import {
  bool,
  float64,
  gather,
  int64,
  ones,
  ShapeError,
  type Tensor,
  takeAlongDim,
  tensor,
  zeros,
} from '../../lib/index.js';

const ints = (...values: number[]): Tensor => tensor(values, { dtype: int64 });
const mask = (...values: boolean[]): Tensor => tensor(values, { dtype: bool });

describe('masks in indexing', () => {
  it('select one element or none in a new dim if they are 0-dim', () => {
    assert.deepEqual(tensor(3).maskedSelect(tensor(false)).shape, [0]);
    assert.deepEqual(tensor(3).maskedSelect(tensor(true)).tolist(), [3]);
    assert.deepEqual(ones([2]).index([tensor(true)]).shape, [1, 2]);
    assert.deepEqual(
      zeros([3])
        .indexPut_([tensor(false)], tensor(9))
        .tolist(),
      [0, 0, 0],
    );
    assert.deepEqual(
      zeros([3])
        .indexPut([tensor(true)], tensor(9))
        .tolist(),
      [9, 9, 9],
    );
    assert.deepEqual(
      zeros([2, 3])
        .indexPut_([null, tensor(true)], tensor(4))
        .tolist(),
      [
        [4, 4, 4],
        [4, 4, 4],
      ],
    );
  });

  it('must be bool in maskedSelect', () => {
    assert.throws(
      () => ones([2, 3]).maskedSelect(ints(0, 1, 1)),
      /expected a bool mask, got int64/,
    );
  });

  it('broadcast in maskedScatter, whose source has the same dtype and may be empty if nothing is selected', () => {
    assert.deepEqual(
      tensor([1, 2, 3])
        .maskedScatter(mask(true, false, true).unsqueeze(0), tensor([8, 9]))
        .tolist(),
      [[8, 2, 9]],
    );
    assert.deepEqual(tensor([1, 2]).maskedScatter(mask(false, false), tensor([])).tolist(), [1, 2]);
    assert.throws(
      () => tensor([1, 2]).maskedScatter(mask(false, true), tensor([])),
      /holds no elements/,
    );
    assert.throws(
      () => zeros([1]).maskedScatter(mask(true), ones([1], { dtype: float64 })),
      /source of dtype float32, got float64/,
    );
  });
});

describe('indices', () => {
  it('have as many dims as the input in takeAlongDim', () => {
    assert.throws(() => takeAlongDim(ones([3, 3]), ints(2, 1, 0), 0), /the numbers of dims differ/);
  });

  it('are as many as the slices of the source in indexCopy', () => {
    for (const shape of [
      [3, 2],
      [2, 3],
    ]) {
      assert.throws(
        () => zeros([3, 2]).indexCopy(0, ints(0, 2), ones(shape)),
        /2 indices need a source of shape \[2, 2\]/,
      );
    }
  });

  it('count from the end if they are negative in indexFill', () => {
    assert.deepEqual(zeros([3]).indexFill(0, ints(-1), 3).tolist(), [0, 0, 3]);
  });

  it('are a vector in indexAdd, whose alpha is a whole number for integers', () => {
    assert.throws(
      () => zeros([3]).indexAdd(0, ints(0).unsqueeze(0), ones([1])),
      /expected a vector of indices/,
    );
    assert.throws(() => ints(1, 2).indexAdd(0, ints(0), ints(1), { alpha: 0.5 }), /whole number/);
  });

  it('may be one or none for a 0-dim tensor in gather', () => {
    assert.deepEqual(gather(tensor(3), 0, ints(0)).tolist(), [3]);
    assert.deepEqual(gather(ones([2, 2]), 0, ints()).shape, [0]);
    assert.throws(() => tensor(3).indexSelect(0, ints(0, 0)), /one element, got 2 indices/);
  });

  it('that repeat are combined by a known reduction only', () => {
    assert.throws(
      () => zeros([3]).scatterReduce(0, ints(0, 0), ones([2]), 'x' as never),
      /expected reduce to be one of/,
    );
    assert.throws(
      () => zeros([3]).scatter(0, ints(0, 0), ones([2]), { reduce: 'x' as never }),
      /expected reduce to be one of/,
    );
  });

  it('of fillDiagonal_ are equal in all three dims, whose sizes must be equal', () => {
    const filled = zeros([3, 3, 3]).fillDiagonal_(1);
    assert.equal(filled.sum().item(), 3);
    assert.deepEqual(
      [0, 1, 2].map((i) => filled.select(0, i).select(0, i).select(0, i).item()),
      [1, 1, 1],
    );
    assert.throws(() => zeros([3, 3, 2]).fillDiagonal_(1), ShapeError);
  });
});
