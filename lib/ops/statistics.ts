/** Order statistics and sums that skip NaN: median, kthvalue, quantile, nansum, nanmean, aminmax, diff and their like. */

import { ArgumentError, DtypeError, IndexError, ShapeError } from '../core/errors.js';
import { checkNumber, checkProbability, optionsOf, shown } from '../core/options.js';
import { formatShape, wrapDim, wrapDims } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { tensor } from './factories.js';
import { cat } from './join.js';
import { requireTensor } from './operand.js';
import { type Dims, type ReduceOptions, type VarianceOptions, varMeanAs } from './reduce.js';
import { sampleTensor } from './samples.js';
import { sort, ValuesAndIndices } from './sort.js';
import { where } from './where.js';

const matrix = () => sampleTensor([3, 5]);

/** The k-th smallest element of one dim (counted from 1), and its index. Gradient: values. @throws ArgumentError, IndexError */
export function kthvalue(input: Tensor, k: number, dim = -1, options: { keepdim?: boolean } = {}): ValuesAndIndices {
  requireTensor(input, 'kthvalue');
  const { keepdim = false } = optionsOf('kthvalue', options);
  const at = wrapDim(dim, input.ndim, 'kthvalue');
  const size = input.shape[at] ?? 1;
  if (!Number.isInteger(k) || k < 1 || k > size)
    throw new ArgumentError(`kthvalue: k = ${shown(k)} is out of range for dim ${dim} of shape ${formatShape(input.shape)}`, { op: 'kthvalue', k, shape: input.shape });
  if (input.ndim === 0) return new ValuesAndIndices(input.clone(), sort(input).indices);
  const { values, indices } = sort(input, at);
  const chosen = new ValuesAndIndices(values.narrow(at, k - 1, 1), indices.narrow(at, k - 1, 1));
  return keepdim ? chosen : new ValuesAndIndices(chosen.values.squeeze(at), chosen.indices.squeeze(at));
}
defineComposite('kthvalue', kthvalue, {
  samples: () => [
    [matrix(), 2],
    [matrix(), 3, 0, { keepdim: true }],
  ],
});

/** The middle element (of two, the lower one) of all, or with `dim` along it with its index. NaN wins. Gradient: values. @throws IndexError over nothing */
export function median(input: Tensor): Tensor;
export function median(input: Tensor, dim: number, options?: { keepdim?: boolean }): ValuesAndIndices;
export function median(input: Tensor, dim?: number, options: { keepdim?: boolean } = {}): Tensor | ValuesAndIndices {
  requireTensor(input, 'median');
  const { keepdim = false } = optionsOf('median', options);
  if (dim === undefined) return middle(input.reshape(-1), 0, false).values;
  return middle(input, wrapDim(dim, input.ndim, 'median'), keepdim);
}
defineComposite('median', median, { samples: () => [[matrix()], [matrix(), 1], [sampleTensor([4, 2]), 0, { keepdim: true }]] });

function middle(input: Tensor, dim: number, keepdim: boolean): ValuesAndIndices {
  const size = input.ndim === 0 ? 1 : input.size(dim);
  if (size === 0) throw new IndexError(`median: dim ${dim} of shape ${formatShape(input.shape)} holds no elements`, { op: 'median', shape: input.shape });
  const found = kthvalue(input, Math.floor((size + 1) / 2), dim, { keepdim });
  if (!input.dtype.isFloatingPoint || input.ndim === 0) return found;
  const spoilt = input.isnan().any(dim, { keepdim });
  return new ValuesAndIndices(where(spoilt, Number.NaN, found.values), where(spoilt, input.argmax(dim, { keepdim }), found.indices));
}

/** How a quantile between two elements is found. */
export type Interpolation = 'linear' | 'lower' | 'higher' | 'midpoint' | 'nearest';

/** Options of {@link quantile}. */
export interface QuantileOptions {
  keepdim?: boolean;
  interpolation?: Interpolation;
}

/**
 * Quantiles of all elements or along a dim; several give a new first dim. NaN wins. Gradient: input.
 *
 * @throws DtypeError unless floating. @throws ArgumentError for a number outside [0, 1]
 * @see PyTorch `torch.quantile`
 */
