/** The p-norm over dims. */

import { reduced } from '../core/decompose.js';
import { dispatchOne } from '../core/dispatch.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkFlag, unexpected } from '../core/options.js';
import { wrapDims } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import { requireFloating, requireTensor } from './operand.js';
import {
  type Dims,
  lowerReduction,
  reducedShape,
  reductionParams,
  reductionSamples,
  restore,
} from './reduce.js';
import { normRule } from './sharding/reductions.js';
import { where } from './where.js';

const vectorNormParams = { ...reductionParams, order: param.kernel() };
type Norm = ParamsOf<typeof vectorNormParams>;

const normOp: Op<Norm> = defineOp({
  name: 'vectorNorm',
  inputs: ['x'],
  outputs: ['norm'],
  operands: '(x: float [...]) -> (y: [...]) where reducesTo(x, y, reducedNdim)',
  params: vectorNormParams,
  autocast: 'float32 on cuda',
  doc: 'The p-norm over dims.',
  sharding: normRule<Norm>(),
  kernel: 'reduce_norm',
  meta: ([{ sizes: shape, dtype, device }], { dims, keepdim }) => [
    { shape: reducedShape(shape, dims, keepdim), strides: null, dtype, device },
  ],
  lower: (command, [x], outputs, { dims }) => lowerReduction(command, x, outputs, dims),
  saves: { inputs: [0], outputs: [0] },
  vjp: (ctx, g) => [normGradient(g, ctx.input(0), ctx.output(0), ctx.params)],
  decompose: ([x], params) => [normByParts(x, params)],
  samples: () =>
    [2, 3, 1, 0, Number.POSITIVE_INFINITY].flatMap((order) => reductionSamples<Norm>({ order })()),
});

function normByParts(x: Tensor, { dims, keepdim, order }: Norm): Tensor {
  if (order === 0) return x.ne(0).sum(dims, { keepdim }).to(x.dtype);
  if (!Number.isFinite(order)) {
    const largest = order > 0;
    // amax and amin of nothing are errors
    if (x.numel() === 0) return x.sum(dims, { keepdim }).add(largest ? 0 : Infinity);
    return x.abs()[largest ? 'amax' : 'amin'](dims, { keepdim });
  }
  if (order === 2) return x.square().sum(dims, { keepdim }).sqrt();
  return x
    .abs()
    .pow(order)
    .sum(dims, { keepdim })
    .pow(1 / order);
}

function normGradient(g: Tensor, input: Tensor, output: Tensor, params: Norm): Tensor {
  const { order } = params;
  if (order === 0) return input.zerosLike();
  const x = reduced(input);
  const whole = (t: Tensor): Tensor => restore(t, x.sizes, params);
  const spread = whole(g);
  if (order === 1) return spread.mul(x.sign());
  // What follows from the norm alone is computed before it is stretched.
  const norm = reduced(output);
  const zero = norm.eq(0);
  // a division by 0 would make the second gradient NaN
  if (order === 2) return where(whole(zero), 0, spread.mul(x.div(whole(where(zero, 1, norm)))));
  if (!Number.isFinite(order)) {
    const areNan = x.isnan().logicalAnd(whole(norm.isnan()));
    const hits = x.abs().eq(whole(norm)).logicalOr(areNan);
    return spread
      .mul(x.sign())
      .mul(hits)
      .div(hits.sum(params.dims, { keepdim: true }));
  }
  // infinite at 0 for orders below 1; the gradient there is 0
  const magnitude = where(x.eq(0), 0, where(x.eq(0), 1, x.abs()).pow(order - 1));
  const divisor = whole(norm.pow(order - 1));
  return where(whole(zero), 0, spread.mul(x.sign()).mul(magnitude).div(divisor));
}

/**
 * (sum |x|^p)^(1/p) over dims; 0 counts non-zeros, Infinity takes the largest. Gradient: yes.
 * @throws DtypeError unless floating @see PyTorch `torch.norm`
 */
export const norm = defineFunction(
  'norm(input, /, p, dim, keepdim)',
  (input: Tensor, p: number | 'fro' = 2, dim: Dims = null, keepdim = false): Tensor => {
    requireTensor(input, 'norm');
    checkFlag('norm', 'keepdim', keepdim);
    if (typeof p !== 'number' && p !== 'fro') throw unexpected('norm', 'p', "a number or 'fro'", p);
    requireFloating(input, 'norm');
    return dispatchOne(normOp, [input], {
      dims: wrapDims(dim, input.sizes.length, 'norm'),
      keepdim,
      order: p === 'fro' ? 2 : p,
    });
  },
);

addMethod('norm', methodOf(norm));

declare module '../core/tensor.js' {
  interface Tensor {
    /** The p-norm over dims; the same as {@link norm}. */ norm: MethodOf<typeof norm>;
  }
}
