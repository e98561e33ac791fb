/**
 * Products with vectors (mv, dot, outer), and linear: a product with a transposed weight, plus a
 * bias.
 */

import { ShapeError } from '../core/errors.js';
import { broadcastShapes, numelOf } from '../core/shape.js';
import { defineFunction, underName } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import {
  describeBoth,
  describeOperand,
  last,
  matmul,
  product,
  requireDims,
  requireProduct,
} from './matmul.js';
import { addProduct } from './matmul-add.js';
import { requireTensor } from './operand.js';

/**
 * Product of a matrix and a vector. Shapes: `[m, k]` by `[k]` to `[m]`. Dtypes as {@link matmul}.
 * Gradient: both.
 *
 * @throws ShapeError for other numbers of dims, or inner sizes that differ; DtypeError,
 * DeviceError, ArgumentError as {@link matmul}
 * @see PyTorch `torch.mv`
 */
export function mv(input: Tensor, vec: Tensor): Tensor {
  requireDims('mv', input, 2, 'input');
  requireDims('mv', vec, 1, 'vec');
  const column = vec.unsqueeze(1);
  requireProduct('mv', input, column);
  return product(input, column).squeeze(1);
}

/** All dims but the last as one; also without elements, where -1 would say nothing. */
export const asRows = (t: Tensor): Tensor =>
  t.reshape([numelOf(t.shape.slice(0, -1)), last(t.shape, 1)]);

/** One output, which takes no dim. */
function byVector(input: Tensor, weight: Tensor, bias: Tensor | null): Tensor {
  if (bias !== null) broadcastShapes(input.shape.slice(0, -1), bias.shape, 'linear');
  requireProduct('linear', asRows(input), weight.unsqueeze(1));
  const out = matmul(input, weight);
  return bias === null ? out : out.add(bias);
}

/**
 * input weight^T + bias. Shapes: input `[..., k]`, weight `[n, k]`, bias `[n]` to `[..., n]`;
 * weight `[k]` to `[...]`. Dtypes: all equal, kept. Gradient: all.
 *
 * @throws ShapeError for sizes that do not fit; DtypeError, DeviceError, ArgumentError as {@link
 * matmul}
 * @see PyTorch `torch.nn.functional.linear`
 */
export const linear = underName(
  'linear',
  defineFunction(
    'linear(input, /, weight, bias)',
    (input: Tensor, weight: Tensor, bias: Tensor | null = null): Tensor => {
      requireTensor(input, 'linear');
      requireTensor(weight, 'linear', 'weight');
      if (bias !== null) requireTensor(bias, 'linear', 'bias');
      const isVector = weight.shape.length === 1;
      if (
        input.shape.length === 0 ||
        !(isVector || weight.shape.length === 2) ||
        last(input.shape, 1) !== last(weight.shape, 1)
      ) {
        throw new ShapeError(
          `linear: the input's last size must equal the weight's.${describeOperand('input', input)}${describeOperand('weight', weight)}`,
          {
            op: 'linear',
            shapes: [input.shape, weight.shape],
          },
        );
      }
      if (isVector) return byVector(input, weight, bias);
      const transposed = weight.t();
      const rows = input.shape.length === 2 ? input : asRows(input);
      if (bias === null) requireProduct('linear', rows, transposed);
      const out =
        bias === null
          ? product(rows, transposed)
          : addProduct('linear', bias, rows, transposed, {});
      return input.shape.length === 2
        ? out
        : out.reshape([...input.shape.slice(0, -1), weight.shape[0] as number]);
    },
  ),
);

/**
 * Sum of products of two vectors. Shapes: `[n]` by `[n]` to `[]`. Dtypes as {@link matmul}.
 * Gradient: both.
 *
 * @throws ShapeError for other numbers of dims, or sizes that differ; DtypeError, DeviceError,
 * ArgumentError as {@link matmul}
 * @see PyTorch `torch.dot`
 */
export function dot(input: Tensor, other: Tensor): Tensor {
  requireDims('dot', input, 1, 'input');
  requireDims('dot', other, 1, 'other');
  return productOfVectors('dot', input, other);
}

export function productOfVectors(op: string, a: Tensor, b: Tensor): Tensor {
  if (a.shape[0] !== b.shape[0])
    throw new ShapeError(`${op}: sizes differ.${describeBoth(a, b)}`, { op });
  const [row, column] = [a.unsqueeze(0), b.unsqueeze(1)];
  requireProduct(op, row, column);
  return product(row, column).reshape([]);
}

/**
 * All products of the elements of two vectors. Shapes: `[m]` by `[n]` to `[m, n]`. Dtypes: any,
 * promoted. Gradient: both.
 *
 * @throws ShapeError for other numbers of dims; DeviceError for tensors on different devices;
 * ArgumentError for what is no tensor
 * @see PyTorch `torch.outer`
 */
export function outer(input: Tensor, vec2: Tensor): Tensor {
  requireDims('outer', input, 1, 'input');
  requireDims('outer', vec2, 1, 'vec2');
  return input.unsqueeze(1).mul(vec2.unsqueeze(0));
}
declare module '../core/tensor.js' {
  interface Tensor {
    /** Product of a matrix and a vector. The same as {@link mv}. */
    mv(vec: Tensor): Tensor;
    /** Sum of products of two vectors. The same as {@link dot}. */
    dot(other: Tensor): Tensor;
    /** All products of the elements of two vectors. The same as {@link outer}. */
    outer(vec2: Tensor): Tensor;
  }
}
