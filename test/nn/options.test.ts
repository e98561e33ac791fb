/**
 * Layers and losses refuse invalid options in the constructor, with the names of layer and option.
 */
import assert from 'node:assert/strict';
import { ArgumentError, nn, ones, ShapeError, tensor } from '../../lib/index.js';

type Loose = Record<string, new (...args: unknown[]) => nn.AnyModule>;
const classes = nn as unknown as Loose;
const bad = { reduction: 'average' };

const refused: Record<string, [args: unknown[], option: string][]> = {
  Linear: [
    [[-1, 2], 'inFeatures'],
    [[2, 1.5], 'outFeatures'],
    [[undefined, 2], 'inFeatures'],
    [['2', 2], 'inFeatures'],
  ],
  Bilinear: [
    [[0, 2, 2], 'in1Features'],
    [[1, 2, Number.NaN], 'outFeatures'],
  ],
  Embedding: [
    [[-1, 2], 'numEmbeddings'],
    [[3, -2], 'embeddingDim'],
    [[3, 2, { paddingIdx: 3 }], 'paddingIdx'],
    [[3, 2, { paddingIdx: 1.5 }], 'paddingIdx'],
  ],
  Dropout: [
    [[-0.1], 'p'],
    [[1.1], 'p'],
    [['0.5'], 'p'],
    [[null], 'p'],
  ],
  Flatten: [[[1.5], 'startDim']],
  Unflatten: [
    [[0, [2.5]], 'each size'],
    [[0, 3], 'unflattenedSize'],
  ],
  CosineSimilarity: [[[{ eps: 'x' }], 'eps']],
  PairwiseDistance: [[[{ p: 'x' }], 'p']],
  LayerNorm: [
    [[-1], 'normalizedShape'],
    [[[2, -1]], 'normalizedShape'],
    [[undefined], 'normalizedShape'],
    [[4, { eps: Number.NaN }], 'eps'],
  ],
  RMSNorm: [
    [[-1], 'normalizedShape'],
    [[4, { eps: 'x' }], 'eps'],
  ],
  GroupNorm: [
    [[0, 4], 'numGroups'],
    [[-2, 4], 'numGroups'],
    [[3, 4], 'groups'],
    [[2, -4], 'numChannels'],
    [[2, 4, { eps: 'x' }], 'eps'],
  ],
  BatchNorm1d: [
    [[-1], 'numFeatures'],
    [[4, { momentum: 'a' }], 'momentum'],
    [[4, { eps: 'x' }], 'eps'],
  ],
  MultiheadAttention: [
    [[8, 3], 'heads'],
    [[8, 0], 'numHeads'],
    [[8, -2], 'numHeads'],
    [[0, 2], 'embedDim'],
    [[8, 2, { dropout: 2 }], 'dropout'],
    [[8, 2, { kdim: -1 }], 'kdim'],
  ],
  TransformerEncoderLayer: [
    [[8, 2, { activation: 'x' }], 'activation'],
    [[8, 2, { dropout: 3 }], 'dropout'],
    [[8, 2, { dimFeedforward: -4 }], 'dimFeedforward'],
    [[8, 3], 'heads'],
  ],
  TransformerDecoderLayer: [[[8, 2, { activation: null }], 'activation']],
  TransformerEncoder: [[[() => new nn.TransformerEncoderLayer(8, 2), -1], 'numLayers']],
  Transformer: [
    [[{ dModel: 8, nhead: 2, numEncoderLayers: 1.5 }], 'numLayers'],
    [[{ dModel: 8, nhead: 3 }], 'heads'],
  ],
  CrossEntropyLoss: [
    [[bad], 'reduction'],
    [[{ labelSmoothing: 2 }], 'labelSmoothing'],
    [[{ ignoreIndex: 'x' }], 'ignoreIndex'],
    [[{ weight: 3 }], 'weight'],
  ],
  ...Object.fromEntries(
    [
      'NLLLoss',
      'BCELoss',
      'BCEWithLogitsLoss',
      'L1Loss',
      'MarginRankingLoss',
      'CosineEmbeddingLoss',
    ].map((name) => [name, [[[bad], 'reduction']]]),
  ),
  MSELoss: [
    [[bad], 'reduction'],
    [['sum'], 'options'],
    [[{ reduction: 'batchmean' }], 'reduction'],
  ],
  SmoothL1Loss: [
    [[bad], 'reduction'],
    [[{ beta: -1 }], 'beta'],
  ],
  HuberLoss: [
    [[bad], 'reduction'],
    [[{ delta: 0 }], 'delta'],
  ],
  KLDivLoss: [[[bad], 'reduction']],
  TripletMarginLoss: [
    [[bad], 'reduction'],
    [[{ margin: 0 }], 'margin'],
    [[{ p: '2' }], 'p'],
  ],
  GELU: [[[{ approximate: 'x' }], 'approximate']],
  LeakyReLU: [[['a'], 'negativeSlope']],
  PReLU: [
    [[-1], 'numParameters'],
    [[2, { init: 'x' }], 'init'],
  ],
  ELU: [[['a'], 'alpha']],
  CELU: [[[0], 'alpha']],
  Hardtanh: [[[1, -1], 'maxVal']],
  Softshrink: [[[-1], 'lambd']],
  Threshold: [[[undefined, 1], 'threshold']],
  Softmax: [[[1.5], 'dim']],
  GLU: [[[1.5], 'dim']],
};

