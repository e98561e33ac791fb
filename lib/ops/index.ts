/** The op table: importing this file defines every op and puts its methods on Tensor. */
export { ValuesAndIndices } from '../core/values-and-indices.js';
export * from './activation.js';
export { addRmsNorm } from './add-rms-norm.js';
export * from './aliases.js';
export { deg2rad, frac, positive, rad2deg, rsub } from './arithmetic.js';
export { asStrided } from './as-strided.js';
export * from './attention.js';
export { batchNorm, groupNorm } from './batch-norm.js';
export {
  atleast1d,
  atleast2d,
  atleast3d,
  broadcastShapes,
  broadcastTensors,
  broadcastTo,
  cartesianProd,
  meshgrid,
} from './broadcast.js';
export { clamp } from './clamp.js';
export * from './comparison.js';
export { clone, type ToOptions } from './copy.js';
export * from './creation.js';
export {
  type CrossEntropyOptions,
  crossEntropy,
  type NllLossOptions,
  nllLoss,
} from './cross-entropy.js';
export { diag, diagEmbed, diagflat } from './diagonals.js';
export { cdist, cosineSimilarity, dist, normalize, pairwiseDistance } from './distances.js';

import './fused-pointwise.js';

export { div, floorDivide, fmod, type RoundingMode, remainder } from './division.js';
export { dropout } from './dropout.js';
export * from './einsum.js';
export { embedding, oneHot } from './embedding.js';
export { expand, expandAs } from './expand.js';
export { clampMax, clampMin, fmax, fmin } from './extremes.js';
export {
  empty,
  emptyLike,
  eye,
  full,
  fullLike,
  type NestedArray,
  ones,
  onesLike,
  type TensorOptions,
  zeros,
  zerosLike,
} from './factories.js';
export {
  type Float32MatmulPrecision,
  getFloat32MatmulPrecision,
  setFloat32MatmulPrecision,
} from './float32-precision.js';
export {
  type ChunkCatOptions,
  chunkCat,
  foreachCopy_,
  type SplitWithSizesCopyOptions,
  splitWithSizesCopy,
} from './foreach-copy.js';
export { tensor } from './from-values.js';
export { indexAsync, maskedSelectAsync } from './index-async.js';
export { indexAdd, indexSelect } from './index-select.js';
export { type IndexEntry, index, indexPut, maskedSelect } from './index-tensors.js';
export { cat, flip, repeat, roll, stack } from './join.js';
export { layerNorm } from './layer-norm.js';
export { type AddProductOptions, addmm, baddbmm, linear } from './linear.js';
export { hypot, logaddexp, logaddexp2, logit, xlogy } from './logarithms.js';
export {
  type BinaryCrossEntropyOptions,
  binaryCrossEntropy,
  binaryCrossEntropyWithLogits,
  huberLoss,
  type KlDivOptions,
  klDiv,
  type LogitsLossOptions,
  l1Loss,
  mseLoss,
  smoothL1Loss,
} from './loss.js';
export type { LossOptions, LossReduction } from './loss-checks.js';
export {
  cosineEmbeddingLoss,
  type MarginOptions,
  marginRankingLoss,
  tripletMarginLoss,
} from './margin-losses.js';
export { bmm, dot, matmul, mm, mv, outer } from './matmul.js';
export { nonzero, nonzeroAsync } from './nonzero.js';
export type { DtypeOption, TensorLike } from './operand.js';
export * from './padding.js';
export { movedim, permute, t, transpose } from './permute.js';
export {
  hardshrink,
  hardsigmoid,
  hardswish,
  hardtanh,
  prelu,
  relu6,
  softshrink,
  threshold,
} from './piecewise-activations.js';
export { add, atan2, maximum, minimum, mul, pow, sub } from './pointwise-binary.js';
export { addcdiv, addcmul, lerp } from './pointwise-ternary.js';
export {
  abs,
  ceil,
  erf,
  erfc,
  exp,
  exp2,
  expm1,
  floor,
  isfinite,
  isinf,
  isnan,
  log,
  log1p,
  log2,
  log10,
  logicalNot,
  neg,
  type RoundOptions,
  reciprocal,
  round,
  rsqrt,
  sign,
  sqrt,
  square,
  trunc,
} from './pointwise-unary.js';
export { prod } from './prod.js';
export { addbmm, addmv, addr, bilinear, cross, inner, kron, tensordot, trace } from './products.js';
export {
  type Interpolation,
  kthvalue,
  median,
  type QuantileOptions,
  quantile,
} from './quantiles.js';
export type { RandomOptions } from './random.js';
export {
  normal,
  rand,
  randint,
  randintLike,
  randLike,
  randn,
  randnLike,
  randperm,
} from './random-factories.js';
export { arange, linspace } from './ranges.js';
export type { NestedValues } from './read.js';
export * from './rearrange.js';
export {
  all,
  amax,
  amin,
  any,
  type Dims,
  logsumexp,
  mean,
  type ReduceOptions,
  sum,
} from './reduce.js';
export { rmsNorm } from './rms-norm.js';
export { bernoulli, multinomial } from './sampling.js';
export { gather, type ScatterReduce, scatter, scatterAdd } from './scatter.js';
export { type ScatterReduction, scatterReduce } from './scatter-reduce.js';
export { bincount, bucketize, histc, isin, type SearchOptions, searchsorted } from './search.js';
export {
  celu,
  glu,
  gumbelSoftmax,
  logsigmoid,
  mish,
  selu,
  softmin,
  softsign,
  tanhshrink,
} from './smooth-activations.js';
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
} from './sort.js';
export { heaviside, isneginf, isposinf, nanToNum } from './special-values.js';
export { chunk, split, unbind } from './split.js';
export * from './split-stack.js';
export { aminmax, countNonzero, diff, nanmean, nansum, stdMean } from './statistics.js';
export { argwhere, indexCopy, indexFill, maskedScatter, take, takeAlongDim } from './take.js';
export { tril, trilIndices, triu, triuIndices } from './triangles.js';
export {
  acos,
  acosh,
  asin,
  asinh,
  atan,
  atanh,
  cos,
  cosh,
  sin,
  sinh,
  tan,
} from './trigonometry.js';
export {
  type UniqueConsecutiveOptions,
  type UniqueOptions,
  unique,
  uniqueConsecutive,
} from './unique.js';
export { std, type VarianceOptions, var, varMean } from './variance.js';
export { norm } from './vector-norm.js';
export {
  detach,
  flatten,
  reshape,
  squeeze,
  unflatten,
  unsqueeze,
  view,
} from './view.js';
export { maskedFill, where } from './where.js';
export { diagonal, narrow, select, slice, unfold } from './window.js';

// Exports the types for their methods, because a declaration file drops imports whose names it does
// not use.
import './capturable-steps.js';
import './optimizer-steps.js';
import './random-fills.js';
import './read.js';
import './pinned.js';
import './record-stream.js';
import './random.js';
import './fill.js';
