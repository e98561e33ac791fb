/** Calls that the op table's own samples do not cover: uneven and empty pieces, kept dims, several dims, absent operands. */

import type { Sample } from '../../lib/core/op.js';
import { wrapNumber } from '../../lib/core/tensor.js';
import { bfloat16, bool, float64, int32, int64, type Tensor, uint8 } from '../../lib/index.js';
import { sampleTensor } from '../../lib/ops/samples.js';

type Samples = () => Sample<object>[];
type Values = Parameters<typeof sampleTensor>[1];

const number = (value: number, like: Tensor): Tensor => wrapNumber(value, like.dtype, like.device);

/** One call for each set of params. */
const each = (inputs: readonly Tensor[], ...params: readonly object[]): Sample<object>[] => params.map((p) => ({ inputs, params: p }));

/** Sizes that ranks share unequally, of which some get nothing, and that they share equally. */
const shapes = [[5, 3, 2], [1, 4], [4, 0, 3], [8]];

/** Two tensors and what stands in the place of one. */
const binary =
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

const reductions =
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
      return sets.flatMap((dims) => each([t], { dims, keepdim: false, ...extra }, { dims, keepdim: true, ...extra }));
    });

/** Extremes of nothing are refused before the op is called. */
const extremes: Samples = () =>
  [{}, { dtype: int64 }, { dtype: bool, low: 0, high: 2 }, { dtype: uint8, low: 0, high: 9 }].flatMap((values) =>
    reductions(values)().filter(({ inputs: [x] }) => (x?.numel() ?? 0) > 0),
  );

const logic: Samples = () =>
  [{}, { dtype: bool, low: 0, high: 2 }, { dtype: uint8, low: 0, high: 2 }, { dtype: int64, low: -1, high: 2 }].flatMap((values) => reductions(values)());

const views: Record<string, Samples> = {
  view: () =>
    (
      [
        [[4, 6], [24]],
        [[24], [4, 6]],
        [[5, 3], [15]],
        [
          [2, 3, 4],
          [6, 4],
        ],
        [[1, 6], [6]],
        [[6], [1, 6, 1]],
        [
          [2, 6, 3],
          [4, 3, 3],
        ],
        [
          [8, 3],
          [2, 2, 6],
        ],
        [
          [3, 0],
          [3, 0, 5],
        ],
        [[], [1, 1]],
        [
          [5, 4],
          [5, 2, 2],
        ],
      ] as const
    ).flatMap(([shape, size]) => each([sampleTensor(shape)], { size })),
  permute: () => each([sampleTensor([5, 1, 3])], { dims: [1, 2, 0] }, { dims: [0, 1, 2] }),
  transpose: () => each([sampleTensor([5, 1, 3])], { dim0: 0, dim1: 1 }, { dim0: 2, dim1: 2 }),
  expand: () => each([sampleTensor([5, 1, 3])], { size: [5, 4, 3] }, { size: [2, 5, 1, 3] }, { size: [5, 0, 3] }),
  unsqueeze: () => each([sampleTensor([5, 3])], { dim: 0 }, { dim: 2 }),
  squeeze: () => [...each([sampleTensor([2, 1, 3])], { dims: [0, 1, 2] }, { dims: [0] }, { dims: [1] }), ...each([sampleTensor([4, 1])], { dims: [0] })],
  detach: () => each([sampleTensor([5, 1, 3], { dtype: int64 })], {}),
  slice: () => each([sampleTensor([5, 3])], { dim: 0, start: 0, length: 5, step: 1 }, { dim: 1, start: 1, length: 2, step: 1 }, { dim: 0, start: 0, length: 3, step: 2 }),
  select: () => each([sampleTensor([5, 3, 2])], { dim: 0, index: 4 }, { dim: 2, index: 0 }),
  diagonal: () => each([sampleTensor([5, 3, 5])], { offset: 0, dim1: 0, dim2: 2 }, { offset: 1, dim1: 1, dim2: 0 }),
  unfold: () => each([sampleTensor([5, 6, 2])], { dim: 1, size: 2, step: 2 }),
};

export const moreSamples: Record<string, Samples> = {
  ...views,
  copy: () => [
    ...each([sampleTensor([5, 3])], { dtype: float64 }, { dtype: bfloat16 }, { dtype: bool }, { dtype: int32 }, { preserve: true }),
    ...each([sampleTensor([5, 3], { dtype: int64 })], { dtype: int32 }, {}),
  ],
  fill: () => [...each([sampleTensor([5, 3])], { value: 0 }), ...each([sampleTensor([5, 3], { dtype: int64 })], { value: 0n }, { value: 3n })],
  add: binary({ alpha: 2 }),
  sub: binary({ alpha: 2 }),
  mul: binary({}),
  div: binary({}),
  maximum: binary({}),
  minimum: binary({}),
  where: () => {
    const [x, y, condition] = [sampleTensor([5, 3]), sampleTensor([3], { seed: 2 }), sampleTensor([5, 1], { dtype: bool, low: 0, high: 2 })];
    return [
      [condition, x, y],
      [condition, x, number(0, x)],
      [x.gt(0), number(1, x), y],
    ].map((inputs) => ({ inputs, params: {} }));
  },
  sum: () => [...reductions({})(), ...reductions({ dtype: int64 })(), ...reductions({ dtype: int32 })(), ...reductions({ dtype: bool, low: 0, high: 2 })()],
  mean: reductions({}),
  prod: () => [...reductions({})(), ...reductions({ dtype: int64 })()],
  amax: extremes,
  amin: extremes,
  any: logic,
  all: logic,
  logsumexp: reductions({}),
  varMean: reductions({}, { correction: 1 }),
  vectorNorm: () => [0, 1, 2, 3, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY].flatMap((order) => reductions({}, { order })()),
  matmul: () => {
    const a = sampleTensor([5, 3]);
    const b = sampleTensor([3, 2], { seed: 2 });
    const [batchA, batchB] = [sampleTensor([3, 5, 4]), sampleTensor([1, 4, 2], { seed: 2 })];
    const params = { alpha: 0.5, beta: 2 };
    return [
      ...[sampleTensor([2], { seed: 3 }), sampleTensor([5, 2], { seed: 3 }), sampleTensor([5, 1], { seed: 3 }), number(0, a)].map((c) => ({ inputs: [a, b, c], params })),
      ...[sampleTensor([3, 1, 2], { seed: 3 }), sampleTensor([5, 2], { seed: 3 }), number(0, a)].map((c) => ({ inputs: [batchA, batchB, c], params })),
      { inputs: [sampleTensor([2, 1, 5, 3]), sampleTensor([2, 1, 3, 2], { seed: 2 }), number(0, a)], params },
      { inputs: [sampleTensor([2, 0]), sampleTensor([0, 3]), sampleTensor([3])], params },
      { inputs: [sampleTensor([2, 5], { dtype: int64 }), sampleTensor([5, 3], { dtype: int64, seed: 2 }), wrapNumber(0, int64, a.device)], params: { alpha: 1, beta: 0 } },
    ];
  },
};
