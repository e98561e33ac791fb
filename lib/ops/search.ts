/**
 * Looking up and counting values: searchsorted, bucketize, isin, bincount, histc. Only the weights
 * of bincount have a gradient. Functions whose result depends on values for its size or range block
 * until the values are read.
 */

import { float32, int32, int64 } from '../core/dtype.js';
import { ArgumentError, DtypeError, ShapeError } from '../core/errors.js';
import { checkNumber } from '../core/options.js';
import { formatShape, sameShape } from '../core/shape.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { operand, requireFloating, requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

/** Options of {@link searchsorted} and {@link bucketize}. */
export interface SearchOptions {
  /** Insert after equal elements instead of before them; false by default. */
  right?: boolean;
  /** Indices as int32 instead of int64; false by default. */
  outInt32?: boolean;
}

/**
 * The index at which each value would be inserted into a sorted sequence (last dim). Bisection, one
 * pass for each doubling of the length.
 *
 * Shapes: a vector with values of any shape (a number gives `[]`), or `[..., n]` with values `[...,
 * m]`; the result has the shape of the values. Dtypes: all, promoted to compare; int64 result (or
 * int32). Gradient: none.
 *
 * @throws ShapeError if leading dims differ; DeviceError for two devices; ArgumentError if the
 * sequence is not a tensor or has no dims
 * @see PyTorch `torch.searchsorted`
 */
export const searchsorted = defineComposite(
  'searchsorted',
  defineFunction(
    'searchsorted(sortedSequence, /, values, *, outInt32, right)',
    (
      sortedSequence: Tensor,
      values: Tensor | number,
      { right = false, outInt32 = false }: SearchOptions = {},
    ): Tensor => {
      requireTensor(sortedSequence, 'searchsorted', 'sortedSequence');
      if (sortedSequence.ndim === 0)
        throw new ShapeError(
          'searchsorted: expected a sequence of at least one dim, got a tensor without dims',
          { op: 'searchsorted' },
        );
      if (typeof values === 'number')
        return searchsorted(sortedSequence, sortedSequence.newFull([], values), {
          right,
          outInt32,
        });
      requireTensor(values, 'searchsorted', 'values');
      const vector = sortedSequence.ndim === 1;
      if (!vector && !sameShape(sortedSequence.sizes.slice(0, -1), values.sizes.slice(0, -1))) {
        throw new ShapeError(
          `searchsorted: the leading dims of ${formatShape(sortedSequence.sizes)} and ` +
            `${formatShape(values.sizes)} differ`,
          { op: 'searchsorted' },
        );
      }
      const wanted = vector ? reshapeIfNeeded(values.detach(), [-1]) : values.detach();
      const sequence = sortedSequence.detach();
      const size = sequence.sizes[sequence.ndim - 1] as number;
      let low = wanted.newZeros(wanted.sizes, { dtype: int64 });
      let high = wanted.newFull(wanted.sizes, size, { dtype: int64 });
      for (let length = size; length > 0; length = Math.floor(length / 2)) {
        const middle = low.add(high).floorDivide(2);
        const at = sequence.gather(-1, middle.clamp({ max: size - 1 }));
        const open = low.lt(high);
        // NaN goes to the end
        const after = (right ? at.gt(wanted) : at.ge(wanted)).logicalNot().logicalAnd(open);
        low = where(after, middle.add(1), low);
        high = where(open.logicalAnd(after.logicalNot()), middle, high);
      }
      return reshapeIfNeeded(low, values.sizes).to(outInt32 ? int32 : int64);
    },
  ),
  {
    method: false,
    samples: () => [
      [sampleTensor([9]).sort().values.detach(), sampleTensor([2, 3], { seed: 8 }).detach()],
    ],
  },
);

/**
 * The bucket of each element between sorted boundaries: {@link searchsorted} with the arguments
 * exchanged, in the input's shape. @see PyTorch `torch.bucketize`
 */
export const bucketize = defineComposite(
  'bucketize',
  defineFunction(
    'bucketize(input, /, boundaries, *, outInt32, right)',
    (input: Tensor, boundaries: Tensor, options: SearchOptions = {}): Tensor => {
      requireTensor(input, 'bucketize');
      requireTensor(boundaries, 'bucketize', 'boundaries');
      if (boundaries.ndim !== 1)
        throw new ShapeError(
          `bucketize: expected a vector of boundaries, got shape ${formatShape(boundaries.sizes)}`,
          { op: 'bucketize' },
        );
      return searchsorted(boundaries, input, options);
    },
  ),
  {
    method: false,
    samples: () => [[sampleTensor([2, 3]).detach(), sampleTensor([9]).sort().values.detach()]],
  },
);

/**
 * Whether each element is among the test elements (or not, with `invert`); NaN never is.
 * `assumeUnique` is accepted and changes nothing. Shapes: any; as `elements`. Dtypes: all, promoted
 * to compare; bool result. Gradient: none.
 *
 * @throws ArgumentError if `elements` is not a tensor; DeviceError for two devices
 * @see PyTorch `torch.isin`
 */
export const isin = defineComposite(
  'isin',
  defineFunction(
    'isin(elements, /, testElements, *, assumeUnique, invert)',
    (
      elements: Tensor,
      testElements: Tensor | number,
      { invert = false }: { assumeUnique?: boolean; invert?: boolean } = {},
    ): Tensor => {
      requireTensor(elements, 'isin', 'elements');
      if (!(testElements instanceof Tensor)) operand(testElements, elements.device, 'isin');
      const found =
        testElements instanceof Tensor
          ? amongSorted(elements, testElements.detach().reshape(-1).sort().values)
          : elements.eq(testElements);
      return invert ? found.logicalNot() : found;
    },
  ),
  {
    method: false,
    samples: () => [[sampleTensor([2, 3]).detach(), sampleTensor([2, 3]).detach()]],
  },
);

