/** Indexing with masks without blocking the event loop: indexAsync, maskedSelectAsync. */

import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import {
  type IndexEntry,
  index,
  isMask,
  maskedShape,
  requireCovering,
  requireEntries,
  withDimForScalars,
} from './index-tensors.js';
import { addMethod } from './method.js';
import { nonzeroAsync } from './nonzero.js';
import { requireTensor } from './operand.js';

/** The indices of the true elements in the place of each mask; all masks are read at the call. */
async function withoutMasks(
  op: string,
  input: Tensor,
  entries: readonly IndexEntry[],
): Promise<IndexEntry[]> {
  let dim = 0;
  for (const entry of entries) {
    if (isMask(entry)) requireCovering(op, input, entry, dim);
    dim += isMask(entry) ? entry.ndim : 1;
  }
  const perDim = entries.map((entry) =>
    isMask(entry) ? nonzeroAsync(entry, { asTuple: true }) : [entry],
  );
  return (await Promise.all(perDim)).flat();
}

/**
 * The same as {@link index} without blocking the event loop: the promise gives the elements when
 * the number of true elements of all masks is known. Later changes of a mask do not count; those of
 * `input` do until then. The promise is rejected with what `index` throws.
 *
 * @example const positive = await indexAsync(x, [x.gt(0)]);
 */
export const indexAsync = defineFunction(
  'indexAsync(input, /, entries)',
  async (input: Tensor, entries: readonly IndexEntry[]): Promise<Tensor> => {
    requireTensor(input, 'indexAsync');
    requireEntries(entries, 'indexAsync');
    const given = withDimForScalars(input, entries);
    return index(given.input, await withoutMasks('indexAsync', given.input, given.entries));
  },
);

/**
 * The same as {@link maskedSelect} without blocking the event loop, as {@link indexAsync}.
 *
 * @example const positive = await maskedSelectAsync(x, x.gt(0));
 */
export const maskedSelectAsync = defineFunction(
  'maskedSelectAsync(input, /, mask)',
  async (input: Tensor, mask: Tensor): Promise<Tensor> => {
    const shape = maskedShape('maskedSelectAsync', input, mask);
    return indexAsync(input.expand(shape), [mask.expand(shape)]);
  },
);

addMethod('indexAsync', methodOf(indexAsync));
addMethod('maskedSelectAsync', methodOf(maskedSelectAsync));

declare module '../core/tensor.js' {
  interface Tensor {
    /** {@link Tensor.index} without blocking the event loop. The same as {@link indexAsync}. */
    indexAsync: MethodOf<typeof indexAsync>;
    /**
     * {@link Tensor.maskedSelect} without blocking the event loop. The same as {@link
     * maskedSelectAsync}.
     */
    maskedSelectAsync: MethodOf<typeof maskedSelectAsync>;
  }
}
