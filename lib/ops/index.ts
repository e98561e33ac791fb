/** The op table: importing this file defines every op and puts its methods on Tensor. */
export * from './activation.js';
export * from './attention.js';
export * from './comparison.js';
export { clone } from './copy.js';
export * from './einsum.js';
export type { NestedArray, TensorOptions } from './factories.js';
export { arange, empty, emptyLike, eye, full, fullLike, linspace, ones, onesLike, tensor, zeros, zerosLike } from './factories.js';
export * from './index-tensors.js';
export type { ScatterReduce } from './indexing.js';
export { embedding, gather, indexAdd, indexSelect, oneHot, scatter, scatterAdd } from './indexing.js';
export { cat, flip, repeat, roll, stack, tril, triu } from './join.js';
export * from './loss.js';
export * from './matmul.js';
export { layerNorm, rmsNorm } from './norm.js';
export type { TensorLike } from './operand.js';
export * from './pointwise-binary.js';
export * from './pointwise-unary.js';
export * from './random.js';
export type { NestedValues } from './read.js';

import './optimizer-steps.js';
import './read.js';

export type { Dims, ReduceOptions, VarianceOptions } from './reduce.js';
export { all, amax, amin, any, logsumexp, mean, norm, prod, std, sum, var, varMean } from './reduce.js';
export { cumprod, cumsum, logSoftmax, softmax } from './softmax.js';
export type { ValuesAndIndices } from './sort.js';
export { argmax, argmin, argsort, max, min, sort, topk } from './sort.js';
export { expand, expandAs, flatten, movedim, permute, reshape, squeeze, t, transpose, unflatten, unsqueeze, view } from './view.js';
export { addcdiv, addcmul, clamp, lerp, maskedFill, where } from './where.js';
export { asStrided, chunk, diagonal, narrow, select, slice, split, unbind, unfold } from './window.js';
