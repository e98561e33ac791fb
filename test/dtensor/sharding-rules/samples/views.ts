/** Samples of views. */
import { int64 } from '../../../../lib/index.js';
import { sampleTensor } from '../../../../lib/ops/samples.js';
import { each, type Samples } from './helpers.js';

export const viewSamples: Record<string, Samples> = {
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