describe('the options of modules:', () => {
  for (const [name, list] of Object.entries(refused)) {
    it(`${name} refuses ${[...new Set(list.map(([, option]) => option))].join(', ')} out of range`, () => {
      for (const [args, option] of list) {
        assert.throws(
          () => new (classes[name] as Loose[string])(...args),
          (error: Error) =>
            error instanceof ArgumentError &&
            error.message.includes(option) &&
            !error.message.startsWith('empty'),
          `${name}(${args.map(String).join(', ')})`,
        );
      }
    });
  }

  it('KLDivLoss accepts its own reduction, and undefined counts as not given', () => {
    new nn.KLDivLoss({ reduction: 'batchmean' });
    assert.equal(
      new nn.HuberLoss({ delta: undefined as never })(tensor([1]), tensor([3])).item(),
      1.5,
    );
  });

  it('attention and batch norm refuse inputs of other shapes by name', () => {
    const attention = new nn.MultiheadAttention(8, 2);
    const x = ones([3, 1, 8]);
    assert.throws(() => attention(ones([3, 1, 7]), x, x), ShapeError);
    assert.throws(() => attention(x, ones([3, 8]), x), /got key of shape \[3, 8\]/);
    assert.throws(
      () => new nn.BatchNorm1d(3)(ones([2, 3, 4, 5])),
      /BatchNorm1d: expected shape \[N, 3\] or \[N, 3, L\]/,
    );
    assert.throws(() => new nn.BatchNorm1d(3)(ones([2, 4])), ShapeError);
  });

  it('initialisation and clipping refuse invalid ranges', () => {
    const p = new nn.Parameter(ones([2, 2]));
    const refusals: [() => unknown, RegExp][] = [
      [() => nn.init.uniform_(p, 2, 1), /\[a, b\) to be a range, got \[2, 1\]/],
      [() => nn.init.normal_(p, 0, -1), /std to be a finite number from 0, got -1/],
      [() => nn.init.truncNormal_(p, 0, Number.NaN), /std/],
      [() => nn.init.kaimingUniform_(p, { mode: 'fan' as never }), /mode/],
      [() => nn.init.kaimingNormal_(p, { nonlinearity: 'x' as never }), /nonlinearity/],
      [() => nn.utils.clipGradNorm_([p], Number.NaN), /maxNorm/],
      [() => nn.utils.clipGradValue_([p], '1' as never), /clipValue/],
    ];
    for (const [call, message] of refusals)
      assert.throws(
        call,
        (error: Error) => error instanceof ArgumentError && message.test(error.message),
      );
    assert.deepEqual(p.tolist(), [
      [1, 1],
      [1, 1],
    ]);
  });
});
