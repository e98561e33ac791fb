/**
 * Reductions that skip NaN or give several results: nansum, nanmean, aminmax, diff and similar;
 * quantiles.ts has the order statistics.
 *
 * Shapes of reductions: the input's without the dim, or with size 1 there (`keepdim`, false). Every
 * function throws IndexError for a dim out of range, and ArgumentError unless it gets a tensor.
 */

import { IndexError, ShapeError } from '../core/errors.js';
import { checkFlag, checkNumber } from '../core/options.js';
import { formatShape, wrapDim, wrapDims } from '../core/shape.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { cat } from './join.js';
import { type DtypeOption, requireFloating, requireTensor } from './operand.js';
import type { Dims } from './reduce.js';
import { sampleTensor } from './samples.js';
import { type CorrectionOption, deviation, varMeanAs } from './variance.js';
import { where } from './where.js';

/** @internal */
export const matrix = () => sampleTensor([3, 5]);

/**
 * {@link Tensor.sum} over dims with NaN as 0; integers and bools give int64. Gradient: yes, 0 at
 * NaN. @throws as that @see PyTorch `torch.nansum`
 */
export const nansum = defineComposite(
  'nansum',
  defineFunction(
    'nansum(input, /, dim, keepdim, *, dtype)',
    (input: Tensor, dim: Dims = null, keepdim = false, options: DtypeOption = {}): Tensor => {
      requireTensor(input, 'nansum');
      wrapDims(dim, input.ndim, 'nansum');
      return where(input.isnan(), 0, input).sum(dim, keepdim, options);
    },
  ),
  { samples: () => [[matrix()], [matrix(), 1]] },
);

/**
 * Mean over dims (all) of the elements that are not NaN; NaN if there are none. Dtypes: floating,
 * kept. Gradient: yes, 0 at NaN.
 *
 * @throws DtypeError for integers and bools; IndexError for a dim out of range or given twice
 * @see PyTorch `torch.nanmean`
 */
export const nanmean = defineComposite(
  'nanmean',
  defineFunction(
    'nanmean(input, /, dim, keepdim)',
    (input: Tensor, dim: Dims = null, keepdim = false): Tensor => {
      requireTensor(input, 'nanmean');
      checkFlag('nanmean', 'keepdim', keepdim);
      requireFloating(input, 'nanmean');
      wrapDims(dim, input.ndim, 'nanmean');
      return nansum(input, dim, keepdim).div(input.isnan().logicalNot().sum(dim, keepdim));
    },
  ),
  {
    samples: () => [[matrix()], [matrix(), 0, { keepdim: true }]],
  },
);

/**
 * The number of elements that are not 0 (NaN counts), over dims (all), which are dropped. Dtypes:
 * all; int64. Gradient: none.
 *
 * @throws IndexError for a dim out of range or given twice; ArgumentError for a value that is not a
 * tensor
 * @see PyTorch `torch.count_nonzero`
 */
export const countNonzero = defineComposite(
  'countNonzero',
  defineFunction('countNonzero(input, /, dim)', (input: Tensor, dim: Dims = null): Tensor => {
    requireTensor(input, 'countNonzero');
    wrapDims(dim, input.ndim, 'countNonzero');
    return input.ne(0).sum(dim);
  }),
  { samples: () => [[matrix().detach(), 1]] },
);

/**
 * Standard deviation and mean over dims (all), as {@link varMean}. Gradient: yes.
 *
 * @throws DtypeError unless floating; IndexError for a dim out of range or given twice
 * @see PyTorch `torch.std_mean`
 */
export const stdMean = defineComposite(
  'stdMean',
  defineFunction(
    'stdMean(input, /, dim, unbiased, keepdim, *, correction)',
    (
      input: Tensor,
      dim: Dims | boolean = null,
      unbiased: boolean | null = null,
      keepdim = false,
      options: CorrectionOption = {},
    ): [Tensor, Tensor] => {
      const [variance, mean] = varMeanAs('stdMean', input, dim, unbiased, keepdim, options, true);
      return [deviation(variance).to(input.dtype), mean.to(input.dtype)];
    },
  ),
  { method: false, samples: () => [[matrix(), 1]] },
);

/**
 * The smallest and the largest element, of all or along a dim; NaN wins. Dtypes: all, kept.
 * Gradient: both, shared by ties.
 *
 * @throws IndexError over no elements, or for a dim out of range
 * @see PyTorch `torch.aminmax`
 */
export const aminmax = defineComposite(
  'aminmax',
  defineFunction(
    'aminmax(input, /, *, dim, keepdim)',
    (
      input: Tensor,
      { dim = null, keepdim = false }: { dim?: number | null; keepdim?: boolean } = {},
    ): { min: Tensor; max: Tensor } => {
      requireTensor(input, 'aminmax');
      checkFlag('aminmax', 'keepdim', keepdim);
      if (dim !== null) wrapDim(dim, input.ndim, 'aminmax');
      if (input.numel() === 0 && (dim === null || input.size(dim) === 0))
        throw new IndexError(
          `aminmax: shape ${formatShape(input.sizes)} holds no elements to choose from`,
          { op: 'aminmax', shape: input.sizes },
        );
      return { min: input.amin(dim, keepdim), max: input.amax(dim, keepdim) };
    },
  ),
  { samples: () => [[matrix()], [matrix(), { dim: 1 }]] },
);

/**
 * Differences of neighbours along a dim (the last), `n` (1) times; for bools, whether they differ.
 * Shapes: `[..., m]` gives `[..., max(m - n, 0)]`. Dtypes: all, kept, promoted with `prepend` and
 * `append`. For n = 0, a copy without them. Gradient: yes.
 *
 * @throws ArgumentError unless n is an integer of 0 or more; ShapeError without dims, or for
 * tensors that cannot be joined; IndexError for a dim out of range
 * @see PyTorch `torch.diff`
 */
export const diff = defineComposite(
  'diff',
  defineFunction(
    'diff(input, /, n, dim, prepend, append)',
    (
      input: Tensor,
      n = 1,
      dim = -1,
      prepend: Tensor | null = null,
      append: Tensor | null = null,
    ): Tensor => {
      requireTensor(input, 'diff');
      checkNumber('diff', 'n', n, { from: 0, whole: true });
      for (const [name, t] of Object.entries({ prepend, append }))
        if (t !== null) requireTensor(t, 'diff', name);
      if (input.ndim === 0) throw new ShapeError('diff: expected at least one dim', { op: 'diff' });
      wrapDim(dim, input.ndim, 'diff');
      if (n === 0) return input.clone(); // without prepend and append, as in PyTorch
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
      return x === input ? input.clone() : x;
    },
  ),
  {
    samples: () => [
      [matrix()],
      [matrix(), 2, 1],
      [matrix(), 1, 0, { prepend: sampleTensor([1, 5], { seed: 3 }) }],
    ],
  },
);

declare module '../core/tensor.js' {
  interface Tensor {
    /** Sum over dims that counts NaN as 0; the same as {@link nansum}. */
    nansum: MethodOf<typeof nansum>;
    /** Mean over dims of the elements that are not NaN; the same as {@link nanmean}. */
    nanmean: MethodOf<typeof nanmean>;
    /** How many elements are not 0, over dims; the same as {@link countNonzero}. */
    countNonzero: MethodOf<typeof countNonzero>;
    /** The smallest and the largest element, of all or along a dim; the same as {@link aminmax}. */
    aminmax: MethodOf<typeof aminmax>;
    /** Differences of neighbours along a dim; the same as {@link diff}. */
    diff: MethodOf<typeof diff>;
  }
}