function amongSorted(elements: Tensor, sorted: Tensor): Tensor {
  const n = sorted.numel();
  if (n === 0) return elements.ne(elements).logicalAnd(elements.eq(elements));
  const at = searchsorted(sorted, elements).clamp({ max: n - 1 });
  return reshapeIfNeeded(sorted.gather(0, reshapeIfNeeded(at, [-1])), elements.sizes).eq(elements);
}

/** @internal */
export function bincountOf(index: Tensor, size: number): Tensor {
  return index
    .newZeros([size], { dtype: int64 })
    .scatterAdd(0, index, index.newOnes(index.sizes, { dtype: int64 }));
}

/**
 * The count of each integer from 0 on (or the sum of its weights). Blocks: its size depends on the
 * largest number.
 *
 * Shapes: `[n]`, weights `[n]`; `[max + 1]`, or `[minlength]` if that is more. Dtypes: integers;
 * int64, or for weights float32 if they are, else float64. Gradient: weights.
 *
 * @throws DtypeError for bools and floats; ShapeError unless it is a vector that the weights cover;
 * ArgumentError for negative numbers or a value that is not a tensor
 * @see PyTorch `torch.bincount`
 */
export const bincount = defineComposite(
  'bincount',
  defineFunction(
    'bincount(input, /, weights, minlength)',
    (input: Tensor, weights: Tensor | null = null, minlength = 0): Tensor => {
      requireTensor(input, 'bincount');
      if (weights !== null) requireTensor(weights, 'bincount', 'weights');
      checkNumber('bincount', 'minlength', minlength, { from: 0, whole: true });
      if (input.ndim !== 1)
        throw new ShapeError(`bincount: expected a vector, got shape ${formatShape(input.sizes)}`, {
          op: 'bincount',
        });
      if (input.dtype.category !== 1)
        throw new DtypeError(`bincount: expected integers, got ${input.dtype.name}`, {
          op: 'bincount',
        });
      if (weights !== null && !sameShape(weights.sizes, input.sizes))
        throw new ShapeError(
          `bincount: expected weights of shape ${formatShape(input.sizes)}, got ` +
            `${formatShape(weights.sizes)}`,
          { op: 'bincount', shape: weights.sizes },
        );
      const index = input.long();
      if (index.numel() === 0) return index.newZeros([minlength]);
      if (Number(index.amin().item()) < 0)
        throw new ArgumentError('bincount: expected numbers of 0 or more', { op: 'bincount' });
      const size = Math.max(minlength, Number(index.amax().item()) + 1);
      if (weights === null) return bincountOf(index, size);
      const factors = weights.dtype === float32 ? weights : weights.double();
      return factors.newZeros([size]).scatterAdd(0, index, factors);
    },
  ),
  {
    readsValues: true,
    samples: () => [[sampleTensor([7], { dtype: int64, low: 0, high: 4 }), null, 6]],
  },
);

/**
 * Counts of elements in `bins` (100) equal parts of [min, max]; the last holds max too, other
 * elements and NaN are not counted. If both are equal, the range is that of all elements, which
 * blocks; an empty range is widened by 1 at both ends.
 *
 * Shapes: any; `[bins]`. Dtypes: floating, as the input. Gradient: none.
 *
 * @throws DtypeError for integers; ArgumentError unless `bins` is a positive integer, for min above
 * max, or for a value that is not a tensor; ArgumentError for infinite elements and NaN without a
 * range
 * @see PyTorch `torch.histc`
 */
export const histc = defineComposite(
  'histc',
  defineFunction(
    'histc(input, /, bins, min, max)',
    (input: Tensor, bins = 100, min = 0, max = 0): Tensor => {
      requireTensor(input, 'histc');
      requireFloating(input, 'histc');
      checkNumber('histc', 'bins', bins, { from: 1, whole: true });
      checkNumber('histc', 'min', min);
      checkNumber('histc', 'max', max, { from: min });
      const x = input.detach().reshape(-1);
      const whole = min === max && x.numel() > 0;
      const [low, high] = whole ? [Number(x.amin().item()), Number(x.amax().item())] : [min, max];
      if (!Number.isFinite(low) || !Number.isFinite(high))
        throw new ArgumentError(
          `histc: the range from ${low} to ${high} is not finite; give { min, max }`,
          { op: 'histc', min: low, max: high },
        );
      const [from, to] = low === high ? [low - 1, high + 1] : [low, high];
      const inside = x.ge(from).logicalAnd(x.le(to));
      const bin = where(inside, x.sub(from).mul(bins / (to - from)), 0)
        .floor()
        .clamp({ min: 0, max: bins - 1 })
        .long();
      return x.newZeros([bins]).scatterAdd(0, bin, inside.to(x.dtype));
    },
  ),
  {
    readsValues: true,
    samples: () => [[sampleTensor([9]).detach(), 4, { min: -1, max: 1 }]],
  },
);

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * How often each number from 0 on occurs, or the sum of its weights; the same as {@link
     * bincount}. Blocks.
     */
    bincount: MethodOf<typeof bincount>;
    /** Counts of elements in equal parts of a range; the same as {@link histc}. */
    histc: MethodOf<typeof histc>;
  }
}
