/**
 * Arguments of modules, losses, optimizers and schedules by position, in PyTorch's order, beside
 * the same as options.
 */
import assert from 'node:assert/strict';
import { allDeclarations } from '../../lib/core/signature.js';
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

/** PyTorch 2's parameters, in its order. */
const inPyTorch: Record<string, string> = {
  Linear: 'in_features, out_features, bias, device, dtype',
  Bilinear: 'in1_features, in2_features, out_features, bias, device, dtype',
  Embedding:
    'num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, _freeze, device, dtype',
  fromPretrained:
    'embeddings, freeze, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse',
  Dropout: 'p, inplace',
  Flatten: 'start_dim, end_dim',
  Unflatten: 'dim, unflattened_size',
  CosineSimilarity: 'dim, eps',
  PairwiseDistance: 'p, eps, keepdim',
  LayerNorm: 'normalized_shape, eps, elementwise_affine, bias, device, dtype',
  RMSNorm: 'normalized_shape, eps, elementwise_affine, device, dtype',
  GroupNorm: 'num_groups, num_channels, eps, affine, device, dtype',
  BatchNorm1d: 'num_features, eps, momentum, affine, track_running_stats, device, dtype',
  MultiheadAttention:
    'embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype',
  TransformerEncoderLayer:
    'd_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype',
  TransformerDecoderLayer:
    'd_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype',
  TransformerEncoder: 'encoder_layer, num_layers, norm, enable_nested_tensor, mask_check',
  TransformerDecoder: 'decoder_layer, num_layers, norm',
  Transformer:
    'd_model, nhead, num_encoder_layers, num_decoder_layers, dim_feedforward, dropout, activation, custom_encoder, custom_decoder, layer_norm_eps, batch_first, norm_first, bias, device, dtype',
  CrossEntropyLoss: 'weight, size_average, ignore_index, reduce, reduction, label_smoothing',
  NLLLoss: 'weight, size_average, ignore_index, reduce, reduction',
  BCELoss: 'weight, size_average, reduce, reduction',
  BCEWithLogitsLoss: 'weight, size_average, reduce, reduction, pos_weight',
  MSELoss: 'size_average, reduce, reduction',
  L1Loss: 'size_average, reduce, reduction',
  SmoothL1Loss: 'size_average, reduce, reduction, beta',
  HuberLoss: 'reduction, delta',
  KLDivLoss: 'size_average, reduce, reduction, log_target',
  MarginRankingLoss: 'margin, size_average, reduce, reduction',
  CosineEmbeddingLoss: 'margin, size_average, reduce, reduction',
  TripletMarginLoss: 'margin, p, eps, swap, size_average, reduce, reduction',
  ReLU: 'inplace',
  ReLU6: 'inplace',
  SELU: 'inplace',
  SiLU: 'inplace',
  Mish: 'inplace',
  Hardsigmoid: 'inplace',
  Hardswish: 'inplace',
  LeakyReLU: 'negative_slope, inplace',
  PReLU: 'num_parameters, init, device, dtype',
  ELU: 'alpha, inplace',
  CELU: 'alpha, inplace',
  GELU: 'approximate',
  Hardtanh: 'min_val, max_val, inplace, min_value, max_value',
  Softplus: 'beta, threshold',
  Hardshrink: 'lambd',
  Softshrink: 'lambd',
  Threshold: 'threshold, value, inplace',
  GLU: 'dim',
  Softmax: 'dim',
  Softmin: 'dim',
  LogSoftmax: 'dim',
  SGD: 'params, lr, momentum, dampening, weight_decay, nesterov, *, maximize, foreach, differentiable, fused',
  Adam: 'params, lr, betas, eps, weight_decay, amsgrad, *, foreach, maximize, capturable, differentiable, fused, decoupled_weight_decay',
  AdamW:
    'params, lr, betas, eps, weight_decay, amsgrad, *, maximize, foreach, capturable, differentiable, fused',
  LambdaLR: 'optimizer, lr_lambda, last_epoch',
  MultiplicativeLR: 'optimizer, lr_lambda, last_epoch',
  StepLR: 'optimizer, step_size, gamma, last_epoch',
  MultiStepLR: 'optimizer, milestones, gamma, last_epoch',
  ConstantLR: 'optimizer, factor, total_iters, last_epoch',
  LinearLR: 'optimizer, start_factor, end_factor, total_iters, last_epoch',
  ExponentialLR: 'optimizer, gamma, last_epoch',
  PolynomialLR: 'optimizer, total_iters, power, last_epoch',
  CosineAnnealingLR: 'optimizer, T_max, eta_min, last_epoch',
  CosineAnnealingWarmRestarts: 'optimizer, T_0, T_mult, eta_min, last_epoch',
  OneCycleLR:
    'optimizer, max_lr, total_steps, epochs, steps_per_epoch, pct_start, anneal_strategy, cycle_momentum, base_momentum, max_momentum, div_factor, final_div_factor, three_phase, last_epoch',
  CyclicLR:
    'optimizer, base_lr, max_lr, step_size_up, step_size_down, mode, gamma, scale_fn, scale_mode, cycle_momentum, base_momentum, max_momentum, last_epoch',
  SequentialLR: 'optimizer, schedulers, milestones, last_epoch',
  ChainedScheduler: 'schedulers, optimizer',
  ReduceLROnPlateau:
    'optimizer, mode, factor, patience, threshold, threshold_mode, cooldown, min_lr, eps',
  clipGradNorm_: 'parameters, max_norm, norm_type, error_if_nonfinite, foreach',
  clipGradValue_: 'parameters, clip_value, foreach',
  getTotalNorm: 'tensors, norm_type, error_if_nonfinite, foreach',
  xavierUniform_: 'tensor, gain, generator',
  xavierNormal_: 'tensor, gain, generator',
  kaimingUniform_: 'tensor, a, mode, nonlinearity, generator',
  kaimingNormal_: 'tensor, a, mode, nonlinearity, generator',
  orthogonal_: 'tensor, gain, generator',
  padSequence: 'sequences, batch_first, padding_value, padding_side',
};
/** Calls of modules are declared under the names of the modules. */
const calls: Record<string, string> = {
  MultiheadAttention:
    'query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal',
  TransformerEncoderLayer: 'src, src_mask, src_key_padding_mask, is_causal',
  TransformerDecoderLayer:
    'tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal, memory_is_causal',
  TransformerEncoder: 'src, mask, src_key_padding_mask, is_causal',
  TransformerDecoder:
    'tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal, memory_is_causal',
  Transformer:
    'src, tgt, src_mask, tgt_mask, memory_mask, src_key_padding_mask, tgt_key_padding_mask, memory_key_padding_mask, src_is_causal, tgt_is_causal, memory_is_causal',
};
const camel = (text: string): string =>
  text.replace(
    /([a-z0-9T])_([a-z0-9])/gi,
    (_, before: string, letter: string) => before + letter.toUpperCase(),
  );
