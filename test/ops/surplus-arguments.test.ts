/** Arguments without a parameter are refused, not ignored. */
import assert from 'node:assert/strict';
import { ArgumentError, nn, ones, relu, type Tensor } from '../../lib/index.js';

type Untyped = (...args: unknown[]) => unknown;
const method = (name: string): Untyped =>
  (ones([2]) as unknown as Record<string, Untyped>)[name]?.bind(ones([2])) as Untyped;

describe('surplus arguments', () => {
  for (const name of ['exp', 'exp_', 'abs', 'relu', 'sigmoid', 'sqrt']) {
    it(`of the unary op ${name} are refused`, () =>
      assert.throws(() => method(name)({ inplace: true }), ArgumentError));
  }
  for (const name of ['maximum', 'fmod', 'floorDivide', 'fmod_', 'eq', 'mul', 'mul_', 'gt_']) {
    it(`of the binary op ${name} are refused`, () =>
      assert.throws(() => method(name)(2, { out: ones([2]) }), ArgumentError));
  }

  it('of functions are refused', () => {
    assert.throws(() => (relu as Untyped)(ones([1]), true), ArgumentError);
    assert.throws(
      () => (nn.functional.relu as Untyped)(ones([1]), { inplace: true }),
      ArgumentError,
    );
  });

  it('of in-place fills are refused, except the generator', () => {
    for (const name of ['uniform_', 'normal_'])
      assert.throws(() => method(name)(0, 1, { dtype: 'int64' }), ArgumentError);
  });

  it('by name are the names of PyTorch', () => {
    const within = (t: Tensor, low: number, high: number): boolean =>
      t.ge(low).logicalAnd(t.le(high)).all().item<boolean>();
    assert.ok(within(ones([100]).uniform_({ from: 2, to: 3 }), 2, 3));
    assert.ok(within(nn.init.uniform_(ones([100]), { a: 4, b: 5 }), 4, 5));
    assert.deepEqual(nn.init.constant_(ones([1]), { val: 2 }).tolist(), [2]);
    assert.ok(
      within(nn.init.truncNormal_(ones([100]), { std: 0.02, a: -0.04, b: 0.04 }), -0.04, 0.04),
    );
  });
});
