/** Products plus a tensor: linear, addmm and baddbmm. */

import { ShapeError } from '../core/errors.js';
import { broadcastShapes, formatShape, numelOf, sameShape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf, underName } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import {
  batchOf,
  byVector,
  describeOperand,
  last,
  product,
  requireDims,
  requireProduct,
} from './matmul.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';

/** Factors of the `add` variants. */
export interface AddProductOptions {
  /** Factor of the input; 1 by default. With 0 the input is not read: its NaN does not matter. */
  beta?: number;
  /** Factor of the product; 1 by default. */
  alpha?: number;
}

function addProduct(
  op: string,
  input: Tensor,
  a: Tensor,
  b: Tensor,
  { beta = 1, alpha = 1 }: AddProductOptions,
): Tensor {
  requireProduct(op, a, b, input);
  const shape = [...batchOf(a.sizes), last(a.sizes, 2), last(b.sizes, 1)];
  if (!sameShape(broadcastShapes(input.sizes, shape, op), shape))
    throw new ShapeError(
      `${op}: input ${formatShape(input.sizes)} does not broadcast to ${formatShape(shape)}`,
      { op },
    );
  return product(a, b, input, { alpha, beta });
}

/**
 * beta * input + alpha * mat1 mat2. Shapes: `[m, k]` by `[k, n]`, the input broadcast to `[m, n]`,
 * the result. Dtypes: all equal, kept. Gradient: all.
 *
 * @throws ShapeError for sizes that do not fit, or an input that does not broadcast; DtypeError,
 * DeviceError, ArgumentError as {@link matmul}
 * @see PyTorch `torch.addmm`
 */
export const addmm = underName(
  'addmm',
  defineFunction(
    'addmm(input, /, mat1, mat2, *, beta, alpha)',
    (input: Tensor, mat1: Tensor, mat2: Tensor, options: AddProductOptions = {}): Tensor => {
      requireTensor(input, 'addmm');
      requireDims('addmm', mat1, 2, 'mat1');
      requireDims('addmm', mat2, 2, 'mat2');
      return addProduct('addmm', input, mat1, mat2, options);
    },
  ),
);

/**
 * beta * input + alpha * batch1 batch2. Shapes: `[b, m, k]` by `[b, k, n]`, the input broadcast to
 * `[b, m, n]`, the result. Dtypes: all equal, kept. Gradient: all.
 *
 * @throws ShapeError, DtypeError, DeviceError, ArgumentError as {@link addmm}
 * @see PyTorch `torch.baddbmm`
 */
export const baddbmm = underName(
  'baddbmm',
  defineFunction(
    'baddbmm(input, /, batch1, batch2, *, beta, alpha)',
    (input: Tensor, batch1: Tensor, batch2: Tensor, options: AddProductOptions = {}): Tensor => {
      requireTensor(input, 'baddbmm');
      requireDims('baddbmm', batch1, 3, 'batch1');
      requireDims('baddbmm', batch2, 3, 'batch2');
      if (batch1.sizes[0] !== batch2.sizes[0])
        throw new ShapeError(
          `baddbmm: expected batches of one size, got shapes ${formatShape(batch1.sizes)} and ` +
            `${formatShape(batch2.sizes)}`,
          { op: 'baddbmm' },
        );
      return addProduct('baddbmm', input, batch1, batch2, options);
    },
  ),
);

/**
 * Merges all dims but the last. Computes the size, because -1 is ambiguous without elements.
 * @internal
 */
export const asRows = (t: Tensor): Tensor =>
  t.reshape([numelOf(t.sizes.slice(0, -1)), last(t.sizes, 1)]);

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
      const isVector = weight.sizes.length === 1;
      if (
        input.sizes.length === 0 ||
        !(isVector || weight.sizes.length === 2) ||
        last(input.sizes, 1) !== last(weight.sizes, 1)
      ) {
        throw new ShapeError(
          "linear: the input's last size must equal the " +
            `weight's.${describeOperand('input', input)}${describeOperand('weight', weight)}`,
          {
            op: 'linear',
            shapes: [input.sizes, weight.sizes],
          },
        );
      }
      if (isVector) return byVector(input, weight, bias);
      const transposed = weight.t();
      const rows = input.sizes.length === 1 ? input.unsqueeze(0) : input;
      if (bias === null) requireProduct('linear', rows, transposed);
      const out =
        bias === null
          ? product(rows, transposed)
          : addProduct('linear', bias, rows, transposed, {});
      return rows === input ? out : out.squeeze(0);
    },
  ),
);
addMethod('addmm', methodOf(addmm));
addMethod('baddbmm', methodOf(baddbmm));
const addmm_ = defineFunction(
  'addmm_(input, /, mat1, mat2, *, beta, alpha)',
  (input: Tensor, mat1: Tensor, mat2: Tensor, options: AddProductOptions = {}): Tensor =>
    input.copy_(addmm(input, mat1, mat2, options)),
);
addMethod('addmm_', methodOf(addmm_));

declare module '../core/tensor.js' {
  interface Tensor {
    /** beta * this + alpha * mat1 mat2. The same as {@link addmm}. */
    addmm: MethodOf<typeof addmm>;
    /**
     * {@link addmm} in place, with its errors; this has the shape of the product. @throws
     * InPlaceError as {@link Tensor.relu_}
     */
    addmm_: MethodOf<typeof addmm_, this>;
    /** beta * this + alpha * batch1 batch2. The same as {@link baddbmm}. */
    baddbmm: MethodOf<typeof baddbmm>;
  }
}
