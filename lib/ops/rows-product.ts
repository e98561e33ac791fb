/** The product of two lists of rows: what the gradient of a weight is of a batch of sequences. */
import { dispatchOne } from '../core/dispatch.js';
import { defineOp, type Op } from '../core/op.js';
import type { Tensor } from '../core/tensor.js';
import { asRows } from './linear.js';
import { last, product } from './matmul.js';
import { lowerRowsProduct, withOneStride } from './matmul-command.js';
import { PLAIN, type Product, productOperands, productParams } from './product-params.js';
import { sampleTensor } from './samples.js';
import { rowsProductRule } from './sharding/matmul.js';

/**
 * An op of its own, because rows flattened first would be no shards any more of a sequence that is
 * sharded along its tokens.
 */
const rowsProductOp: Op<Product, readonly [Tensor, Tensor]> = defineOp({
  name: 'rowsProduct',
  traits: ['compute-bound'],
  autocast: 'low precision',
  doc: 'Product of the rows of a, transposed, and those of b, over all leading dims.',
  kernel: 'matmul',
  inputs: ['a', 'b'],
  outputs: ['y'],
  operands: productOperands,
  params: productParams,
  sharding: rowsProductRule<Product>((a, b) => rowsProduct(a, b)),
  meta: ([a, b]) => [
    {
      shape: [last(a.sizes, 1), last(b.sizes, 1)],
      strides: null,
      dtype: a.dtype,
      device: a.device,
    },
  ],
  lower: (command, [a, b], [y]) => lowerRowsProduct(command, a, b, y),
  saves: { inputs: (needs) => (needs(0) ? (needs(1) ? [0, 1] : [1]) : needs(1) ? [0] : []) },
  vjp: (ctx, g) => [
    ctx.needs(0) ? product(ctx.input(1), g.t()) : null, // dL/da = b dL/dy^T
    ctx.needs(1) ? product(ctx.input(0), g) : null, // dL/db = a dL/dy
  ],
  decompose: ([a, b]) => [product(asRows(a).t(), asRows(b))],
  samples: () => [
    { inputs: [sampleTensor([2, 3, 4]), sampleTensor([2, 3, 5], { seed: 4 })], params: PLAIN },
    { inputs: [sampleTensor([3, 2]), sampleTensor([3, 1], { seed: 4 })], params: PLAIN },
  ],
  publicCall: ([a, b]) => rowsProduct(a, b),
});

/** Shapes: `[..., k]` and `[..., n]`, with equal leading dims, to `[k, n]`. @internal */
export function rowsProduct(a: Tensor, b: Tensor): Tensor {
  return dispatchOne(rowsProductOp, [withOneStride(a), withOneStride(b)], PLAIN);
}