export function quantile(input: Tensor, q: number | Tensor, dim: number | null = null, options: QuantileOptions = {}): Tensor {
  requireTensor(input, 'quantile');
  const { keepdim = false, interpolation = 'linear' } = optionsOf('quantile', options);
  if (!input.dtype.isFloatingPoint) throw new DtypeError(`quantile: expected a floating point tensor, got ${input.dtype.name}`, { op: 'quantile' });
  if (!(q instanceof Tensor)) checkProbability('quantile', 'q', q);
  if (q instanceof Tensor && q.ndim > 1) throw new ShapeError(`quantile: expected a number or a vector of quantiles, got shape ${formatShape(q.shape)}`, { op: 'quantile' });
  const at = dim === null ? 0 : wrapDim(dim, input.ndim, 'quantile');
  const rows = dim === null || input.ndim === 0 ? input.reshape(-1) : input;
  const size = rows.shape[at] as number;
  if (size === 0) throw new IndexError(`quantile: shape ${formatShape(input.shape)} holds no elements`, { op: 'quantile', shape: input.shape });
  const sorted = sort(rows, at).values.movedim(at, 0); // [n, ...]
  const wanted = q instanceof Tensor ? q.to({ dtype: input.dtype, device: input.device }) : tensor(q, { dtype: input.dtype, device: input.device });
  const found = between(sorted, wanted.reshape(-1).mul(size - 1), interpolation); // [q, ...]
  const spoilt = sorted.select(0, -1).isnan();
  const clean = where(spoilt, Number.NaN, found);
  const kept = !keepdim ? clean : dim === null ? clean.reshape([-1, ...input.shape.map(() => 1)]) : clean.unsqueeze(at + 1);
  return wanted.ndim === 0 ? kept.select(0, 0) : kept;
}
defineComposite('quantile', quantile, {
  samples: () => [
    [matrix(), 0.3],
    [matrix(), 0.6, 1, { keepdim: true }],
  ],
});

/** Elements of the first dim at fractional ranks. */
function between(sorted: Tensor, ranks: Tensor, interpolation: Interpolation): Tensor {
  const [low, high] = [ranks.floor(), ranks.ceil()];
  const pick = (rank: Tensor): Tensor => sorted.indexSelect(0, rank.long());
  if (interpolation === 'lower') return pick(low);
  if (interpolation === 'higher') return pick(high);
  if (interpolation === 'nearest') return pick(ranks.round());
  const weight = interpolation === 'midpoint' ? low.zerosLike().add(0.5) : ranks.sub(low);
  return pick(low).lerp(pick(high), weight.reshape([-1, ...sorted.shape.slice(1).map(() => 1)]));
}

/** Sum over dims that counts NaN as 0. Gradient: yes. */
export function nansum(input: Tensor, dim: Dims = null, options: ReduceOptions = {}): Tensor {
  requireTensor(input, 'nansum');
  wrapDims(dim, input.ndim, 'nansum');
  return where(input.isnan(), 0, input).sum(dim, optionsOf('nansum', options));
}
defineComposite('nansum', nansum, { samples: () => [[matrix()], [matrix(), 1]] });

/** Mean over dims of the elements that are not NaN. Gradient: yes. @throws DtypeError for integers */
export function nanmean(input: Tensor, dim: Dims = null, options: { keepdim?: boolean } = {}): Tensor {
  requireTensor(input, 'nanmean');
  const { keepdim = false } = optionsOf('nanmean', options);
  if (!input.dtype.isFloatingPoint) throw new DtypeError(`nanmean: expected a floating point tensor, got ${input.dtype.name}`, { op: 'nanmean' });
  wrapDims(dim, input.ndim, 'nanmean');
  return nansum(input, dim, { keepdim }).div(input.isnan().logicalNot().sum(dim, { keepdim }));
}
defineComposite('nanmean', nanmean, { samples: () => [[matrix()], [matrix(), 0, { keepdim: true }]] });

/** How many elements are not 0, over dims. */
export function countNonzero(input: Tensor, dim: Dims = null): Tensor {
  requireTensor(input, 'countNonzero');
  wrapDims(dim, input.ndim, 'countNonzero');
  return input.ne(0).sum(dim);
}
defineComposite('countNonzero', countNonzero, { samples: () => [[matrix().detach(), 1]] });

