/** Shapes, values and helpers that the samples of sharding rules have in common. */
import { dispatch } from '../../../../lib/core/dispatch.js';
import { type AnyOp, opByName, type Sample } from '../../../../lib/core/op.js';
import { wrapNumber } from '../../../../lib/core/tensor.js';
import { bool, int64, type Tensor, tensor, uint8 } from '../../../../lib/index.js';
import { sampleTensor } from '../../../../lib/ops/samples.js';

export type Samples = () => Sample<object>[];
export type Values = Parameters<typeof sampleTensor>[1];

export const number = (value: number, like: Tensor): Tensor =>
  wrapNumber(value, like.dtype, like.device);

/** One call for each set of params. */
export const each = (inputs: readonly Tensor[], ...params: readonly object[]): Sample<object>[] =>
  params.map((p) => ({ inputs, params: p }));

/** Sizes that ranks share unequally, of which some get nothing, and that they share equally. */
export const shapes = [[5, 3, 2], [1, 4], [4, 0, 3], [8]];

/** Two tensors and what stands in the place of one. */
export const binary =
  (params: object): Samples =>
  () => {
    const x = sampleTensor([2, 5, 3]);
    const y = sampleTensor([5, 1], { seed: 2 });
    return [
      [x, y],
      [y, x],
      [x, number(1.5, x)],
      [number(1.5, x), x],
      [x.to(int64), sampleTensor([5, 3], { dtype: int64, seed: 2, low: 1, high: 9 })],
    ].map((inputs) => ({ inputs, params }));
  };

export const reductions =
  (values: Values, extra: object = {}): Samples =>
  () =>
    shapes.flatMap((shape) => {
      const t = sampleTensor(shape, values);
      const sets = [
        shape.map((_, d) => d),
        ...shape.map((_, d) => [d]),
        ...(shape.length > 2
          ? [
              [0, 2],
              [1, 2],
            ]
          : []),
      ];
      return sets.flatMap((dims) =>
        each([t], { dims, keepdim: false, ...extra }, { dims, keepdim: true, ...extra }),
      );
    });

/** Extremes of nothing are refused before the op is called. */
export const extremes: Samples = () =>
  [
    {},
    { dtype: int64 },
    { dtype: bool, low: 0, high: 2 },
    { dtype: uint8, low: 0, high: 9 },
  ].flatMap((values) => reductions(values)().filter(({ inputs: [x] }) => (x?.numel() ?? 0) > 0));

/** Values that swallow all others. */
export const special = (): Tensor =>
  tensor([
    [Number.NaN, 1, 2],
    [Number.POSITIVE_INFINITY, -1, 3],
    [Number.NEGATIVE_INFINITY, 4, 5],
    [1, Number.NEGATIVE_INFINITY, 6],
    [0, -0, 7],
  ]);

export const logic: Samples = () =>
  [
    {},
    { dtype: bool, low: 0, high: 2 },
    { dtype: uint8, low: 0, high: 2 },
    { dtype: int64, low: -1, high: 2 },
  ].flatMap((values) => reductions(values)());

export const alongDim =
  (params: object, values: Values = {}): Samples =>
  () =>
    [
      [sampleTensor([5, 3, 2], values), 1],
      [sampleTensor([1, 4], values), 0],
      [sampleTensor([2, 0], values), 1],
      [sampleTensor([8], values), 0],
    ].map(([t, dim]) => ({ inputs: [t as Tensor], params: { dim, ...params } }));

/** A call of a backward op after the forward op, whose results it reads. */
export function after(
  forward: string,
  backward: (inputs: readonly Tensor[], results: readonly Tensor[]) => readonly Tensor[],
  samples: Samples,
): Samples {
  const op = opByName(forward) as AnyOp;
  return () =>
    samples().map(({ inputs, params }) => ({
      inputs: backward(inputs, dispatch(op, inputs, params)),
      params,
    }));
}

export const gradientOf = (t: Tensor | undefined): Tensor =>
  sampleTensor(t?.shape ?? [], { seed: 9 });
