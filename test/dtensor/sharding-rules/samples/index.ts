/**
 * Calls for sharding rules beyond the samples of the op table: uneven and empty shards, kept dims,
 * several dims, absent operands.
 */
import { wrapNumber } from '../../../../lib/core/tensor.js';
import { bfloat16, bool, float64, int32, int64 } from '../../../../lib/index.js';
import { sampleTensor } from '../../../../lib/ops/samples.js';
import { factorySamples } from './factories.js';
import {
  binary,
  each,
  extremes,
  logic,
  number,
  reductions,
  type Samples,
  special,
} from './helpers.js';
import { indexSamples } from './indexing.js';
import { rowSamples } from './rows.js';
import { viewSamples } from './views.js';

export const moreSamples: Record<string, Samples> = {
  ...viewSamples,
  ...factorySamples,
  ...indexSamples,
  ...rowSamples,
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
