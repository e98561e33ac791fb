/** Constructors take their arguments by position or as options, with equal results. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  manualSeed,
  nn,
  ones,
  optim,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

type Loose = Record<string, new (...args: unknown[]) => { toString(): string }>;
const pair = (a: () => unknown, b: () => unknown): [() => unknown, () => unknown] => [a, b];
const weight = tensor([1, 2, 3]);
const p = (): nn.Parameter[] => [new nn.Parameter(tensor([1, 2]))];
const sgd = (): optim.SGD => new optim.SGD(p(), { lr: 1, momentum: 0.5 });
const { lrScheduler: S } = optim;

/** A call by position and the same call with options, whose results must be equal. */
const forms: Record<string, [() => unknown, () => unknown]> = {
  Linear: pair(
    () => new nn.Linear(2, 3, false),
    () => new nn.Linear({ inFeatures: 2, outFeatures: 3, bias: false }),
  ),
  'Linear, both': pair(
    () => new nn.Linear(2, 3, false, { dtype: 'float64' }).weight.dtype,
    () => new nn.Linear(2, 3, { bias: false, dtype: 'float64' }).weight.dtype,
  ),
  Embedding: pair(
    () => new nn.Embedding(4, 2, 0),
    () => new nn.Embedding(4, 2, { paddingIdx: 0 }),
  ),
  'Embedding.fromPretrained': pair(
    () => [
      nn.Embedding.fromPretrained(ones([2, 3]), false, 1).weight.requiresGrad,
      nn.Embedding.fromPretrained(ones([2, 3]), false, 1),
    ],
    () => [true, nn.Embedding.fromPretrained(ones([2, 3]), { freeze: false, paddingIdx: 1 })],
  ),
  Dropout: pair(
    () => new nn.Dropout(0.3, true),
    () => new nn.Dropout({ p: 0.3, inplace: true }),
  ),
  LayerNorm: pair(
    () => new nn.LayerNorm(4, 1e-6, false),
    () => new nn.LayerNorm(4, { eps: 1e-6, elementwiseAffine: false }),
  ),
  GroupNorm: pair(
    () => new nn.GroupNorm(2, 4, 1e-6, false),
    () => new nn.GroupNorm(2, 4, { eps: 1e-6, affine: false }),
  ),
  BatchNorm1d: pair(
    () => new nn.BatchNorm1d(4, 1e-6, 0.2, false, false),
    () =>
      new nn.BatchNorm1d(4, { eps: 1e-6, momentum: 0.2, affine: false, trackRunningStats: false }),
  ),
  MultiheadAttention: pair(
    () => [
      new nn.MultiheadAttention(4, 2, 0.1, false).dropout,
      new nn.MultiheadAttention(4, 2, 0.1, false).in_proj_bias,
    ],
    () => [new nn.MultiheadAttention(4, 2, { dropout: 0.1, bias: false }).dropout, null],
  ),
  CosineSimilarity: pair(
    () => ({ ...new nn.CosineSimilarity(0, 1e-3) }),
    () => ({ ...new nn.CosineSimilarity({ dim: 0, eps: 1e-3 }) }),
  ),
  PairwiseDistance: pair(
    () => new nn.PairwiseDistance(1, 0, true)(ones([2, 3]), ones([2, 3]).mul(2)).tolist(),
    () =>
      new nn.PairwiseDistance({ p: 1, eps: 0, keepdim: true })(
        ones([2, 3]),
        ones([2, 3]).mul(2),
      ).tolist(),
  ),
  CrossEntropyLoss: pair(
    () => new nn.CrossEntropyLoss(weight).weight?.tolist(),
    () => new nn.CrossEntropyLoss({ weight }).weight?.tolist(),
  ),
  HuberLoss: pair(
    () => new nn.HuberLoss('sum', 2).options,
    () => new nn.HuberLoss({ reduction: 'sum', delta: 2 }).options,
  ),
  TripletMarginLoss: pair(
    () => new nn.TripletMarginLoss(2, 1, 1e-3, { reduction: 'sum' }).options,
    () => new nn.TripletMarginLoss({ margin: 2, p: 1, eps: 1e-3, reduction: 'sum' }).options,
  ),
  ReLU: pair(
    () => new nn.ReLU(true),
    () => new nn.ReLU({ inplace: true }),
  ),
  Hardtanh: pair(
    () => new nn.Hardtanh(-2, 2, true),
    () => new nn.Hardtanh({ minVal: -2, maxVal: 2, inplace: true }),
  ),
  GELU: pair(
    () => new nn.GELU('tanh'),
    () => new nn.GELU({ approximate: 'tanh' }),
  ),
  Softmax: pair(
    () => new nn.Softmax(0),
    () => new nn.Softmax({ dim: 0 }),
  ),
  TransformerEncoderLayer: pair(
    () => new nn.TransformerEncoderLayer(4, 2, 8, 0, 'gelu', 1e-4, true),
    () =>
      new nn.TransformerEncoderLayer(4, 2, {
        dimFeedforward: 8,
        dropout: 0,
        activation: 'gelu',
        layerNormEps: 1e-4,
        batchFirst: true,
      }),
  ),
  Transformer: pair(
    () => new nn.Transformer(4, 2, 1, 1, 8, 0),
    () =>
      new nn.Transformer({
        dModel: 4,
        nhead: 2,
        numEncoderLayers: 1,
        numDecoderLayers: 1,
        dimFeedforward: 8,
        dropout: 0,
      }),
  ),
  SGD: pair(
    () => new optim.SGD(p(), 0.1, 0.9, 0.5, 0.01, { maximize: true }).stateDict(),
    () =>
      new optim.SGD(p(), {
        lr: 0.1,
        momentum: 0.9,
        dampening: 0.5,
        weightDecay: 0.01,
        maximize: true,
      }).stateDict(),
  ),
  Adam: pair(
    () => new optim.Adam(p(), 1e-2, [0.8, 0.9], 1e-4, 0.1, true).stateDict(),
    () =>
      new optim.Adam(p(), {
        lr: 1e-2,
        betas: [0.8, 0.9],
        eps: 1e-4,
        weightDecay: 0.1,
        amsgrad: true,
      }).stateDict(),
  ),
  AdamW: pair(
    () => new optim.AdamW(p(), 1e-2).stateDict(),
    () => new optim.AdamW(p(), { lr: 1e-2 }).stateDict(),
  ),
  LambdaLR: pair(
    () => new S.LambdaLR(sgd(), () => 0.5).getLastLr(),
    () => new S.LambdaLR(sgd(), { lrLambda: () => 0.5 }).getLastLr(),
  ),
  StepLR: pair(
    () => new S.StepLR(sgd(), 3, 0.5).stateDict(),
    () => new S.StepLR(sgd(), { stepSize: 3, gamma: 0.5 }).stateDict(),
  ),
  MultiStepLR: pair(
    () => new S.MultiStepLR(sgd(), [3, 5], 0.5).stateDict(),
    () => new S.MultiStepLR(sgd(), { milestones: [3, 5], gamma: 0.5 }).stateDict(),
  ),
  LinearLR: pair(
    () => new S.LinearLR(sgd(), 0.1, 0.9, 7).stateDict(),
    () => new S.LinearLR(sgd(), { startFactor: 0.1, endFactor: 0.9, totalIters: 7 }).stateDict(),
  ),
  CosineAnnealingLR: pair(
    () => new S.CosineAnnealingLR(sgd(), 50, 0.1).stateDict(),
    () => new S.CosineAnnealingLR(sgd(), { TMax: 50, etaMin: 0.1 }).stateDict(),
  ),
  CosineAnnealingWarmRestarts: pair(
    () => new S.CosineAnnealingWarmRestarts(sgd(), 5, 2).stateDict(),
    () => new S.CosineAnnealingWarmRestarts(sgd(), { T0: 5, TMult: 2 }).stateDict(),
  ),
  OneCycleLR: pair(
    () => new S.OneCycleLR(sgd(), 1, null, 2, 5, 0.4, 'linear').stateDict(),
    () =>
      new S.OneCycleLR(sgd(), {
        maxLr: 1,
        epochs: 2,
        stepsPerEpoch: 5,
        pctStart: 0.4,
        annealStrategy: 'linear',
      }).stateDict(),
  ),
  CyclicLR: pair(
    () => new S.CyclicLR(sgd(), 0.1, 1, 5, 6, 'triangular2').stateDict(),
    () =>
      new S.CyclicLR(sgd(), {
        baseLr: 0.1,
        maxLr: 1,
        stepSizeUp: 5,
        stepSizeDown: 6,
        mode: 'triangular2',
      }).stateDict(),
  ),
  SequentialLR: pair(
    () =>
      ((o) =>
        new S.SequentialLR(o, [new S.ConstantLR(o), new S.ExponentialLR(o, 0.9)], [3]).stateDict())(
        sgd(),
      ),
    () =>
      ((o) =>
        new S.SequentialLR(o, {
          schedulers: [new S.ConstantLR(o), new S.ExponentialLR(o, { gamma: 0.9 })],
          milestones: [3],
        }).stateDict())(sgd()),
  ),
  ReduceLROnPlateau: pair(
    () => new S.ReduceLROnPlateau(sgd(), 'max', 0.5, 3).stateDict(),
    () => new S.ReduceLROnPlateau(sgd(), { mode: 'max', factor: 0.5, patience: 3 }).stateDict(),
  ),
  clipGradNorm_: pair(
    () => clipped((list) => nn.utils.clipGradNorm_(list, 1, 1)),
    () => clipped((list) => nn.utils.clipGradNorm_(list, { maxNorm: 1, normType: 1 })),
  ),
  xavierUniform_: pair(
    () => drawn(() => nn.init.xavierUniform_(zeros([2, 3]), 3)),
    () => drawn(() => nn.init.xavierUniform_(zeros([2, 3]), { gain: 3 })),
  ),
  kaimingNormal_: pair(
    () => drawn(() => nn.init.kaimingNormal_(zeros([2, 3]), 0.5, 'fan_out', 'relu')),
    () =>
      drawn(() =>
        nn.init.kaimingNormal_(zeros([2, 3]), { a: 0.5, mode: 'fan_out', nonlinearity: 'relu' }),
      ),
  ),
  orthogonal_: pair(
    () => drawn(() => nn.init.orthogonal_(zeros([2, 3]), 3)),
    () => drawn(() => nn.init.orthogonal_(zeros([2, 3]), { gain: 3 })),
  ),
  padSequence: pair(
    () => nn.utils.rnn.padSequence([ones([1]), ones([2])], true, 7).tolist(),
    () =>
      nn.utils.rnn
        .padSequence([ones([1]), ones([2])], { batchFirst: true, paddingValue: 7 })
        .tolist(),
  ),
};

