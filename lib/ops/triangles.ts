/**
 * Triangles of matrices, and their indices: tril, triu, trilIndices, triuIndices.
 */

import { dispatchOne } from '../core/dispatch.js';
import { int64 } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkNumber, checkSizesOf, shown } from '../core/options.js';
import { formatShape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { copyBack } from './copy.js';
import type { TensorOptions } from './factories.js';
import { tensor } from './from-values.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { triangleRule } from './sharding/factories-and-random.js';

/** A limit, because the list of indices is computed in JavaScript. */
const MOST_INDICES = 2 ** 26;

interface TriangleIndices {
  row: number;
  col: number;
  offset: number;
}

function triangleIndices(
  op: string,
  { row, col, offset }: TriangleIndices,
  inside: (i: number, j: number) => boolean,
  options: TensorOptions,
): Tensor {
  checkSizesOf(op, { row, col });
  checkNumber(op, 'offset', offset, { whole: true });
  if (row * col > MOST_INDICES)
    throw new ArgumentError(
      `${op}: a matrix of ${row} x ${col} has more than ${MOST_INDICES} elements`,
      { op, row, col },
    );
  const [is, js]: [number[], number[]] = [[], []];
  for (let i = 0; i < row; i++) {
    for (let j = 0; j < col; j++) {
      if (!inside(i, j)) continue;
      is.push(i);
      js.push(j);
    }
  }
  return tensor([is, js], { dtype: int64, ...options });
}

/**
 * Row and column indices of the elements on and above a diagonal (`offset` 0: the main one) of a
 * matrix, row by row. Shapes: `[2, n]`. Dtypes: int64 unless given. Gradient: none.
 *
 * @throws ArgumentError, DtypeError, DeviceError, AutogradError for bad options, see {@link
 * TensorOptions}
 * @see PyTorch `torch.triu_indices`
 */
export const triuIndices = defineFunction(
  'triuIndices(row, col, offset, *, dtype, device, requiresGrad, pinMemory)',
  (row: number, col: number, offset = 0, options: TensorOptions = {}): Tensor => {
    return triangleIndices('triuIndices', { row, col, offset }, (i, j) => j - i >= offset, options);
  },
);

/**
 * Row and column indices of the elements on and below a diagonal of a matrix; else as {@link
 * triuIndices}. @see PyTorch `torch.tril_indices`
 */
export const trilIndices = defineFunction(
  'trilIndices(row, col, offset, *, dtype, device, requiresGrad, pinMemory)',
  (row: number, col: number, offset = 0, options: TensorOptions = {}): Tensor => {
    return triangleIndices('trilIndices', { row, col, offset }, (i, j) => j - i <= offset, options);
  },
);

const triangleParams = {
  diagonal: param.kernel(),
  upper: param.kernel(),
};
type Triangle = ParamsOf<typeof triangleParams>;

const triOp: Op<Triangle> = defineOp({
  name: 'tri',
  sharding: triangleRule<Triangle>(),
  doc: 'The lower (or upper) triangle of matrices, zeros elsewhere.',
  inputs: ['x'],
  outputs: ['y'],
  operands: '(x: [...s, r, c]) -> (y: dense [...s, r, c])',
  params: triangleParams,
  meta: ([{ sizes: shape, dtype, device }]) => [{ shape, strides: null, dtype, device }],
  lower: (command, [x], [y]) => {
    if (y.numel() === 0) {
      // Passes an empty matrix, because the kernel recognizes dense matrices by strides, and these
      // count a size of 0 as 1.
      command.view(x, [0, 0], [0, 1]);
      command.outputView(y, [0, 0], [0, 1]);
    } else {
      command.tensor(x);
      command.output(y);
    }
  },
  vjp: (ctx, g) => [dispatchOne(triOp, [g], ctx.params)],
  samples: () => [
    { inputs: [sampleTensor([3, 0])], params: { diagonal: 0, upper: 0 } },
    { inputs: [sampleTensor([3, 4])], params: { diagonal: 0, upper: 0 } },
    { inputs: [sampleTensor([2, 4, 3])], params: { diagonal: 1, upper: 1 } },
  ],
});

/** Defines the function, or its in-place twin, and the method. */
function triangle(op: string, upper: number, inPlace: boolean) {
  const name = inPlace ? `${op}_` : op;
  const fn = defineFunction(
    `${name}(input, /, diagonal)`,
    (input: Tensor, diagonal = 0): Tensor => {
      requireTensor(input, op);
      if (!Number.isInteger(diagonal))
        throw new ArgumentError(
          `${op}: expected the diagonal to be an integer, got ${shown(diagonal)}`,
          { op, diagonal },
        );
      if (input.sizes.length < 2)
        throw new ShapeError(
          `${op}: expected at least 2 dims, got shape ${formatShape(input.sizes)}`,
          { op },
        );
      const kept = dispatchOne(triOp, [input], { diagonal, upper });
      return inPlace ? copyBack(input, kept) : kept;
    },
  );
  addMethod(name, methodOf(fn));
  return fn;
}

/**
 * The lower triangle of matrices, zeros elsewhere: elements on and below `diagonal` (0 by default,
 * positive ones lie above it). Shapes: `[..., r, c]`, kept. Dtypes: any, kept. Gradient: yes.
 *
 * @throws ShapeError for fewer than two dims; ArgumentError for a diagonal that is not an integer,
 * unknown options, or a value that is not a tensor
 * @see PyTorch `torch.tril`
 */
export const tril = triangle('tril', 0, false);
const tril_ = triangle('tril', 0, true);

/**
 * The upper triangle of matrices, zeros elsewhere: elements on and above `diagonal`; else as {@link
 * tril}. @see PyTorch `torch.triu`
 */
export const triu = triangle('triu', 1, false);
const triu_ = triangle('triu', 1, true);

declare module '../core/tensor.js' {
  interface Tensor {
    /** The lower triangle of matrices. The same as {@link tril}. */
    tril: MethodOf<typeof tril>;
    /** {@link tril} in place, with its errors. @throws InPlaceError as {@link Tensor.relu_} */
    tril_: MethodOf<typeof tril_, this>;
    /** The upper triangle of matrices. The same as {@link triu}. */
    triu: MethodOf<typeof triu>;
    /** {@link triu} in place, with its errors. @throws InPlaceError as {@link Tensor.relu_} */
    triu_: MethodOf<typeof triu_, this>;
  }
}
