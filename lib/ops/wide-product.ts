/**
 * The product of 16-bit matrices in float32: the gradient of an operand that mixed precision
 * converted, in the dtype that it had before.
 */
import { dispatchOne } from '../core/dispatch.js';
import { bfloat16, float16, float32 } from '../core/dtype.js';
import { defineOp, type Op } from '../core/op.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import { asRows } from './linear.js';
import { last } from './matmul.js';
import { lowerMatrices, withOneStride } from './matmul-command.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { matmulRule } from './sharding/matmul.js';

const wideProductOp: Op<object> = defineOp({
  name: 'wideProduct',
  traits: ['compute-bound'],
  doc: 'Product of two matrices of 16-bit floats in float32, plus a matrix of float32.',
  inputs: ['a', 'b', 'addend?'],
  outputs: ['y'],
  operands:
    '(a: float T[b, m, k], b: T[b, k, n], addend?: acc(T) [b, m, n]) -> ' +
    '(y: dense acc(T) [b, m, n])',
  sharding: matmulRule<object>(() => wideProductOp, { partialFactors: false }),
  meta: ([a, b]) => [
    {
      shape: [last(a.sizes, 2), last(b.sizes, 1)],
      strides: null,
      dtype: float32,
      device: a.device,
    },
  ],
  lower: (command, [a, b, addend], [y]) => lowerMatrices(command, a, b, addend, y),
  vjp: 'not-differentiable',
  decompose: ([a, b, addend]) => {
    const y = a.to(float32).matmul(b.to(float32));
    return [addend.storage === null ? y : y.add(addend)];
  },
  samples: () =>
    [bfloat16, float16].flatMap((dtype) => {
      const [a, b] = [sampleTensor([3, 4], { dtype }), sampleTensor([4, 5], { dtype, seed: 4 })];
      return [wrapNumber(0, float32, a.device), sampleTensor([3, 5], { seed: 6 })].map(
        (addend) => ({
          inputs: [a, b, addend] as const,
          params: {},
        }),
      );
    }),
});

/**
 * `a b`, plus the addend. Shapes: `[..., k]` by `[k, n]` to `[..., n]`; the leading dims count as
 * rows. Dtypes: one of 16 bits to float32. @internal
 */
export function wideProduct(a: Tensor, b: Tensor, addend: Tensor | null): Tensor {
  const rows = asRows(withOneStride(a));
  const more = addend === null ? wrapNumber(0, float32, a.device) : asRows(addend);
  const y = dispatchOne(wideProductOp, [rows, b, more], {});
  return reshapeIfNeeded(y, [...a.sizes.slice(0, -1), last(b.sizes, 1)]);
}
