/** maskedFill and maskedFill_ convert the value to the dtype of the tensor, as in PyTorch. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  bool,
  float32,
  float64,
  int64,
  ShapeError,
  type Tensor,
  tensor,
  uint8,
} from '../../lib/index.js';

const mask = (): Tensor => tensor([true, false]);
const whole = (): Tensor => tensor([1, 2], { dtype: int64 });
const bytes = (): Tensor => tensor([1, 2], { dtype: uint8 });
const flags = (): Tensor => tensor([false, false]);
type Fill = Tensor | number | bigint | boolean;

const cases: [name: string, input: () => Tensor, value: Fill, first: unknown][] = [
  ['bools by 1', flags, 1, true],
  ['bools by 0', flags, 0, false],
  ['bools by a fraction', flags, 0.5, true],
  ['bools by true', flags, true, true],
  ['bools by a tensor of numbers', flags, tensor(0.5), true],
  ['bools by a bigint', flags, 2n, true],
  ['integers by a float tensor', whole, tensor(3), 3],
  ['integers by a fraction, which is cut off', whole, 3.7, 3],
  ['integers by a tensor of a fraction', whole, tensor(3.7), 3],
  ['integers by a bool', whole, true, 1],
  ['integers beyond int32', whole, 2 ** 40, 2 ** 40],
  ['bytes by a wider integer', bytes, tensor(3, { dtype: int64 }), 3],
  ['floats by a float64 tensor', () => tensor([1, 2]), tensor(0.5, { dtype: float64 }), 0.5],
];

describe('maskedFill', () => {
  for (const [name, input, value, first] of cases) {
    it(`fills ${name}`, () => {
      for (const filled of [
        input().maskedFill(mask(), value),
        input().maskedFill_(mask(), value),
      ]) {
        assert.equal(filled.dtype, input().dtype);
        const expected = input().tolist() as unknown[];
        assert.deepEqual(filled.tolist(), [first, expected[1]]);
      }
    });
  }

  it('refuses a value that the dtype cannot hold, under its own name', () => {
    assert.throws(() => bytes().maskedFill_(mask(), 300), /maskedFill_: 300 cannot/);
    assert.throws(() => bytes().maskedFill(mask(), 300n), ArgumentError);
    assert.throws(() => whole().maskedFill_(mask(), Number.NaN), ArgumentError);
    assert.throws(
      () => tensor([1, 2]).maskedFill_(tensor([true, false, true]), 1),
      (e: Error) => e instanceof ShapeError && e.message.startsWith('maskedFill_:'),
    );
  });

  it('has a gradient for a value of another dtype', () => {
    const value = tensor(2, { dtype: float64, requiresGrad: true });
    const filled = tensor([1, 2]).maskedFill(mask(), value);
    assert.equal(filled.dtype, float32);
    filled.sum().backward();
    assert.equal(value.grad?.item(), 1);
    assert.equal(value.grad?.dtype, float64);
    assert.equal(flags().maskedFill(mask(), value).dtype, bool);
  });
});
