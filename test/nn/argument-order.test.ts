/** The order of arguments of modules, losses, optimizers and schedules is PyTorch's. */
import assert from 'node:assert/strict';
import { allDeclarations } from '../../lib/core/signature.js';

/** PyTorch 2's parameters, in its order. */
const inPyTorch: Record<string, string> = {
  Linear: 'in_features, out_features, bias, device, dtype',
  Bilinear: 'in1_features, in2_features, out_features, bias, device, dtype',
  Embedding:
    'num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, ' +
    'sparse, _weight, _freeze, device, dtype',
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
    'embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, ' +
    'batch_first, device, dtype',
  TransformerEncoderLayer:
    'd_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, ' +
    'norm_first, bias, device, dtype',
  TransformerDecoderLayer:
    'd_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, ' +
    'norm_first, bias, device, dtype',
  TransformerEncoder: 'encoder_layer, num_layers, norm, enable_nested_tensor, mask_check',
  TransformerDecoder: 'decoder_layer, num_layers, norm',
  Transformer:
    'd_model, nhead, num_encoder_layers, num_decoder_layers, dim_feedforward, dropout, ' +
    'activation, custom_encoder, custom_decoder, layer_norm_eps, batch_first, norm_first, ' +
    'bias, device, dtype',
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
  SGD:
    'params, lr, momentum, dampening, weight_decay, nesterov, *, maximize, foreach, ' +
    'differentiable, fused',
  Adam:
    'params, lr, betas, eps, weight_decay, amsgrad, *, foreach, maximize, capturable, ' +
    'differentiable, fused, decoupled_weight_decay',
  AdamW:
    'params, lr, betas, eps, weight_decay, amsgrad, *, maximize, foreach, capturable, ' +
    'differentiable, fused',
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
    'optimizer, max_lr, total_steps, epochs, steps_per_epoch, pct_start, anneal_strategy, ' +
    'cycle_momentum, base_momentum, max_momentum, div_factor, final_div_factor, three_phase, ' +
    'last_epoch',
  CyclicLR:
    'optimizer, base_lr, max_lr, step_size_up, step_size_down, mode, gamma, scale_fn, ' +
    'scale_mode, cycle_momentum, base_momentum, max_momentum, last_epoch',
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
    'tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, ' +
    'tgt_is_causal, memory_is_causal',
  TransformerEncoder: 'src, mask, src_key_padding_mask, is_causal',
  TransformerDecoder:
    'tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, ' +
    'tgt_is_causal, memory_is_causal',
  Transformer:
    'src, tgt, src_mask, tgt_mask, memory_mask, src_key_padding_mask, tgt_key_padding_mask, ' +
    'memory_key_padding_mask, src_is_causal, tgt_is_causal, memory_is_causal',
};
const camel = (text: string): string =>
  text.replace(
    /([a-z0-9T])_([a-z0-9])/gi,
    (_, before: string, letter: string) => before + letter.toUpperCase(),
  );
const listOf = (text: string): string[] => text.split(', ').map(camel);
/**
 * TransformerEncoder also accepts the layer's name for its mask. SGD counts steps if it is
 * capturable, since a graph cannot decide whether momentum begins.
 */
const besides = ['srcMask', 'capturable'];

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