/** Standard deviation and mean over dims. Gradient: yes. @throws DtypeError for integers */
export function stdMean(input: Tensor, dim: Dims = null, options: VarianceOptions = {}): [Tensor, Tensor] {
  const [variance, mean] = varMeanAs('stdMean', input, dim, options);
  return [variance.sqrt(), mean];
}
defineComposite('stdMean', stdMean, { method: false, samples: () => [[matrix(), 1]] });

/** The smallest and the largest element, of all or along a dim. Gradient: both. @throws IndexError over nothing */
export function aminmax(input: Tensor, options: { dim?: number | null; keepdim?: boolean } = {}): { min: Tensor; max: Tensor } {
  requireTensor(input, 'aminmax');
  const { dim = null, keepdim = false } = optionsOf('aminmax', options);
  if (dim !== null) wrapDim(dim, input.ndim, 'aminmax');
  if (input.numel() === 0 && (dim === null || input.size(dim) === 0))
    throw new IndexError(`aminmax: shape ${formatShape(input.shape)} holds no elements to choose from`, { op: 'aminmax', shape: input.shape });
  return { min: input.amin(dim, { keepdim }), max: input.amax(dim, { keepdim }) };
}
defineComposite('aminmax', aminmax, { samples: () => [[matrix()], [matrix(), { dim: 1 }]] });

/** Options of {@link diff}. */
export interface DiffOptions {
  prepend?: Tensor | null;
  append?: Tensor | null;
}

/** Differences of neighbours along a dim, `n` times. Gradient: yes. @throws ArgumentError, ShapeError */
export function diff(input: Tensor, n = 1, dim = -1, options: DiffOptions = {}): Tensor {
  requireTensor(input, 'diff');
  const { prepend = null, append = null } = optionsOf('diff', options);
  checkNumber('diff', 'n', n, { from: 0, whole: true });
  for (const [name, t] of Object.entries({ prepend, append })) if (t !== null) requireTensor(t, 'diff', name);
  if (input.ndim === 0) throw new ShapeError('diff: expected at least one dim', { op: 'diff' });
  wrapDim(dim, input.ndim, 'diff');
  let x =
    prepend || append
      ? cat(
          [prepend, input, append].filter((t): t is Tensor => t !== null),
          dim,
        )
      : input;
  for (let i = 0; i < n && x.size(dim) > 0; i++) {
    const size = x.size(dim);
    const [later, earlier] = [x.narrow(dim, 1, size - 1), x.narrow(dim, 0, size - 1)];
    x = x.dtype.category === 0 ? later.logicalXor(earlier) : later.sub(earlier);
  }
  return x;
}
defineComposite('diff', diff, { samples: () => [[matrix()], [matrix(), 2, 1], [matrix(), 1, 0, { prepend: sampleTensor([1, 5], { seed: 3 }) }]] });

declare module '../core/tensor.js' {
  interface Tensor {
    /** The k-th smallest element of one dim, and its index. Gradient: values. @throws ArgumentError, IndexError */
    kthvalue(k: number, dim?: number, options?: { keepdim?: boolean }): ValuesAndIndices;
    /** The middle element of all, or with `dim` along it with its index. Gradient: values. @throws IndexError over nothing */
    median(): Tensor;
    median(dim: number, options?: { keepdim?: boolean }): ValuesAndIndices;
    /** Quantiles of all elements or along a dim. Gradient: yes. @throws DtypeError, ArgumentError */
    quantile(q: number | Tensor, dim?: number | null, options?: QuantileOptions): Tensor;
    /** Sum over dims that counts NaN as 0. Gradient: yes. */
    nansum(dim?: Dims, options?: ReduceOptions): Tensor;
    /** Mean over dims of the elements that are not NaN. Gradient: yes. @throws DtypeError for integers */
    nanmean(dim?: Dims, options?: { keepdim?: boolean }): Tensor;
    /** How many elements are not 0, over dims. */
    countNonzero(dim?: Dims): Tensor;
    /** The smallest and the largest element, of all or along a dim. Gradient: both. @throws IndexError over nothing */
    aminmax(options?: { dim?: number | null; keepdim?: boolean }): { min: Tensor; max: Tensor };
    /** Differences of neighbours along a dim. Gradient: yes. @throws ArgumentError, ShapeError */
    diff(n?: number, dim?: number, options?: DiffOptions): Tensor;
  }
}
