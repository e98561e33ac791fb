/** Either operand of `xlogy` may be a number, as in PyTorch. */
import assert from 'node:assert/strict';
import { ArgumentError, float64, tensor, xlogy } from '../../lib/index.js';

describe('xlogy', () => {
  it('takes a number as either operand', () => {
    const x = tensor([0, 2], { dtype: float64 });
    const expected = tensor([0, 2 * Math.log(3)], { dtype: float64 });
    for (const result of [x.xlogy(3), xlogy(2, tensor([1, 3], { dtype: float64 })), x.xlogy_(3)])
      assert.ok(result.allclose(expected), String(result));
  });

  it('refuses two numbers', () => {
    assert.throws(() => xlogy(2, 3), ArgumentError);
  });
});
