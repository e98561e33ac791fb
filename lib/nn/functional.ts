/** The `nn.functional` namespace: the computations of layers as functions of tensors. */

export { elu, gelu, leakyRelu, relu, sigmoid, silu, softplus, tanh } from '../ops/activation.js';
export {
  celu,
  glu,
  gumbelSoftmax,
  hardshrink,
  hardsigmoid,
  hardswish,
  hardtanh,
  logsigmoid,
  mish,
  prelu,
  relu6,
  selu,
  softmin,
  softshrink,
  softsign,
  tanhshrink,
  threshold,
} from '../ops/activation-composites.js';
export { addRmsNorm } from '../ops/add-rms-norm.js';
export { scaledDotProductAttention } from '../ops/attention.js';
export { embedding, oneHot } from '../ops/indexing.js';
export {
  binaryCrossEntropyWithLogits,
  crossEntropy,
  l1Loss,
  mseLoss,
  nllLoss,
} from '../ops/loss.js';
export {
  binaryCrossEntropy,
  cosineEmbeddingLoss,
  huberLoss,
  klDiv,
  marginRankingLoss,
  smoothL1Loss,
  tripletMarginLoss,
} from '../ops/loss-composites.js';
export { linear } from '../ops/matmul.js';
export { layerNorm, rmsNorm } from '../ops/norm.js';
export { batchNorm, groupNorm } from '../ops/norm-composites.js';
export { pad } from '../ops/padding.js';
export { bilinear, cosineSimilarity, normalize, pairwiseDistance } from '../ops/products.js';
export { dropout } from '../ops/random.js';
export { logSoftmax, softmax } from '../ops/softmax.js';
