/** Rows of a table by index: embedding and oneHot. */

import { bool, int64 } from '../core/dtype.js';
import { ArgumentError, IndexError, ShapeError } from '../core/errors.js';
import { checkNumber } from '../core/options.js';
import { formatShape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf, underName } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { indexSelect, requireIndex } from './index-select.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { scatter } from './scatter.js';

/**
 * Rows of `weight` by index. Shapes: input `[...]`, weight `[n, d]`, result `[..., d]`. Dtypes:
 * input int64 or int32, weight any, kept. Gradient: weight, but not its row `paddingIdx` (none by
 * default; a negative one counts from the end).
 *
 * @throws IndexError for a `paddingIdx` out of range, and an index outside [0, n), possibly not
 * before values are read; ShapeError unless the weight is a matrix; DtypeError for another index;
 * ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.embedding`
 */
export const embedding = underName(
  'embedding',
  defineFunction(
    'embedding(input, /, weight, paddingIdx)',
    (input: Tensor, weight: Tensor, paddingIdx: number | null = null): Tensor => {
      requireTensor(weight, 'embedding', 'weight');
      requireIndex(input, 'embedding');
      if (weight.sizes.length !== 2)
        throw new ShapeError(
          `embedding: expected a weight of 2 dims, got ${formatShape(weight.sizes)}`,
          { op: 'embedding' },
        );
      if (weight.sizes[0] === 0 && input.numel() > 0)
        throw new IndexError('embedding: a weight without rows has none for an index', {
          op: 'embedding',
          shape: weight.sizes,
        });
      const table = paddingIdx === null ? weight : withoutGradient(weight, paddingIdx);
      return reshapeIfNeeded(indexSelect(table, 0, reshapeIfNeeded(input, [-1])), [
        ...input.sizes,
        weight.sizes[1] as number,
      ]);
    },
  ),
);

function withoutGradient(weight: Tensor, row: number): Tensor {
  const rows = weight.sizes[0] as number;
  checkNumber('embedding', 'paddingIdx', row, { whole: true });
  if (row < -rows || row >= rows)
    throw new IndexError(`embedding: paddingIdx ${row} is out of range for ${rows} rows`, {
      op: 'embedding',
    });
  if (!weight.requiresGrad) return weight;
  const at = row < 0 ? row + rows : row;
  const mask = weight.newZeros([rows, 1], { dtype: bool });
  mask.select(0, at).fill_(1);
  return weight.detach().where(mask, weight);
}

/**
 * Zeros with a one at each index. Shapes: `[...]` to `[..., numClasses]`; without `numClasses`, one
 * more than the largest index (which blocks). Dtypes: int64 or int32 to int64. Gradient: none.
 *
 * @throws IndexError for an index outside [0, numClasses), possibly not before values are read;
 * DtypeError, ArgumentError for another index
 * @see PyTorch `torch.nn.functional.one_hot`
 */
export const oneHot = underName(
  'oneHot',
  defineFunction('oneHot(input, /, numClasses)', (input: Tensor, numClasses = -1): Tensor => {
    requireIndex(input, 'oneHot');
    checkNumber('oneHot', 'numClasses', numClasses, { from: -1, whole: true });
    const classes =
      numClasses >= 0 ? numClasses : input.numel() === 0 ? 0 : Number(input.amax().item()) + 1;
    if (classes === 0 && input.numel() > 0)
      throw new ArgumentError('oneHot: no index is below 0 classes', { op: 'oneHot', numClasses });
    const zeros = input.newZeros([...input.sizes, classes], { dtype: int64 });
    return scatter(zeros, -1, input.unsqueeze(-1), 1);
  }),
);

addMethod('embedding', methodOf(embedding));
addMethod('oneHot', methodOf(oneHot));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Rows of `weight` by this index. The same as {@link embedding}. */
    embedding: MethodOf<typeof embedding>;
    /**
     * Zeros with a one at each index, as int64. Blocks without `numClasses`. The same as {@link
     * oneHot}.
     */
    oneHot: MethodOf<typeof oneHot>;
  }
}
