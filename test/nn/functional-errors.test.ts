/**
 * Whatever is wrong with the arguments of a function of `nn.functional`, its error begins with the
 * name of the function that was called, and not with that of an op inside.
 */
import assert from 'node:assert/strict';
import { absenceOf } from '../../lib/core/absent.js';
import {
  float16,
  manualSeed,
  nn,
  ones,
  rand,
  ShardwiseError,
  scalarTensor,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

type Call = (...args: unknown[]) => unknown;
const functional = nn.functional as unknown as Record<string, Call>;

const x = (): Tensor => rand([2, 3]).requiresGrad_();
const classes = (): Tensor => tensor([0n, 2n]);
const signs = (): Tensor => tensor([1, -1]);
const pair = (options: object = {}) => [x(), rand([2, 3]), options];
const heads = (): Tensor => rand([1, 2, 3, 4]);

/** A call of each function that works, with all of its options. */
const calls: Record<string, () => unknown[]> = {
  addRmsNorm: () => [x(), rand([2, 3]), [3], rand([3]), { eps: 1e-5 }],
  batchNorm: () => [x(), zeros([3]), ones([3]), rand([3]), rand([3]), true, 0.1, 1e-5],
  bilinear: () => [x(), rand([2, 4]), rand([5, 3, 4]), rand([5])],
  binaryCrossEntropy: () => pair({ weight: rand([3]), reduction: 'mean' }),
  binaryCrossEntropyWithLogits: () =>
    pair({ weight: rand([3]), posWeight: rand([3]), reduction: 'sum' }),
  celu: () => [x(), 1],
  cosineEmbeddingLoss: () => [...pair().slice(0, 2), signs(), { margin: 0, reduction: 'mean' }],
  cosineSimilarity: () => [...pair().slice(0, 2), 1, 1e-8],
  crossEntropy: () => [
    x(),
    classes(),
    { weight: rand([3]), ignoreIndex: -100, reduction: 'mean', labelSmoothing: 0.1 },
  ],
  dropout: () => [x(), 0.5, true],
  elu: () => [x(), 1],
  embedding: () => [classes(), rand([3, 2]).requiresGrad_(), { paddingIdx: 0 }],
  gelu: () => [x(), { approximate: 'tanh' }],
  glu: () => [rand([2, 4]), 1],
  groupNorm: () => [rand([2, 4]), 2, rand([4]), rand([4]), 1e-5],
  gumbelSoftmax: () => [x(), { tau: 1, hard: true, dim: 1 }],
  hardshrink: () => [x(), 0.5],
  hardsigmoid: () => [x()],
  hardswish: () => [x()],
  hardtanh: () => [x(), -1, 1],
  huberLoss: () => pair({ delta: 1, reduction: 'mean' }),
  klDiv: () => pair({ reduction: 'mean', logTarget: false }),
  l1Loss: () => pair({ reduction: 'mean' }),
  layerNorm: () => [x(), [3], rand([3]), rand([3]), 1e-5],
  leakyRelu: () => [x(), 0.1],
  linear: () => [x(), rand([4, 3]), rand([4])],
  logSoftmax: () => [x(), 1],
  logsigmoid: () => [x()],
  marginRankingLoss: () => [rand([2]), rand([2]), signs(), { margin: 0, reduction: 'mean' }],
  mish: () => [x()],
  mseLoss: () => pair({ reduction: 'mean' }),
  nllLoss: () => [x(), classes(), { weight: rand([3]), ignoreIndex: -100, reduction: 'mean' }],
  normalize: () => [x(), 2, 1, 1e-12],
  oneHot: () => [classes(), 3],
  pad: () => [x(), [1, 1], 'constant', 0],
  pairwiseDistance: () => [...pair().slice(0, 2), 2, 1e-6, false],
  prelu: () => [x(), rand([3])],
  relu: () => [x()],
  relu6: () => [x()],
  rmsNorm: () => [x(), [3], rand([3]), 1e-5],
  scaledDotProductAttention: () => [
    heads(),
    heads(),
    heads(),
    { attnMask: rand([3, 3]), dropoutP: 0, isCausal: false, scale: 1 },
  ],
  selu: () => [x()],
  sigmoid: () => [x()],
  silu: () => [x()],
  smoothL1Loss: () => pair({ beta: 1, reduction: 'mean' }),
  softmax: () => [x(), 1],
  softmin: () => [x(), 1],
  softplus: () => [x(), 1, 20],
  softshrink: () => [x(), 0.5],
  softsign: () => [x()],
  tanh: () => [x()],
  tanhshrink: () => [x()],
  threshold: () => [x(), 0, 1],
  tripletMarginLoss: () => [
    ...pair().slice(0, 2),
    rand([2, 3]),
    { margin: 1, p: 2, eps: 1e-6, reduction: 'mean' },
  ],
};

/** What a program may give in the place of any argument. */
const wrong: Record<string, () => unknown> = {
  'a string': () => 'wrong',
  'a number': () => -7.5,
  'a large number': () => 2 ** 52,
  null: () => null,
  NaN: () => NaN,
  'a list': () => [-9],
  'a list of strings': () => ['wrong'],
  'an object': () => ({ wrong: 1 }),
  'a function': () => () => 1,
  'a tensor without dims': () => scalarTensor(1),
  'a tensor of another shape': () => rand([7]),
  'a tensor of more dims': () => rand([2, 3, 5, 7]),
  'an empty tensor': () => zeros([0]),
  'a bool tensor': () => zeros([2, 3]).bool(),
  'an integer tensor': () => zeros([2, 3]).long(),
  'indices out of range': () => tensor([0n, 99n]),
  'negative indices': () => tensor([-5n, -99n]),
  'a tensor of low precision': () => rand([2, 3], { dtype: float16 }),
  'a tensor on meta': () => zeros([2, 3], { device: 'meta' }),
};

/** The calls with one argument, or one option, replaced. */
function* replaced(args: unknown[], value: unknown): Generator<[what: string, args: unknown[]]> {
  for (const [i, arg] of args.entries()) {
    const withOther = (other: unknown) => args.map((each, at) => (at === i ? other : each));
    yield [`argument ${i}`, withOther(value)];
    if (Object.getPrototypeOf(arg) !== Object.prototype) continue;
    for (const name of [...Object.keys(arg as object), 'wrong'])
      yield [`option ${name}`, withOther({ ...(arg as object), [name]: value })];
  }
}

const opOf = (error: unknown): unknown =>
  error instanceof ShardwiseError ? error.details['op'] : 'no error of the library';

describe('an error of nn.functional', () => {
  it('is tested for every function', () => {
    const given = Object.entries(functional).flatMap(([name, fn]) =>
      absenceOf(fn) === undefined ? [name] : [],
    );
    assert.deepEqual(Object.keys(calls).sort(), given.sort());
  });

  for (const [name, args] of Object.entries(calls))
    it(`begins with the name of the function: ${name}`, () => {
      manualSeed(1);
      functional[name]?.(...args());
      const problems: string[] = [];
      for (const [what, value] of Object.entries(wrong))
        for (const [where, given] of replaced(args(), value()))
          try {
            functional[name]?.(...given);
          } catch (error) {
            const { message } = error as Error;
            const isNamed = message.startsWith(`${name}: `) && opOf(error) === name;
            if (!isNamed) problems.push(`${what} as ${where}: ${message}`);
          }
      assert.deepEqual(problems, []);
    });
});