function drawn(make: () => Tensor): unknown {
  manualSeed(3);
  return make().tolist();
}

function clipped(clip: (list: nn.Parameter[]) => Tensor): unknown {
  const list = p();
  for (const each of list) each.grad = tensor([3, 4]);
  return [clip(list).item(), list.map((each) => each.grad?.tolist())];
}

const shown = (value: unknown): unknown =>
  value instanceof nn.Module ? String(value) : Array.isArray(value) ? value.map(shown) : value;

describe('constructor arguments by position', () => {
  for (const [name, [byPosition, byName]] of Object.entries(forms)) {
    it(`equal the same options in ${name}`, () => {
      assert.deepEqual(shown(byPosition()), shown(byName()));
    });
  }

  it('are refused if PyTorch has another argument at that position', () => {
    const classes = { ...nn, ...optim, ...S } as unknown as Loose;
    const refused: [string, ...unknown[]][] = [
      ['MultiheadAttention', 4, 2, 0, true, true],
      ['CrossEntropyLoss', weight, null, -100],
      ['MSELoss', 'sum'],
      ['Embedding', 4, 2, 0, 1],
      ['SGD', p(), 0.1, 0, 0, 0, false, true],
      ['Linear', 2, 2, true, 'cpu'],
    ];
    for (const [name, ...args] of refused) {
      assert.throws(
        () => new (classes[name] as Loose[string])(...args),
        (e: Error) => e instanceof ArgumentError && e.message.includes('an object such as'),
        name,
      );
    }
  });

  it('are refused together with an option of the same name', () => {
    assert.throws(
      () => new nn.Linear(2, 3, false, { bias: true } as never),
      /Linear: bias is given twice, by position \(false\) and as an option \(true\)/,
    );
    assert.throws(() => new optim.SGD(p(), 0.1, { lr: 1 } as never), /lr is given twice/);
  });
});
