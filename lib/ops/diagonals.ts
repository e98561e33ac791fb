/**
 * Diagonals of matrices: diagEmbed, diag, diagflat, fillDiagonal_.
 */

import { bool } from '../core/dtype.js';
import { IndexError, ShapeError } from '../core/errors.js';
import { checkNumber } from '../core/options.js';
import { formatShape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { cat } from './join.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

/** @internal */
export const matrix = () => sampleTensor([4, 3]);

/**
 * The vectors of the last dim on the diagonals of matrices, zeros elsewhere. Shapes: `[..., n]` to
 * `[..., m, m]` with m = n + |offset|; the matrices are in dims `dim1` and `dim2` of the result.
 * Above the main diagonal for a positive offset. Dtypes: any, kept. Gradient: yes.
 *
 * @throws IndexError for a dim out of range, or a tensor without dims; ArgumentError for equal
 * dims, a bad offset, or a value that is not a tensor
 * @see PyTorch `torch.diag_embed`
 */
export const diagEmbed = defineComposite(
  'diagEmbed',
  defineFunction(
    'diagEmbed(input, /, offset, dim1, dim2)',
    (input: Tensor, offset = 0, dim1 = -2, dim2 = -1): Tensor => {
      requireTensor(input, 'diagEmbed');
      checkNumber('diagEmbed', 'offset', offset, { whole: true });
      const ndim = input.ndim + 1;
      const [a, b] = [wrapDim(dim1, ndim, 'diagEmbed'), wrapDim(dim2, ndim, 'diagEmbed')];
      if (input.ndim === 0 || a === b)
        throw new IndexError(
          `diagEmbed: expected two dims and a vector to put along them, got dims ${dim1} and ` +
            `${dim2} and shape ${formatShape(input.sizes)}`,
          { op: 'diagEmbed' },
        );
      const below = Math.abs(offset);
      const vectors =
        below === 0
          ? input
          : cat([input, input.detach().newZeros(input.sizes.with(-1, below))], -1);
      const size = vectors.sizes[input.ndim - 1] as number;
      const onDiagonal = input
        .detach()
        .newOnes([size, size], { dtype: bool })
        .triu(offset)
        .tril(offset);
      // A diagonal above the main one has one element in each row, one below has one in each
      // column.
      const matrices = where(
        onDiagonal,
        vectors.unsqueeze(offset >= 0 ? -1 : -2),
        input.detach().newZeros([]),
      );
      return matrices.movedim([-2, -1], [a, b]).contiguous();
    },
  ),
  {
    samples: () => [
      [sampleTensor([3])],
      [sampleTensor([2, 3]), 1],
      [sampleTensor([2, 3]), -1, 0, 2],
    ],
  },
);

/**
 * A matrix with the vector on its diagonal, or a copy of the diagonal of a matrix. Shapes: `[n]` to
 * `[m, m]` with m = n + |diagonal|, `[r, c]` to `[k]`, which is empty for a diagonal outside.
 * Dtypes: any, kept. Gradient: yes.
 *
 * @throws ShapeError unless the tensor has one or two dims; ArgumentError for a diagonal that is
 * not an integer, or a value that is not a tensor
 * @see PyTorch `torch.diag`
 */
export const diag = defineComposite(
  'diag',
  defineFunction('diag(input, /, diagonal)', (input: Tensor, diagonal = 0): Tensor => {
    requireTensor(input, 'diag');
    checkNumber('diag', 'diagonal', diagonal, { whole: true });
    if (input.ndim === 1) return diagEmbed(input, diagonal);
    if (input.ndim === 2) return input.diagonal(diagonal).clone();
    throw new ShapeError(
      `diag: expected a vector or a matrix, got shape ${formatShape(input.sizes)}`,
      { op: 'diag' },
    );
  }),
  { samples: () => [[sampleTensor([3]), 1], [matrix()]] },
);

/**
 * A matrix with all elements on its diagonal, zeros elsewhere. Shapes: any to `[m, m]`, m = numel +
 * |offset|. Dtypes: any, kept. Gradient: yes.
 *
 * @throws ArgumentError for an offset that is not an integer
 * @see PyTorch `torch.diagflat`
 */
export const diagflat = defineComposite(
  'diagflat',
  defineFunction('diagflat(input, /, offset)', (input: Tensor, offset = 0): Tensor => {
    requireTensor(input, 'diagflat');
    checkNumber('diagflat', 'offset', offset, { whole: true });
    return diagEmbed(input.reshape(-1), offset);
  }),
  { samples: () => [[sampleTensor([2, 2])]] },
);

const fillDiagonal_ = defineFunction(
  'fillDiagonal_(input, /, fillValue)',
  (input: Tensor, fillValue: number): Tensor => {
    if (input.ndim < 2)
      throw new ShapeError(
        `fillDiagonal_: expected at least 2 dims, got shape ${formatShape(input.sizes)}`,
        { op: 'fillDiagonal_' },
      );
    if (input.ndim > 2 && input.sizes.some((s) => s !== input.sizes[0])) {
      throw new ShapeError(
        'fillDiagonal_: expected a matrix, or dims of one size, got shape ' +
          `${formatShape(input.sizes)}`,
        { op: 'fillDiagonal_' },
      );
    }
    let diagonal = input.diagonal();
    for (let dim = 2; dim < input.ndim; dim++) diagonal = diagonal.diagonal(0, 0, -1);
    diagonal.fill_(fillValue);
    return input;
  },
);
addMethod('fillDiagonal_', methodOf(fillDiagonal_));

declare module '../core/tensor.js' {
  interface Tensor {
    /** The vectors of the last dim on the diagonals of matrices. The same as {@link diagEmbed}. */
    diagEmbed: MethodOf<typeof diagEmbed>;
    /**
     * A matrix with this vector on its diagonal, or the diagonal of this matrix. The same as {@link
     * diag}.
     */
    diag: MethodOf<typeof diag>;
    /** A matrix with all elements on its diagonal. The same as {@link diagflat}. */
    diagflat: MethodOf<typeof diagflat>;
    /**
     * Sets the diagonal of a matrix `[r, c]` to one value. Gradient: 0 on the diagonal.
     *
     * @throws ShapeError for fewer than 2 dims, or more of different sizes; ArgumentError for a
     * value that an integer dtype cannot hold; InPlaceError as {@link Tensor.relu_}
     * @see PyTorch `torch.Tensor.fill_diagonal_`
     */
    fillDiagonal_: MethodOf<typeof fillDiagonal_, this>;
  }
}
