/**
 * Products over dims. The gradient of a factor is the product of the others, computed from running
 * products, because a division would fail at zeros.
 */

import { reduced } from '../core/decompose.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { cat } from './join.js';
import { addMethod } from './method.js';
import { type DtypeOption, requireTensor } from './operand.js';
import { defineReduction, type Reduction, reduce, restore, widened } from './reduce.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { prodRule } from './sharding/reductions.js';

const prodOp = defineReduction(
  'prod',
  'reduce_prod',
  'Product over dims.',
  widened,
  prodRule,
  (ctx, g) => [prodGradient(g, ctx.input(0), ctx.params)],
  { inputs: [0] },
  'float32',
);

/**
 * d prod / dx_i is the product of the elements before it and of those after it, since a division
 * would fail at zeros.
 */
function prodGradient(g: Tensor, input: Tensor, params: Reduction): Tensor {
  const { dims } = params;
  if (input.numel() === 0) return input.zerosLike();
  const x = reduced(input);
  const order = [...x.sizes.keys()].filter((i) => !dims.includes(i)).concat(dims);
  const moved = x.permute(order);
  const rows = reshapeIfNeeded(moved, [-1, dims.reduce((n, d) => n * (x.sizes[d] as number), 1)]);
  const others = productOfOthers(rows)
    .reshape(moved.sizes)
    .permute(order.map((_, i) => order.indexOf(i)));
  return restore(g, x.sizes, params).mul(others);
}

function productOfOthers(rows: Tensor): Tensor {
  const [count, size] = rows.sizes as [number, number];
  const one = rows.newOnes([count, 1]);
  const before = cat([one, rows.narrow(1, 0, size - 1)], 1).cumprod(1);
  const after = cat([one, rows.narrow(1, 1, size - 1).flip([1])], 1)
    .cumprod(1)
    .flip([1]);
  return before.mul(after);
}

/**
 * Product over one dim, or of all elements (then without `keepdim`); 1 if there are none. Integers
 * and bools give int64. Gradient: yes. @see PyTorch `torch.prod`
 */
export const prod = defineFunction(
  'prod(input, /, dim, keepdim, *, dtype)',
  (
    input: Tensor,
    dim: number | null = null,
    keepdim = false,
    options: DtypeOption = {},
  ): Tensor => {
    requireTensor(input, 'prod');
    return dim === null
      ? reduce(prodOp, null, null, reshapeIfNeeded(input, [-1]), 0, false, options.dtype)
      : reduce(prodOp, null, null, input, dim, keepdim, options.dtype);
  },
);
addMethod('prod', methodOf(prod));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Product over one dim, or of all; the same as {@link prod}. */ prod: MethodOf<typeof prod>;
  }
}
