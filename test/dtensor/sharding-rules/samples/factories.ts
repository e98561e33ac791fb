/** Samples of factories and random ops. */
import { cpu } from '../../../../lib/core/device.js';
import { bool, float32, int64 } from '../../../../lib/index.js';
import { sampleTensor } from '../../../../lib/ops/samples.js';
import { each, type Samples } from './helpers.js';

const made = { dtype: float32, device: cpu };
const drawn =
  (first: number, second: number, dtype = float32): Samples =>
  () =>
    [[5, 3, 2], [7], [4, 0], []].flatMap((shape) =>
      each([], { shape, dtype, device: cpu, seedLow: 7, seedHigh: 1, offset: 3, first, second }),
    );

export const factorySamples: Record<string, Samples> = {
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
