/** Samples of gather, scatter and index ops. */
import type { Sample } from '../../../../lib/core/op.js';
import { bool, int32, int64, type Tensor } from '../../../../lib/index.js';
import { sampleTensor } from '../../../../lib/ops/samples.js';
import { each, type Samples, special, type Values } from './helpers.js';

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

export const indexSamples: Record<string, Samples> = {
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
