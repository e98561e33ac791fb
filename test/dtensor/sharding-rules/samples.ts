/**
 * Calls that the op table's own samples do not cover: uneven and empty pieces, kept dims, several
 * dims, absent operands.
 */

import { cpu } from '../../../lib/core/device.js';
import { dispatch } from '../../../lib/core/dispatch.js';
import { type AnyOp, opByName, type Sample } from '../../../lib/core/op.js';
import { wrapNumber } from '../../../lib/core/tensor.js';
import {
  bfloat16,
  bool,
  float32,
  float64,
  int32,
  int64,
  type Tensor,
  tensor,
  uint8,
} from '../../../lib/index.js';
import { sampleTensor } from '../../../lib/ops/samples.js';

type Samples = () => Sample<object>[];
type Values = Parameters<typeof sampleTensor>[1];

const number = (value: number, like: Tensor): Tensor => wrapNumber(value, like.dtype, like.device);

/** One call for each set of params. */
const each = (inputs: readonly Tensor[], ...params: readonly object[]): Sample<object>[] =>
  params.map((p) => ({ inputs, params: p }));

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
      return sets.flatMap((dims) =>
        each([t], { dims, keepdim: false, ...extra }, { dims, keepdim: true, ...extra }),
      );
    });

/** Extremes of nothing are refused before the op is called. */
const extremes: Samples = () =>
  [
    {},
    { dtype: int64 },
    { dtype: bool, low: 0, high: 2 },
    { dtype: uint8, low: 0, high: 9 },
  ].flatMap((values) => reductions(values)().filter(({ inputs: [x] }) => (x?.numel() ?? 0) > 0));

/** Values that swallow all others. */
const special = (): Tensor =>
  tensor([
    [Number.NaN, 1, 2],
    [Number.POSITIVE_INFINITY, -1, 3],
    [Number.NEGATIVE_INFINITY, 4, 5],
    [1, Number.NEGATIVE_INFINITY, 6],
    [0, -0, 7],
  ]);

const logic: Samples = () =>
  [
    {},
    { dtype: bool, low: 0, high: 2 },
    { dtype: uint8, low: 0, high: 2 },
    { dtype: int64, low: -1, high: 2 },
  ].flatMap((values) => reductions(values)());

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
  expand: () =>
    each(
      [sampleTensor([5, 1, 3])],
      { size: [5, 4, 3] },
      { size: [2, 5, 1, 3] },
      { size: [5, 0, 3] },
    ),
  unsqueeze: () => each([sampleTensor([5, 3])], { dim: 0 }, { dim: 2 }),
  squeeze: () => [
    ...each([sampleTensor([2, 1, 3])], { dims: [0, 1, 2] }, { dims: [0] }, { dims: [1] }),
    ...each([sampleTensor([4, 1])], { dims: [0] }),
  ],
  detach: () => each([sampleTensor([5, 1, 3], { dtype: int64 })], {}),
  slice: () =>
    each(
      [sampleTensor([5, 3])],
      { dim: 0, start: 0, length: 5, step: 1 },
      { dim: 1, start: 1, length: 2, step: 1 },
      { dim: 0, start: 0, length: 3, step: 2 },
    ),
  select: () => each([sampleTensor([5, 3, 2])], { dim: 0, index: 4 }, { dim: 2, index: 0 }),
  diagonal: () =>
    each(
      [sampleTensor([5, 3, 5])],
      { offset: 0, dim1: 0, dim2: 2 },
      { offset: 1, dim1: 1, dim2: 0 },
    ),
  unfold: () => each([sampleTensor([5, 6, 2])], { dim: 1, size: 2, step: 2 }),
};

const alongDim =
  (params: object, values: Values = {}): Samples =>
  () =>
    [
      [sampleTensor([5, 3, 2], values), 1],
      [sampleTensor([1, 4], values), 0],
      [sampleTensor([2, 0], values), 1],
      [sampleTensor([8], values), 0],
    ].map(([t, dim]) => ({ inputs: [t as Tensor], params: { dim, ...params } }));

