/** The `nn.functional` namespace: the computations of layers as functions of tensors. */

export { elu, gelu, leakyRelu, relu, sigmoid, silu, softplus, tanh } from '../ops/activation.js';
export {
  hardshrink,
  hardsigmoid,
  hardswish,
  hardtanh,
  relu6,
  softshrink,
  threshold,
} from '../ops/activation-piecewise.js';
export {
  celu,
  glu,
  gumbelSoftmax,
  logsigmoid,
  mish,
  prelu,
  selu,
  softmin,
  softsign,
  tanhshrink,
} from '../ops/activation-variants.js';
export { addRmsNorm } from '../ops/add-rms-norm.js';
export { scaledDotProductAttention } from '../ops/attention.js';
export { batchNorm, groupNorm } from '../ops/batch-norm.js';
export { crossEntropy, nllLoss } from '../ops/cross-entropy.js';
export { cosineSimilarity, normalize, pairwiseDistance } from '../ops/distances.js';
export { dropout } from '../ops/dropout.js';
export { embedding, oneHot } from '../ops/embedding.js';
export { linear } from '../ops/linear.js';
export { binaryCrossEntropyWithLogits, l1Loss, mseLoss } from '../ops/loss.js';
export {
  binaryCrossEntropy,
  cosineEmbeddingLoss,
  huberLoss,
  klDiv,
  marginRankingLoss,
  smoothL1Loss,
  tripletMarginLoss,
} from '../ops/loss-variants.js';
export { layerNorm, rmsNorm } from '../ops/norm.js';
export { pad } from '../ops/padding.js';
export { bilinear } from '../ops/products.js';
export { logSoftmax, softmax } from '../ops/softmax.js';
