/**
 * Gradients of matrix products: stored as the operands were, and in float32 where mixed precision
 * converted them.
 */
import type { VjpContext } from '../core/gradient-rules.js';
import type { Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { asRows } from './linear.js';
import { last, product } from './matmul.js';
import { withOneStride } from './matmul-command.js';
import { PLUS, type Product } from './product-params.js';
import { rowsProduct } from './rows-product.js';
import { wideProduct } from './wide-product.js';

/**
 * dL/da = dL/dy b^T, plus what arrived from other uses of a, such as the projections to keys and
 * values. @internal
 */
export function gradientOfLeft(ctx: VjpContext<Product>, g: Tensor): Tensor {
  const b = ctx.input(1).transpose(-2, -1);
  const strides = ctx.inputStrides(0);
  if (b.sizes.length > 2 || isByColumns(strides) || isDistributed(g, b))
    return productLike(strides, g, b);
  const arrived = ctx.takeArrived(0);
  if (ctx.gradientDtype(0) !== g.dtype) return wideProduct(g, b, arrived);
  return arrived === null ? product(g, b) : product(g, b, arrived, PLUS);
}

/** dL/db = a^T dL/dy; of one `b` for a batch, the sum over the batch. @internal */
export function gradientOfRight(ctx: VjpContext<Product>, g: Tensor): Tensor {
  const a = ctx.input(0);
  const strides = ctx.inputStrides(1);
  if (strides.length === 2 && ctx.gradientDtype(1) !== g.dtype && !isDistributed(g, a)) {
    const [rows, grads] = [asRows(withOneStride(a)), asRows(withOneStride(g))];
    return isByColumns(strides)
      ? wideProduct(grads.t(), rows, null).t()
      : wideProduct(rows.t(), grads, null);
  }
  if (a.sizes.length === 2 || strides.length > 2)
    return productLike(strides, a.transpose(-2, -1), g);
  return isByColumns(strides) ? rowsProduct(g, a).t() : rowsProduct(a, g);
}

/**
 * The product, stored by columns if the operand with these strides was, as a transposed weight is:
 * its gradient then has the layout of the weight.
 */
function productLike(strides: Shape, a: Tensor, b: Tensor): Tensor {
  return isByColumns(strides)
    ? product(b.transpose(-2, -1), a.transpose(-2, -1)).transpose(-2, -1)
    : product(a, b);
}

const isDistributed = (a: Tensor, b: Tensor): boolean => a.sharding !== null || b.sharding !== null;

const isByColumns = (strides: Shape): boolean => last(strides, 2) === 1 && last(strides, 1) !== 1;
