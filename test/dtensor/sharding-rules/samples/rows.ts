/** Samples of normalization, losses, attention and ops along a dim. */
import { int32, int64, type Tensor } from '../../../../lib/index.js';
import { sampleTensor } from '../../../../lib/ops/samples.js';
import { after, alongDim, each, extremes, gradientOf, number, type Samples } from './helpers.js';

const layerNorms: Samples = () => {
  const normed = (shape: number[], own: number[]): Tensor[] => [
    sampleTensor(shape),
    sampleTensor(own, { seed: 2 }),
    sampleTensor(own, { seed: 3 }),
  ];
  const width = (n: number): object => ({ width: n, eps: 1e-5 });
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

/** Of the ops that take shards of the classes. */
const ofAllClasses = { firstClass: 0, classes: 7, shards: 1 };
const losses: Samples = () =>
  [
    { ignoreIndex: -100, labelSmoothing: 0, ...ofAllClasses },
    { ignoreIndex: 2, labelSmoothing: 0.2, ...ofAllClasses },
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

export const rowSamples: Record<string, Samples> = {
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
    ([x, weight], [y, mean, rstd]) =>
      [gradientOf(y), x, mean, rstd, gradientOf(y), weight] as Tensor[],
    layerNorms,
  ),
  rmsNorm: rmsNorms,
  rmsNormBackward: after(
    'rmsNorm',
    ([x, weight], [y, rstd]) => [gradientOf(y), x, rstd, gradientOf(y), weight] as Tensor[],
    rmsNorms,
  ),
  crossEntropyRows: losses,
  crossEntropyStatistics: losses,
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
