/** The `nn.functional` namespace: the computations of layers as functions of tensors. */

export * from '../core/absent-names/functional.js';
export { elu, gelu, leakyRelu, relu, sigmoid, silu, softplus, tanh } from '../ops/activation.js';
export { addRmsNorm } from '../ops/add-rms-norm.js';
export { scaledDotProductAttention } from '../ops/attention.js';
export { batchNorm, groupNorm } from '../ops/batch-norm.js';
export { crossEntropy, nllLoss } from '../ops/cross-entropy.js';
export { cosineSimilarity, normalize, pairwiseDistance } from '../ops/distances.js';
export { dropout } from '../ops/dropout.js';
export { embedding, oneHot } from '../ops/embedding.js';
export { layerNorm } from '../ops/layer-norm.js';
export { linear } from '../ops/linear.js';
export {
  binaryCrossEntropy,
  binaryCrossEntropyWithLogits,
  huberLoss,
  klDiv,
  l1Loss,
  mseLoss,
  smoothL1Loss,
} from '../ops/loss.js';
export { cosineEmbeddingLoss, marginRankingLoss, tripletMarginLoss } from '../ops/margin-losses.js';
export { pad } from '../ops/padding.js';
export {
  hardshrink,
  hardsigmoid,
  hardswish,
  hardtanh,
  prelu,
  relu6,
  softshrink,
  threshold,
} from '../ops/piecewise-activations.js';
export { bilinear } from '../ops/products.js';
export { rmsNorm } from '../ops/rms-norm.js';
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
} from '../ops/smooth-activations.js';
export { logSoftmax, softmax } from '../ops/softmax.js';
