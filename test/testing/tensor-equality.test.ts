/** The equality tester of vitest and jest, and deep comparisons that have none. */
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import { float64, ones, tensor } from '../../lib/index.js';
import { tensorEquality } from '../../lib/testing/index.js';

describe('tensorEquality', () => {
  it('compares two tensors by shape, dtype and values', () => {
    const x = tensor([1, 2]);
    assert.equal(tensorEquality(x, x), true);
    assert.equal(tensorEquality(x, ones([2]).add(tensor([0, 1]))), true);
    assert.equal(tensorEquality(x, tensor([1, 2 + 1e-6])), false);
    assert.equal(tensorEquality(x, x.view([2, 1])), false);
    assert.equal(tensorEquality(x, tensor([1, 2], { dtype: float64 })), false);
    assert.equal(tensorEquality(tensor([Number.NaN, 0]), tensor([Number.NaN, -0])), true);
  });

  it('leaves values without tensors to the runner, and tells a tensor from another value', () => {
    assert.equal(tensorEquality([1], [1]), undefined);
    assert.equal(tensorEquality(tensor([1]), [1]), false);
    assert.equal(tensorEquality(1, tensor(1)), false);
  });
});

describe('a deep comparison of node:assert', () => {
  it('says what compares tensors', () => {
    const refused = { code: 'ERR_ARGUMENT', message: /deepEqual cannot .*use assertClose\(actual/ };
    assert.throws(() => assert.deepEqual(ones([2]), ones([2])), refused);
    assert.throws(() => assert.deepEqual([{ a: ones([2]) }], [{ a: ones([2]) }]), refused);
    assert.throws(() => assert.notDeepEqual(ones([2]), tensor([1, 2])), refused);
    assert.throws(() => isDeepStrictEqual(ones([2]), ones([2])), refused);
  });

  it('passes for one tensor in both values', () => {
    const x = ones([2]);
    assert.deepEqual({ x }, { x });
  });
});