const listOf = (text: string): string[] => text.split(', ').map(camel);
/** The encoder takes the layer's name, too. */
const besides = ['srcMask'];

describe('the order of arguments', () => {
  for (const [name, text] of [...Object.entries(inPyTorch), ...Object.entries(calls)]) {
    it(`is PyTorch's, and no name is ours alone, in ${name}(${text})`, () => {
      const theirs = listOf(text);
      const [first] = theirs;
      const declared =
        allDeclarations().find(
          (each) => each.name === name && each.positional.concat(each.keywordOnly)[0] === first,
        ) ?? allDeclarations().find((each) => each.name === name);
      assert.ok(declared, `${name} is not declared`);
      const last = theirs.includes('*') ? theirs.indexOf('*') : theirs.length;
      assert.deepEqual(
        declared.positional,
        theirs.slice(0, Math.min(last, declared.positional.length)),
      );
      for (const option of declared.keywordOnly)
        assert.ok(theirs.includes(option) || besides.includes(option), `PyTorch has no ${option}`);
    });
  }
});

type Loose = Record<string, new (...args: unknown[]) => { toString(): string }>;
const pair = (a: () => unknown, b: () => unknown): [() => unknown, () => unknown] => [a, b];
const weight = tensor([1, 2, 3]);
const p = (): nn.Parameter[] => [new nn.Parameter(tensor([1, 2]))];
const sgd = (): optim.SGD => new optim.SGD(p(), { lr: 1, momentum: 0.5 });
const { lrScheduler: S } = optim;

/** A call by position and the same with options: what both make is equal. */
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

describe('nn.Dropout with inplace', () => {
  it('overwrites its input in training, and gradients pass through the kept elements', () => {
    const layer = new nn.Dropout({ p: 0.5, inplace: true });
    const x = ones([64]);
    assert.equal(layer(x), x);
    assert.deepEqual(new Set(x.tolist() as number[]), new Set([0, 2]));
    const w = ones([64]).requiresGrad_();
    const y = w.mul(1);
    assert.equal(layer(y), y);
    y.sum().backward();
    assert.deepEqual(w.grad?.tolist(), y.tolist());
    assert.throws(() => layer(w), /leaf/);
    const z = ones([4]);
    assert.equal(layer.eval()(z), z);
    assert.deepEqual(z.tolist(), [1, 1, 1, 1]);
    assert.equal(String(layer), 'Dropout(p=0.5, inplace=true)');
  });

  it('is refused unless it is a boolean', () => {
    assert.throws(
      () => new nn.Dropout({ p: 0.1, inplace: 1 as never }),
      /Dropout: expected inplace to be true or false, got 1/,
    );
    assert.throws(
      () => new nn.Dropout(0.1, { inPlace: true } as never),
      /there is no option "inPlace"; options are p, inplace/,
    );
  });
});
