/** The op table: importing this file defines every op and puts its methods on Tensor. */
export * from './activation.js';
export * from './activation-piecewise.js';
export * from './activation-variants.js';
export { addRmsNorm } from './add-rms-norm.js';
export * from './aliases.js';
export * from './attention.js';
export * from './batch-norm.js';
export * from './comparison.js';
export { clone, type ToOptions } from './copy.js';
export * from './creation.js';
export {
  type CrossEntropyOptions,
  crossEntropy,
  type NllLossOptions,
  nllLoss,
} from './cross-entropy.js';
export * from './diagonals.js';
export * from './distances.js';
export * from './division.js';
export { dropout } from './dropout.js';
export * from './einsum.js';
export { embedding, oneHot } from './embedding.js';
export { empty, emptyLike } from './empty.js';
export * from './extremes.js';
export type { NestedArray, TensorOptions } from './factories.js';
export { eye, full, fullLike, ones, onesLike, zeros, zerosLike } from './factories.js';
export {
  type Float32MatmulPrecision,
  getFloat32MatmulPrecision,
  setFloat32MatmulPrecision,
} from './float32-precision.js';
export { tensor } from './from-values.js';
export * from './grids.js';
export * from './index-tensors.js';
export * from './index-variants.js';
export { gather, indexAdd, indexSelect } from './indexing.js';
export { cat, flip, repeat, roll, stack } from './join.js';
export { dot, linear, mv, outer } from './linear.js';
export { binaryCrossEntropyWithLogits, type LogitsLossOptions, l1Loss, mseLoss } from './loss.js';
export type { LossOptions, LossReduction } from './loss-checks.js';
export * from './loss-variants.js';
export { bmm, matmul, mm } from './matmul.js';
export { type AddProductOptions, addmm, baddbmm } from './matmul-add.js';
export * from './nonzero.js';
export { layerNorm, rmsNorm } from './norm.js';
export type { DtypeOption, TensorLike } from './operand.js';
export * from './padding.js';
export * from './pointwise-binary.js';
export * from './pointwise-unary.js';
export * from './pointwise-variants.js';
export * from './products.js';
export { normal, type RandomOptions, rand, randint, randn, randperm } from './random.js';
export { bernoulli, multinomial } from './random-choices.js';
export { randintLike, randLike, randnLike } from './random-like.js';
export { arange, linspace } from './ranges.js';
export type { NestedValues } from './read.js';
export * from './rearrange.js';
export * from './rounding.js';
export type { ScatterReduce } from './scatter.js';
export { scatter, scatterAdd } from './scatter.js';
export { type ScatterReduction, scatterReduce } from './scatter-reduce.js';
export { tril, triu } from './triangle.js';

import './optimizer-steps.js';
import './random-fills.js';
import './read.js';

export { clamp } from './clamp.js';
export { expand, expandAs } from './expand.js';
export { prod } from './prod.js';
export type { Dims, ReduceOptions } from './reduce.js';
export { all, amax, amin, any, logsumexp, mean, sum } from './reduce.js';
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
export { asStrided } from './strided.js';
export { movedim, permute, t, transpose } from './transpose.js';
export { std, type VarianceOptions, var, varMean } from './variance.js';
export { norm } from './vector-norm.js';
export { detach, flatten, reshape, squeeze, unflatten, unsqueeze, view } from './view.js';
export { addcdiv, addcmul, lerp, maskedFill, where } from './where.js';
export { diagonal, narrow, select, slice, unfold } from './window.js';

// For its methods: a declaration file keeps no import whose names it does not use.
import './pinned.js';
import './record-stream.js';
