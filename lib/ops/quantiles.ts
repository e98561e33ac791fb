/** Order statistics: kthvalue, median, quantile. */

import { ArgumentError, IndexError, ShapeError } from '../core/errors.js';
import { checkFlag, checkOneOf, checkProbability, shown } from '../core/options.js';
import { formatShape, wrapDim } from '../core/shape.js';
import { defineFunction, type FunctionOf, type MethodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { ValuesAndIndices } from '../core/values-and-indices.js';
import { defineComposite } from './composite.js';
import { copyRowMajor } from './copy.js';
import { areOptions, requireFloating, requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { sort } from './sort.js';
import { matrix } from './statistics.js';
import { where } from './where.js';

/**
 * The k-th smallest element of one dim (the last), counted from 1, and its index; NaN counts as
 * largest. Shapes: without the dim, or size 1 there with `keepdim`. Dtypes: all, kept; index int64.
 * Gradient: values.
 *
 * @throws ArgumentError unless k is an integer from 1 to the size; IndexError for a dim out of
 * range
 * @see PyTorch `torch.kthvalue`
 */
export const kthvalue = defineComposite(
  'kthvalue',
  defineFunction(
    'kthvalue(input, /, k, dim, keepdim)',
    (input: Tensor, k: number, dim = -1, keepdim = false): ValuesAndIndices => {
      requireTensor(input, 'kthvalue');
      checkFlag('kthvalue', 'keepdim', keepdim);
      const at = wrapDim(dim, input.ndim, 'kthvalue');
      const size = input.sizes[at] ?? 1;
      if (!Number.isInteger(k) || k < 1 || k > size)
        throw new ArgumentError(
          `kthvalue: k = ${shown(k)} is out of range for dim ${dim} of shape ` +
            `${formatShape(input.sizes)}`,
          { op: 'kthvalue', k, shape: input.sizes },
        );
      if (input.ndim === 0) return new ValuesAndIndices(input.clone(), sort(input).indices);
      const { values, indices } = sort(input, at);
      // Copies, because views would keep the whole sorted tensor alive.
      const chosen = (t: Tensor): Tensor =>
        copyRowMajor(keepdim ? t.narrow(at, k - 1, 1) : t.select(at, k - 1));
      return new ValuesAndIndices(chosen(values), chosen(indices));
    },
  ),
  {
    samples: () => [
      [matrix(), 2],
      [matrix(), 3, 0, { keepdim: true }],
    ],
  },
);

/** A value of the tensor; all elements that equal it share its gradient in equal parts. */
function sharedByTies(input: Tensor, value: Tensor): Tensor {
  const hits = input.detach().eq(value).logicalOr(input.detach().isnan().logicalAnd(value.isnan()));
  return where(hits, input, Number.NEGATIVE_INFINITY).amax(); // ties share its gradient
}

/**
 * The middle element (of two, the lower one) of all elements, NaN if there are none, or with `dim`
 * along it with its index. NaN wins. Shapes: `[]`, or as {@link kthvalue}. Dtypes: all, kept; index
 * int64. Gradient: values.
 *
 * @throws IndexError along a dim of size 0, and for an empty tensor of integers; for a dim out of
 * range
 * @see PyTorch `torch.median`
 */
export const median = defineComposite(
  'median',
  defineFunction(
    'median(input, /, dim, keepdim)',
    (input: Tensor, dim: number | null = null, keepdim = false): Tensor | ValuesAndIndices => {
      requireTensor(input, 'median');
      checkFlag('median', 'keepdim', keepdim);
      if (dim === null && input.numel() === 0) return ofNothing(input);
      if (dim === null)
        return input.requiresGrad
          ? sharedByTies(input, middle(reshapeIfNeeded(input.detach(), [-1]), 0, false).values)
          : middle(reshapeIfNeeded(input, [-1]), 0, false).values;
      return middle(input, wrapDim(dim, input.ndim, 'median'), keepdim);
    },
  ) as unknown as MedianOfAll & MedianAlong,
  {
    samples: () => [[matrix()], [matrix(), 1], [sampleTensor([4, 2]), 0, { keepdim: true }]],
  },
);
type MedianOfAll = FunctionOf<'median(input, /)', (input: Tensor) => Tensor>;
type MedianAlong = FunctionOf<
  'median(input, /, dim, keepdim)',
  (input: Tensor, dim: number, keepdim?: boolean) => ValuesAndIndices
>;

/** @throws IndexError unless the missing value can be NaN */
function ofNothing(input: Tensor): Tensor {
  if (input.dtype.isFloatingPoint) return input.sum().add(Number.NaN);
  throw new IndexError(
    `median: shape ${formatShape(input.sizes)} holds no elements, and ${input.dtype.name} no NaN`,
    { op: 'median', shape: input.sizes },
  );
}

function middle(input: Tensor, dim: number, keepdim: boolean): ValuesAndIndices {
  const size = input.ndim === 0 ? 1 : input.size(dim);
  if (size === 0)
    throw new IndexError(
      `median: dim ${dim} of shape ${formatShape(input.sizes)} holds no elements`,
      { op: 'median', shape: input.sizes },
    );
  const found = kthvalue(input, Math.floor((size + 1) / 2), dim, keepdim);
  if (!input.dtype.isFloatingPoint || input.ndim === 0) return found;
  const spoilt = input.isnan().any(dim, { keepdim });
  const firstNaN = input.detach().argmax(dim, { keepdim: true });
  const [nan, at] = [input.gather(dim, firstNaN), firstNaN].map((t) =>
    keepdim ? t : t.squeeze(dim),
  ) as [Tensor, Tensor];
  return new ValuesAndIndices(where(spoilt, nan, found.values), where(spoilt, at, found.indices));
}

/**
 * The rule for a quantile between two elements: linear, one of them, the midpoint, or the nearer
 * one (at halves, that of even rank).
 */
export type Interpolation = 'linear' | 'lower' | 'higher' | 'midpoint' | 'nearest';

/** Options of {@link quantile}. */
export interface QuantileOptions {
  /** The rule between two elements; linear by default. */
  interpolation?: Interpolation;
}

/**
 * Quantiles `q` (from 0 to 1) of all elements or along a dim, NaN where an element is.
 * `interpolation` is linear.
 *
 * Shapes: as {@link kthvalue}, without `dim` `[]`; a vector of k quantiles gives a new first dim of
 * size k. Dtypes: floating, kept. Gradient: input, and a tensor of quantiles where it is linear.
 *
 * @throws DtypeError unless floating; ArgumentError for a number outside [0, 1] (in a tensor,
 * IndexError); ShapeError for quantiles of more than one dim; IndexError over no elements, or for a
 * dim out of range
 * @see PyTorch `torch.quantile`
 */
export const quantile = defineComposite(
  'quantile',
  defineFunction(
    'quantile(input, /, q, dim, keepdim, *, interpolation)',
    (
      input: Tensor,
      q: number | Tensor,
      dim: number | null = null,
      keepdim = false,
      { interpolation = 'linear' }: QuantileOptions = {},
    ): Tensor => {
      if (areOptions(dim)) return quantile(input, q, null, dim);
      requireTensor(input, 'quantile');
      checkOneOf('quantile', 'interpolation', interpolation, [
        'linear',
        'lower',
        'higher',
        'nearest',
        'midpoint',
      ]);
      requireFloating(input, 'quantile');
      if (!(q instanceof Tensor)) checkProbability('quantile', 'q', q);
      if (q instanceof Tensor && q.ndim > 1)
        throw new ShapeError(
          `quantile: expected a number or a vector of quantiles, got shape ${formatShape(q.sizes)}`,
          { op: 'quantile' },
        );
      const at = dim === null ? 0 : wrapDim(dim, input.ndim, 'quantile');
      const rows = dim === null || input.ndim === 0 ? reshapeIfNeeded(input, [-1]) : input;
      const size = rows.sizes[at] as number;
      if (size === 0)
        throw new IndexError(`quantile: shape ${formatShape(input.sizes)} holds no elements`, {
          op: 'quantile',
          shape: input.sizes,
        });
      const sorted = sort(rows, at).values.movedim(at, 0); // [n, ...]
      const wanted =
        q instanceof Tensor
          ? q.to({ dtype: input.dtype, device: input.device })
          : input.newTensor(q);
      // [q, ...]
      const found = between(sorted, reshapeIfNeeded(wanted, [-1]).mul(size - 1), interpolation);
      const largest = sorted.select(0, -1);
      const clean = where(largest.isnan(), largest, found);
      const kept = !keepdim
        ? clean
        : dim === null
          ? clean.reshape([-1, ...input.sizes.map(() => 1)])
          : clean.unsqueeze(at + 1);
      return wanted.ndim === 0 ? kept.select(0, 0) : kept;
    },
  ),
  {
    samples: () => [
      [matrix(), 0.3],
      [matrix(), 0.6, 1, { keepdim: true }],
    ],
  },
);

/** The elements of the first dim at fractional ranks. */
function between(sorted: Tensor, ranks: Tensor, interpolation: Interpolation): Tensor {
  const [low, high] = [ranks.floor(), ranks.ceil()];
  const pick = (rank: Tensor): Tensor => sorted.indexSelect(0, rank.long());
  if (interpolation === 'lower') return pick(low);
  if (interpolation === 'higher') return pick(high);
  if (interpolation === 'nearest') return pick(ranks.round());
  const weight = interpolation === 'midpoint' ? low.zerosLike().add(0.5) : ranks.sub(low);
  return pick(low).lerp(pick(high), weight.reshape([-1, ...sorted.sizes.slice(1).map(() => 1)]));
}

declare module '../core/tensor.js' {
  interface Tensor {
    /** The k-th smallest element of one dim, and its index; the same as {@link kthvalue}. */
    kthvalue: MethodOf<typeof kthvalue>;
    /** The middle element of all; see {@link median}. */
    median: MethodOf<MedianOfAll> & MethodOf<MedianAlong>;
    /** Quantiles of all elements or along a dim; the same as {@link quantile}. */
    quantile: MethodOf<typeof quantile>;
  }
}
