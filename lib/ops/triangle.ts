/** Triangles of matrices: tril and triu. */

import { dispatchOne } from '../core/dispatch.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { shown } from '../core/options.js';
import { formatShape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { copyBack } from './copy.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { triangleRule } from './sharding/factories-and-random.js';

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
  meta: ([{ shape, dtype, device }]) => [{ shape, strides: null, dtype, device }],
  lower: (command, [x], [y]) => {
    if (y.numel() === 0) {
      // In whichever dim there are none: the kernel knows dense matrices by strides that count a
      // size of 0.
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

/** The function, or its twin in place, and the method. */
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
      if (input.shape.length < 2)
        throw new ShapeError(
          `${op}: expected at least 2 dims, got shape ${formatShape(input.shape)}`,
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
 * @throws ShapeError for fewer than two dims; ArgumentError for a diagonal that is no integer,
 * options that are none, or what is no tensor
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
