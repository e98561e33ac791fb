/** pad: more elements around a tensor, of a constant or of the tensor itself. */

import { int64 } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkIntegers, checkOneOf } from '../core/options.js';
import { formatShape } from '../core/shape.js';
import { defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { cat } from './join.js';
import { requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';

/**
 * The values of new elements: a constant, the mirrored elements (without the edge), the edge, or
 * the other end.
 */
export type PadMode = 'constant' | 'reflect' | 'replicate' | 'circular';

/**
 * The tensor with elements added (or, for negative counts, removed) at both ends of its last dims:
 * `pad` lists two counts for the last dim, then two for the one before, and so on. A copy, also if
 * nothing is added. Options: `mode` (constant), `value` (0) for constant.
 *
 * Shapes: `[..., n]` with `[before, after]` gives `[..., before + n + after]`. Dtypes: all, kept.
 * Gradient: yes.
 *
 * @throws ArgumentError for an odd list, more pairs than dims, a count that is not an integer, or
 * one that the mode cannot fill: reflect adds at most n - 1, circular at most as many as are left;
 * for a value that an integer dtype cannot hold; for a value that is not a tensor
 * @throws ShapeError if more elements are removed than there are, or all of them by reflect and
 * replicate
 * @see PyTorch `torch.nn.functional.pad`
 */
export const pad = defineComposite(
  'pad',
  defineFunction(
    'pad(input, /, pad, mode, value)',
    (input: Tensor, pad: readonly number[], mode: PadMode = 'constant', value = 0): Tensor => {
      requireTensor(input, 'pad');
      checkIntegers('pad', 'pad', pad);
      checkOneOf('pad', 'mode', mode, ['constant', 'reflect', 'replicate', 'circular']);
      if (pad.length % 2 !== 0 || pad.length / 2 > input.ndim)
        throw new ArgumentError(
          `pad: expected pairs of integers for at most ${input.ndim} dims, got [${pad.join(', ')}]`,
          { op: 'pad', pad },
        );
      let out = input;
      for (let i = 0; i < pad.length; i += 2) {
        const dim = input.ndim - 1 - i / 2;
        const [before, after] = pad.slice(i, i + 2) as [number, number];
        if (before === 0 && after === 0) continue;
        if (mode === 'constant') out = padConstant(out, dim, before, after, value);
        else if (mode === 'circular') out = padCircular(out, dim, before, after);
        else out = padFrom(out, dim, before, after, mode);
      }
      return out === input ? input.clone() : out;
    },
  ),
  {
    method: false,
    samples: () => [
      [sampleTensor([3, 4]), [1, 2]],
      [sampleTensor([3, 4]), [-1, 2, 1, 0], { value: 5 }],
      [sampleTensor([3, 4]), [2, 1], { mode: 'reflect' }],
      [sampleTensor([3, 4]), [2, 1, 1, 0], { mode: 'replicate' }],
      [sampleTensor([3, 4]), [2, 1], { mode: 'circular' }],
    ],
  },
);

/** Removes the elements of negative counts. */
function withoutTaken(input: Tensor, dim: number, before: number, after: number): Tensor {
  const size = input.size(dim);
  const [start, end] = [Math.max(0, -before), Math.max(0, -after)];
  if (start + end > size)
    throw new ShapeError(
      `pad: ${before} and ${after} take more than all of dim ${dim} of shape ` +
        `${formatShape(input.sizes)}`,
      { op: 'pad' },
    );
  return input.narrow(dim, start, size - start - end);
}

function padConstant(
  input: Tensor,
  dim: number,
  before: number,
  after: number,
  value: number,
): Tensor {
  const kept = withoutTaken(input, dim, before, after);
  const block = (n: number): Tensor[] =>
    n > 0
      ? [
          input.detach().newFull(
            input.sizes.map((s, i) => (i === dim ? n : s)),
            value,
          ),
        ]
      : [];
  return cat([...block(before), kept, ...block(after)], dim);
}

/**
 * Circular padding repeats the remaining elements; removed ones do not come back, as they do with
 * reflect and replicate.
 */
function padCircular(input: Tensor, dim: number, before: number, after: number): Tensor {
  return padFrom(
    withoutTaken(input, dim, before, after),
    dim,
    Math.max(0, before),
    Math.max(0, after),
    'circular',
  );
}

/** Pads with the tensor's own elements, by an index for each new element. */
function padFrom(
  input: Tensor,
  dim: number,
  before: number,
  after: number,
  mode: Exclude<PadMode, 'constant'>,
): Tensor {
  const size = input.size(dim);
  const most =
    mode === 'reflect'
      ? size - 1
      : mode === 'circular'
        ? size
        : size === 0
          ? 0
          : Number.POSITIVE_INFINITY;
  if (before > most || after > most)
    throw new ArgumentError(
      `pad: ${mode} cannot add ${before} and ${after} to dim ${dim} of shape ` +
        `${formatShape(input.sizes)}`,
      { op: 'pad', mode },
    );
  const total = size + before + after;
  if (total < 1 && mode !== 'circular')
    throw new ShapeError(
      `pad: ${before} and ${after} leave nothing of dim ${dim} of shape ` +
        `${formatShape(input.sizes)} for ${mode}`,
      { op: 'pad', mode },
    );
  const source = (i: number): number => {
    if (mode === 'replicate') return Math.min(Math.max(i, 0), size - 1);
    if (mode === 'circular') return (i + size) % size;
    return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
  };
  const places = Array.from({ length: total }, (_, i) => source(i - before));
  return input.indexSelect(dim, input.newTensor(places, { dtype: int64 }));
}