/** A call of a backward op after the forward op, whose results it reads. */
function after(
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

const gradientOf = (t: Tensor | undefined): Tensor => sampleTensor(t?.shape ?? [], { seed: 9 });

const layerNorms: Samples = () => {
  const normed = (shape: number[], own: number[]): Tensor[] => [
    sampleTensor(shape),
    sampleTensor(own, { seed: 2 }),
    sampleTensor(own, { seed: 3 }),
  ];
  const width = (n: number): object => ({ width: n, eps: 1e-5, needs: [true, true, true] });
  const x = sampleTensor([3, 5, 4]);
  return [
    ...each(normed([3, 5, 4], [4]), width(4)),
    ...each(normed([5, 3, 2], [3, 2]), width(6)),
    ...each([x, number(0, x), number(0, x)], width(4)),
    ...each(normed([1, 2, 3], [3]), width(3)),
    ...each(normed([4], [4]), width(4)),
  ];
};
const rmsNorms: Samples = () =>
  layerNorms().map(({ inputs, params }) => ({ inputs: inputs.slice(0, 2), params }));

const losses: Samples = () =>
  [
    { ignoreIndex: -100, labelSmoothing: 0 },
    { ignoreIndex: 2, labelSmoothing: 0.2 },
  ].flatMap((params) => {
    const [x, target] = [
      sampleTensor([5, 7]),
      sampleTensor([5], { dtype: int64, low: 0, high: 7 }),
    ];
    return [
      ...each([x, target, number(0, x)], params),
      ...each([x, target, sampleTensor([7], { low: 0.5, seed: 4 })], params),
    ];
  });

const attentions: Samples = () => {
  const [batch, length, keys] = [3, 5, 4];
  const heads: [number, number][] = [
    [3, 3],
    [4, 2],
    [4, 1],
    [6, 3],
  ];
  return heads.flatMap(([own, shared]) => {
    const q = sampleTensor([batch, own, length, 2]);
    const [k, v] = [
      sampleTensor([batch, shared, keys, 2], { seed: 2 }),
      sampleTensor([batch, shared, keys, 3], { seed: 3 }),
    ];
    const masks = [
      [batch, 1, length, keys],
      [own, 1, keys],
      [batch, own, length, keys],
    ].map((shape) => sampleTensor(shape, { seed: 4 }));
    const params = { scale: 0.5, causal: 0, dropout: 0, seedLow: 0, seedHigh: 0, offset: 0 };
    return [...masks, number(0, q)]
      .flatMap((mask) => each([q, k, v, mask], params))
      .concat(each([q, k, v, number(0, q)], { ...params, causal: 1 }));
  });
};

const rowsOps: Record<string, Samples> = {
  softmax: alongDim({}),
  logSoftmax: alongDim({}),
  softmaxBackward: () =>
    each([sampleTensor([5, 3, 2]), sampleTensor([5, 3, 2], { seed: 3 })], { dim: 1 }),
  logSoftmaxBackward: () =>
    each([sampleTensor([5, 3, 2]), sampleTensor([5, 3, 2], { seed: 3 })], { dim: 1 }),
  cumsum: () => [
    ...alongDim({})(),
    ...alongDim({}, { dtype: int64 })(),
    ...alongDim({}, { dtype: int32 })(),
  ],
  cumprod: alongDim({}),
  sort: alongDim({ descending: 1 }),
  topk: () =>
    each([sampleTensor([5, 3, 2])], { dim: 1, k: 2, largest: 0 }, { dim: 0, k: 5, largest: 1 }),
  argmax: () => extremes(),
  argmin: () => extremes(),
  layerNorm: layerNorms,
  layerNormBackward: after(
    'layerNorm',
    ([x, weight], [y, mean, rstd]) => [gradientOf(y), x, mean, rstd, weight] as Tensor[],
    layerNorms,
  ),
  rmsNorm: rmsNorms,
  rmsNormBackward: after(
    'rmsNorm',
    ([x, weight], [y, rstd]) => [gradientOf(y), x, rstd, weight] as Tensor[],
    rmsNorms,
  ),
  crossEntropyRows: losses,
  crossEntropyBackward: after(
    'crossEntropyRows',
    ([x, target, weight], [loss, lse]) => [gradientOf(loss), x, lse, target, weight] as Tensor[],
    losses,
  ),
  attention: attentions,
  attentionBackward: after(
    'attention',
    (inputs, [out, lse]) => [gradientOf(out), ...inputs, out, lse] as Tensor[],
    attentions,
  ),
};

const indices = (shape: number[], high: number, low = 0): Tensor =>
  sampleTensor(shape, { dtype: int64, low, high });
const table = (values: Values = {}): Tensor => sampleTensor([5, 3, 2], values);
const kinds: Values[] = [{}, { dtype: int64 }, { dtype: bool, low: 0, high: 2 }];

const scatters = (reduces: readonly string[]): Sample<object>[] =>
  reduces.flatMap((reduce) => [
    ...each([table(), indices([4, 3, 2], 5), sampleTensor([4, 3, 2], { seed: 9 })], {
      dim: 0,
      reduce,
    }),
    ...each([table(), indices([5, 2, 1], 3), sampleTensor([5, 2, 1], { seed: 9 })], {
      dim: 1,
      reduce,
    }),
    ...each([table(), indices([0, 3, 2], 5), sampleTensor([0, 3, 2])], { dim: 0, reduce }),
    ...each([sampleTensor([1, 3]), indices([4, 3], 1), sampleTensor([4, 3], { seed: 9 })], {
      dim: 0,
      reduce,
    }),
  ]);

const indexOps: Record<string, Samples> = {
  indexSelect: () => [
    ...kinds.flatMap((values) =>
      each([table(values), indices([7], 3)], { dim: 1 }).concat(
        each([table(values), indices([3], 5)], { dim: 0 }),
      ),
    ),
    ...each([table(), indices([0], 5)], { dim: 0 }),
    ...each([special(), indices([7], 5)], { dim: 0 }),
    ...each([sampleTensor([1, 3]), indices([4], 1).to(int32)], { dim: 0 }),
    ...each([sampleTensor([]), indices([1], 1)], { dim: 0 }),
  ],
  indexAdd: () => [
    ...each([table(), indices([7], 3), sampleTensor([5, 7, 2], { seed: 9 })], {
      dim: 1,
      alpha: 0.5,
    }),
    ...each(
      [
        table({ dtype: int64 }),
        indices([3], 5).to(int32),
        sampleTensor([3, 3, 2], { dtype: int64, seed: 9 }),
      ],
      { dim: 0, alpha: 2 },
    ),
    ...each([table(), indices([0], 5), sampleTensor([0, 3, 2])], { dim: 0, alpha: 1 }),
  ],
  gather: () => [
    ...kinds.flatMap((values) => each([table(values), indices([5, 7, 2], 3)], { dim: 1 })),
    ...each([table(), indices([3, 2, 2], 5)], { dim: 0 }),
    ...each([sampleTensor([]), indices([], 1)], { dim: 0 }),
  ],
  scatter: () => [
    ...scatters(['add']),
    ...each(
      [
        table(),
        sampleTensor([5, 3, 2], { seed: 3 }).argsort(0),
        sampleTensor([5, 3, 2], { seed: 9 }),
      ],
      { dim: 0, reduce: 'set' },
    ),
  ],
  scatterReduction: () => scatters(['multiply', 'amax', 'amin']),
  indexGet: () => [
    ...kinds.flatMap((values) =>
      each([table(values), indices([4, 3], 5, -5)], { numIndices: 1, accumulate: 0 }),
    ),
    ...each([table(), indices([4], 5, -5), indices([4], 3)], { numIndices: 2, accumulate: 0 }),
    ...each([table(), indices([0], 5)], { numIndices: 1, accumulate: 0 }),
  ],
  indexPut: () => [
    ...each([table(), sampleTensor([4, 2, 3, 2], { seed: 9 }), indices([4, 2], 5, -5)], {
      numIndices: 1,
      accumulate: 1,
    }),
    ...each([table(), sampleTensor([6, 2], { seed: 9 }), indices([6], 5), indices([6], 3, -3)], {
      numIndices: 2,
      accumulate: 1,
    }),
    ...each(
      [table(), sampleTensor([5, 3, 2], { seed: 9 }), sampleTensor([5], { seed: 3 }).argsort(0)],
      { numIndices: 1, accumulate: 0 },
    ),
    ...each([table(), sampleTensor([0, 3, 2], { seed: 9 }), indices([0], 5)], {
      numIndices: 1,
      accumulate: 1,
    }),
  ],
};

const made = { dtype: float32, device: cpu };
const drawn =
  (first: number, second: number, dtype = float32): Samples =>
  () =>
    [[5, 3, 2], [7], [4, 0], []].flatMap((shape) =>
      each([], { shape, dtype, device: cpu, seedLow: 7, seedHigh: 1, offset: 3, first, second }),
    );

const makers: Record<string, Samples> = {
  full: () =>
    each(
      [],
      { ...made, shape: [5, 3], strides: null, value: 2 },
      { ...made, shape: [5, 3], strides: [1, 5], value: 2 },
      { ...made, shape: [], strides: null, value: 2 },
    ),
  arange: () =>
    each(
      [],
      { ...made, size: 7, start: 1, step: 0.3 },
      { ...made, size: 7, start: -3, step: 2, dtype: int64 },
      { ...made, size: 7, start: 0.5, step: 1.5, dtype: int64 },
      { ...made, size: 0, start: 0, step: 1 },
    ),
  linspace: () =>
    each(
      [],
      { ...made, size: 7, start: -1, step: 3 },
      { ...made, size: 1, start: 2, step: 3 },
      { ...made, size: 5, start: 0, step: 1, dtype: int64 },
    ),
  randomUniform: drawn(-1, 2),
  randomNormal: drawn(1, 2),
  randomInteger: drawn(0, 90, int64),
  randomBernoulli: drawn(0.4, 0, bool),
  dropout: () =>
    each([sampleTensor([5, 3, 2])], { probability: 0.4, seedLow: 7, seedHigh: 1, offset: 3 }),
  tri: () =>
    each(
      [sampleTensor([2, 5, 3])],
      { diagonal: 0, upper: 0 },
      { diagonal: -1, upper: 1 },
      { diagonal: 1, upper: 0 },
    ),
  cat: () => [
    ...each(
      [
        sampleTensor([5, 2]),
        sampleTensor([5, 0]),
        sampleTensor([0]),
        sampleTensor([5, 3], { seed: 2 }),
      ],
      { dim: 1, sizes: [2, 0, 0, 3] },
    ),
    ...each([sampleTensor([2]), sampleTensor([3])], { dim: 0, sizes: [2, 3] }),
    ...each([sampleTensor([2, 1, 3]), sampleTensor([2, 4, 3], { seed: 2 })], {
      dim: 1,
      sizes: [1, 4],
    }),
  ],
};

export const moreSamples: Record<string, Samples> = {
  ...views,
  ...makers,
  ...indexOps,
  ...rowsOps,
  copy: () => [
    ...each(
      [sampleTensor([5, 3])],
      { dtype: float64 },
      { dtype: bfloat16 },
      { dtype: bool },
      { dtype: int32 },
      { preserve: true },
    ),
    ...each([sampleTensor([5, 3], { dtype: int64 })], { dtype: int32 }, {}),
  ],
  fill: () => [
    ...each([sampleTensor([5, 3])], { value: 0 }),
    ...each([sampleTensor([5, 3], { dtype: int64 })], { value: 0n }, { value: 3n }),
  ],
  add: binary({ alpha: 2 }),
  sub: binary({ alpha: 2 }),
  mul: binary({}),
  div: binary({}),
  maximum: binary({}),
  minimum: binary({}),
  where: () => {
    const [x, y, condition] = [
      sampleTensor([5, 3]),
      sampleTensor([3], { seed: 2 }),
      sampleTensor([5, 1], { dtype: bool, low: 0, high: 2 }),
    ];
    return [
      [condition, x, y],
      [condition, x, number(0, x)],
      [x.gt(0), number(1, x), y],
    ].map((inputs) => ({ inputs, params: {} }));
  },
  sum: () => [
    ...reductions({})(),
    ...reductions({ dtype: int64 })(),
    ...reductions({ dtype: int32 })(),
    ...reductions({ dtype: bool, low: 0, high: 2 })(),
  ],
  mean: reductions({}),
  prod: () => [...reductions({})(), ...reductions({ dtype: int64 })()],
  amax: () => [
    ...extremes(),
    ...each([special()], { dims: [0], keepdim: false }, { dims: [0, 1], keepdim: false }),
  ],
  amin: () => [
    ...extremes(),
    ...each([special()], { dims: [0], keepdim: false }, { dims: [1], keepdim: false }),
  ],
  any: logic,
  all: logic,
  logsumexp: () => [...reductions({})(), ...each([special()], { dims: [1], keepdim: true })],
  varMean: reductions({}, { correction: 1 }),
  vectorNorm: () =>
    [0, 1, 2, 3, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY].flatMap((order) =>
      reductions({}, { order })(),
    ),
  matmul: () => {
    const a = sampleTensor([5, 3]);
    const b = sampleTensor([3, 2], { seed: 2 });
    const [batchA, batchB] = [sampleTensor([3, 5, 4]), sampleTensor([1, 4, 2], { seed: 2 })];
    const params = { alpha: 0.5, beta: 2 };
    return [
      ...[
        sampleTensor([2], { seed: 3 }),
        sampleTensor([5, 2], { seed: 3 }),
        sampleTensor([5, 1], { seed: 3 }),
        number(0, a),
      ].map((c) => ({ inputs: [a, b, c], params })),
      ...[
        sampleTensor([3, 1, 2], { seed: 3 }),
        sampleTensor([5, 2], { seed: 3 }),
        number(0, a),
      ].map((c) => ({ inputs: [batchA, batchB, c], params })),
      {
        inputs: [sampleTensor([2, 1, 5, 3]), sampleTensor([2, 1, 3, 2], { seed: 2 }), number(0, a)],
        params,
      },
      { inputs: [sampleTensor([2, 0]), sampleTensor([0, 3]), sampleTensor([3])], params },
      {
        inputs: [
          sampleTensor([2, 5], { dtype: int64 }),
          sampleTensor([5, 3], { dtype: int64, seed: 2 }),
          wrapNumber(0, int64, a.device),
        ],
        params: { alpha: 1, beta: 0 },
      },
    ];
  },
};
