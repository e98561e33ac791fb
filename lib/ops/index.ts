/** The op table: importing this file defines every op and puts its methods on Tensor. */
export * from './activation.js';
export * from './activation-composites.js';
export { addRmsNorm } from './add-rms-norm.js';
export * from './aliases.js';
export * from './attention.js';
export * from './comparison.js';
export { clone, type ToOptions } from './copy.js';
export * from './creation.js';
export * from './einsum.js';
export type { NestedArray, TensorOptions } from './factories.js';
export {
  arange,
  empty,
  emptyLike,
  eye,
  full,
  fullLike,
  linspace,
  ones,
  onesLike,
  zeros,
  zerosLike,
} from './factories.js';
export {
  type Float32MatmulPrecision,
  getFloat32MatmulPrecision,
  setFloat32MatmulPrecision,
} from './float32-precision.js';
export { tensor } from './from-values.js';
export * from './index-composites.js';
export * from './index-tensors.js';
export type { ScatterReduce } from './indexing.js';
export {
  embedding,
  gather,
  indexAdd,
  indexSelect,
  oneHot,
  scatter,
  scatterAdd,
} from './indexing.js';
export { cat, flip, repeat, roll, stack, tril, triu } from './join.js';
export {
  binaryCrossEntropyWithLogits,
  type CrossEntropyOptions,
  crossEntropy,
  type LogitsLossOptions,
  l1Loss,
  mseLoss,
  type NllLossOptions,
  nllLoss,
} from './loss.js';
export type { LossOptions, LossReduction } from './loss-checks.js';
export * from './loss-composites.js';
export {
  type AddProductOptions,
  addmm,
  baddbmm,
  bmm,
  dot,
  linear,
  matmul,
  mm,
  mv,
  outer,
} from './matmul.js';
export { layerNorm, rmsNorm } from './norm.js';
export * from './norm-composites.js';
export type { DtypeOption, TensorLike } from './operand.js';
export * from './padding.js';
export * from './pointwise-binary.js';
export * from './pointwise-composites.js';
export * from './pointwise-unary.js';
export * from './products.js';
export {
  bernoulli,
  dropout,
  multinomial,
  normal,
  type RandomOptions,
  rand,
  randint,
  randintLike,
  randLike,
  randn,
  randnLike,
  randperm,
} from './random.js';
export type { NestedValues } from './read.js';
export * from './rearrange.js';
export { type ScatterReduction, scatterReduce } from './scatter-reduce.js';

import './optimizer-steps.js';
import './random-fills.js';
import './read.js';

export type { Dims, ReduceOptions } from './reduce.js';
export { all, amax, amin, any, logsumexp, mean, prod, sum } from './reduce.js';
export * from './search.js';
export { cumprod, cumsum, logSoftmax, softmax } from './softmax.js';
export {
  argmax,
  argmin,
  argsort,
  max,
  min,
  type SortOptions,
  sort,
  type TopkOptions,
  topk,
  ValuesAndIndices,
} from './sort.js';
export { chunk, split, unbind } from './split.js';
export * from './split-stack.js';
export * from './statistics.js';
export { std, type VarianceOptions, var, varMean } from './variance.js';
export { norm } from './vector-norm.js';
export {
  detach,
  expand,
  expandAs,
  flatten,
  movedim,
  permute,
  reshape,
  squeeze,
  t,
  transpose,
  unflatten,
  unsqueeze,
  view,
} from './view.js';
export { addcdiv, addcmul, clamp, lerp, maskedFill, where } from './where.js';
export { asStrided, diagonal, narrow, select, slice, unfold } from './window.js';

// For its methods: a declaration file keeps no import whose names it does not use.
import './pinned.js';
import './record-stream.js';
