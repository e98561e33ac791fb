/** Combines values that are written to one element: scatterReduce and its gradients. */

import { reduced } from '../core/decompose.js';
import { type DType, int64 } from '../core/dtype.js';
import { boundOf } from '../core/dtype-info.js';
import { AutogradError } from '../core/errors.js';
import type { VjpContext } from '../core/gradient-rules.js';
import { checkFlag, checkOneOf } from '../core/options.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { requireNumbers, requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { checkScatter, gather, type Scatter, scatter } from './scatter.js';
import { where } from './where.js';

/** How {@link scatterReduce} combines the values of one element. */
export type ScatterReduction = 'sum' | 'prod' | 'mean' | 'amax' | 'amin';

/** The product of the others; a division serves where no factor is 0. @internal */
export function productGradients(ctx: VjpContext<Scatter>, g: Tensor): (Tensor | null)[] {
  const { dim } = ctx.params;
  const [input, index, source, result] = [
    reduced(ctx.input(0)),
    ctx.input(1),
    reduced(ctx.input(2)),
    ctx.output(0),
  ];
  const ofSources = scatter(input.newOnes(input.sizes), dim, index, source, { reduce: 'multiply' });
  const isZero = source.eq(0);
  const zeros = gather(
    scatter(input.zerosLike(), dim, index, isZero.to(input.dtype), { reduce: 'add' }).add(
      input.eq(0),
    ),
    dim,
    index,
  );
  if (ctx.createsGraph()) checkSingleZeros(isZero.logicalAnd(zeros.gt(1)));
  const alone = isZero.logicalAnd(zeros.eq(1));
  const withoutIt = gather(
    g.mul(scatter(input, dim, index, where(alone, 1, source), { reduce: 'multiply' })),
    dim,
    index,
  );
  const byDivision = gather(g.mul(result), dim, index).div(where(isZero, 1, source));
  return [g.mul(ofSources), null, where(alone, withoutIt, byDivision)];
}

/**
 * Refuses elements with several zeros: their gradient is 0 but has a second gradient, which this
 * rule does not compute.
 */
function checkSingleZeros(several: Tensor): void {
  if (several.isFake || !several.any().item()) return;
  throw new AutogradError(
    'scatterReduce: the gradient of a product with more than one 0 in the same place cannot be ' +
      'recorded for a second derivative. Leave createGraph out, or use prod over a dim.',
    { op: 'scatterReduce' },
  );
}

/** The gradients of an extreme: all elements that equal it share them in equal parts. @internal */
export function extremeGradients(ctx: VjpContext<Scatter>, g: Tensor): (Tensor | null)[] {
  const { dim } = ctx.params;
  const [input, index, source, result] = [ctx.input(0), ctx.input(1), ctx.input(2), ctx.output(0)];
  const inputHits = input.eq(result).to(g.dtype);
  const sourceHits = source.eq(gather(result, dim, index)).to(g.dtype);
  const share = g.div(scatter(inputHits, dim, index, sourceHits, { reduce: 'add' }));
  return [inputHits.mul(share), null, sourceHits.mul(gather(share, dim, index))];
}

const combine = { sum: 'add', mean: 'add', prod: 'multiply', amax: 'amax', amin: 'amin' } as const;

/** The neutral element of the reduction. */
function neutral(reduce: ScatterReduction, dtype: DType): number | bigint {
  if (reduce === 'prod') return 1;
  if (reduce === 'sum' || reduce === 'mean') return 0;
  return boundOf(dtype, reduce === 'amax' ? 'below' : 'above');
}

/**
 * The tensor with the values of `src` combined at `index` along a dim; without `includeSelf`
 * (true), elements that get a value do not count themselves. Means of integers are rounded down.
 *
 * Shapes: `index` has the dims of `input`, at most its sizes but along `dim`; `src` covers it;
 * result as `input`. Dtypes: all, equal; index int64 or int32. Gradient: input and source, shared
 * by ties of amax and amin.
 *
 * @throws ShapeError if index or source do not fit; DtypeError for a source of another dtype, an
 * index of a wrong dtype, or the mean of bools; IndexError for a dim out of range and, when the
 * values are known, an index outside [0, n)
 * @see PyTorch `torch.scatter_reduce`
 */
export const scatterReduce = defineComposite(
  'scatterReduce',
  defineFunction(
    'scatterReduce(input, /, dim, index, src, reduce, *, includeSelf)',
    (
      input: Tensor,
      dim: number,
      index: Tensor,
      src: Tensor,
      reduce: ScatterReduction,
      { includeSelf = true }: { includeSelf?: boolean } = {},
    ): Tensor => {
      requireTensor(input, 'scatterReduce');
      checkFlag('scatterReduce', 'includeSelf', includeSelf);
      checkOneOf('scatterReduce', 'reduce', reduce, Object.keys(combine));
      requireTensor(src, 'scatterReduce', 'src');
      checkScatter('scatterReduce', input, dim, index, src);
      const { dtype } = input;
      if (reduce === 'mean') requireNumbers('scatterReduce', input);
      const start = includeSelf
        ? input
        : scatter(input, dim, index, input.newTensor(neutral(reduce, dtype)).expand(index.sizes));
      const combined = scatter(start, dim, index, src, { reduce: combine[reduce] });
      if (reduce !== 'mean') return combined;
      const ones = src.detach().newOnes(index.sizes);
      const counts = input
        .detach()
        .newFull(input.sizes, Number(includeSelf))
        .scatterAdd(dim, index, ones)
        .clamp({ min: 1 });
      return dtype.isFloatingPoint ? combined.div(counts) : combined.floorDivide(counts);
    },
  ),
  {
    inPlace: true,
    samples: () => {
      const index = sampleTensor([2, 3], { dtype: int64, low: 0, high: 4 });
      const values = () =>
        [sampleTensor([4, 3]), 0, index, sampleTensor([2, 3], { seed: 9 })] as const;
      return [
        [...values(), 'sum'],
        [...values(), 'mean', { includeSelf: false }],
        [...values(), 'prod'],
        [...values(), 'amax', { includeSelf: false }],
      ];
    },
  },
);

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * This with values of `source` combined at `index`. The same as the function `scatterReduce`.
     */
    scatterReduce: MethodOf<typeof scatterReduce>;
    /**
     * The function `scatterReduce` in place, with its errors. @throws InPlaceError as {@link
     * Tensor.relu_}
     */
    scatterReduce_: MethodOf<typeof scatterReduce, this>;
  }
}
