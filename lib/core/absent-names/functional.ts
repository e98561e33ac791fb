// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent } from '../absent.js';

const a0 = 'is not there yet: x.unfold(dim, size, step) and linear compute a convolution';
const a1 = 'is not there yet: x.unfold(dim, size, step) takes windows';
const a2 = 'is not there yet: x.unfold(dim, size, step) and amax(-1) compute it';
const a3 = 'is not there yet: x.unfold(dim, size, step) and mean(-1) compute it';
const a4 = 'is not there yet: x.mean([-2, -1]) averages whole images';
const a5 = 'is not there yet: x.amax([-2, -1]) is the maximum of whole images';
const a6 = 'is not there: call the method of the tensor, as x.relu_()';
const a7 = 'is not there: use nn.functional.leakyRelu';
const a8 = 'is not there yet: use groupNorm(x, channels), which is the same';
const a9 = 'is not there: use nn.functional.groupNorm';
const a10 = 'is not there yet: use nn.functional.dropout';
const a11 = 'is not there yet: use embedding, and sum(-2) or mean(-2) of its result';
const a12 = 'is not there yet: use cdist(x, x)';
const a13 = 'is not there yet: compute it with methods of tensors; backward differentiates them';
const a14 = 'is not there yet: unflatten, permute and flatten move the elements';
const a15 = 'is not there yet: x.repeatInterleave(2, -1).repeatInterleave(2, -2) doubles an image';
const a16 = 'is not there: use nn.MultiheadAttention or scaledDotProductAttention';

/** Not there. @deprecated @hidden */
export const conv1d = absent('nn.functional.conv1d', a0);
/** Not there. @deprecated @hidden */
export const conv2d = absent('nn.functional.conv2d', a0);
/** Not there. @deprecated @hidden */
export const conv3d = absent('nn.functional.conv3d', a0);
/** Not there. @deprecated @hidden */
export const convTranspose1d = absent('nn.functional.convTranspose1d', a0);
/** Not there. @deprecated @hidden */
export const convTranspose2d = absent('nn.functional.convTranspose2d', a0);
/** Not there. @deprecated @hidden */
export const convTranspose3d = absent('nn.functional.convTranspose3d', a0);
/** Not there. @deprecated @hidden */
export const unfold = absent('nn.functional.unfold', a1);
/** Not there. @deprecated @hidden */
export const fold = absent('nn.functional.fold', a1);
/** Not there. @deprecated @hidden */
export const maxPool1d = absent('nn.functional.maxPool1d', a2);
/** Not there. @deprecated @hidden */
export const maxPool2d = absent('nn.functional.maxPool2d', a2);
/** Not there. @deprecated @hidden */
export const maxPool3d = absent('nn.functional.maxPool3d', a2);
/** Not there. @deprecated @hidden */
export const maxUnpool1d = absent('nn.functional.maxUnpool1d', a2);
/** Not there. @deprecated @hidden */
export const maxUnpool2d = absent('nn.functional.maxUnpool2d', a2);
/** Not there. @deprecated @hidden */
export const maxUnpool3d = absent('nn.functional.maxUnpool3d', a2);
/** Not there. @deprecated @hidden */
export const fractionalMaxPool2d = absent('nn.functional.fractionalMaxPool2d', a2);
/** Not there. @deprecated @hidden */
export const fractionalMaxPool3d = absent('nn.functional.fractionalMaxPool3d', a2);
/** Not there. @deprecated @hidden */
export const avgPool1d = absent('nn.functional.avgPool1d', a3);
/** Not there. @deprecated @hidden */
export const avgPool2d = absent('nn.functional.avgPool2d', a3);
/** Not there. @deprecated @hidden */
export const avgPool3d = absent('nn.functional.avgPool3d', a3);
/** Not there. @deprecated @hidden */
export const lpPool1d = absent('nn.functional.lpPool1d', a3);
/** Not there. @deprecated @hidden */
export const lpPool2d = absent('nn.functional.lpPool2d', a3);
/** Not there. @deprecated @hidden */
export const lpPool3d = absent('nn.functional.lpPool3d', a3);
/** Not there. @deprecated @hidden */
export const adaptiveAvgPool1d = absent('nn.functional.adaptiveAvgPool1d', a4);
/** Not there. @deprecated @hidden */
export const adaptiveAvgPool2d = absent('nn.functional.adaptiveAvgPool2d', a4);
/** Not there. @deprecated @hidden */
export const adaptiveAvgPool3d = absent('nn.functional.adaptiveAvgPool3d', a4);
/** Not there. @deprecated @hidden */
export const adaptiveMaxPool1d = absent('nn.functional.adaptiveMaxPool1d', a5);
/** Not there. @deprecated @hidden */
export const adaptiveMaxPool2d = absent('nn.functional.adaptiveMaxPool2d', a5);
/** Not there. @deprecated @hidden */
export const adaptiveMaxPool3d = absent('nn.functional.adaptiveMaxPool3d', a5);
/** Not there. @deprecated @hidden */
export const threshold_ = absent('nn.functional.threshold_', a6);
/** Not there. @deprecated @hidden */
export const relu_ = absent('nn.functional.relu_', a6);
/** Not there. @deprecated @hidden */
export const hardtanh_ = absent('nn.functional.hardtanh_', a6);
/** Not there. @deprecated @hidden */
export const elu_ = absent('nn.functional.elu_', a6);
/** Not there. @deprecated @hidden */
export const leakyRelu_ = absent('nn.functional.leakyRelu_', a6);
/** Not there. @deprecated @hidden */
export const rrelu = absent('nn.functional.rrelu', a7);
/** Not there. @deprecated @hidden */
export const rrelu_ = absent('nn.functional.rrelu_', a7);
/** Not there. @deprecated @hidden */
export const instanceNorm = absent('nn.functional.instanceNorm', a8);
/** Not there. @deprecated @hidden */
export const localResponseNorm = absent('nn.functional.localResponseNorm', a9);
/** Not there. @deprecated @hidden */
export const dropout1d = absent('nn.functional.dropout1d', a10);
/** Not there. @deprecated @hidden */
export const dropout2d = absent('nn.functional.dropout2d', a10);
/** Not there. @deprecated @hidden */
export const dropout3d = absent('nn.functional.dropout3d', a10);
/** Not there. @deprecated @hidden */
export const alphaDropout = absent('nn.functional.alphaDropout', a10);
/** Not there. @deprecated @hidden */
export const featureAlphaDropout = absent('nn.functional.featureAlphaDropout', a10);
/** Not there. @deprecated @hidden */
export const embeddingBag = absent('nn.functional.embeddingBag', a11);
/** Not there. @deprecated @hidden */
export const pdist = absent('nn.functional.pdist', a12);
/** Not there. @deprecated @hidden */
export const ctcLoss = absent('nn.functional.ctcLoss', a13);
/** Not there. @deprecated @hidden */
export const poissonNllLoss = absent('nn.functional.poissonNllLoss', a13);
/** Not there. @deprecated @hidden */
export const gaussianNllLoss = absent('nn.functional.gaussianNllLoss', a13);
/** Not there. @deprecated @hidden */
export const hingeEmbeddingLoss = absent('nn.functional.hingeEmbeddingLoss', a13);
/** Not there. @deprecated @hidden */
export const multilabelMarginLoss = absent('nn.functional.multilabelMarginLoss', a13);
/** Not there. @deprecated @hidden */
export const multilabelSoftMarginLoss = absent('nn.functional.multilabelSoftMarginLoss', a13);
/** Not there. @deprecated @hidden */
export const multiMarginLoss = absent('nn.functional.multiMarginLoss', a13);
/** Not there. @deprecated @hidden */
export const softMarginLoss = absent('nn.functional.softMarginLoss', a13);
/** Not there. @deprecated @hidden */
export const tripletMarginWithDistanceLoss = absent('nn.functional.tripletMarginWithDistanceLoss', a13);
/** Not there. @deprecated @hidden */
export const pixelShuffle = absent('nn.functional.pixelShuffle', a14);
/** Not there. @deprecated @hidden */
export const pixelUnshuffle = absent('nn.functional.pixelUnshuffle', a14);
/** Not there. @deprecated @hidden */
export const channelShuffle = absent('nn.functional.channelShuffle', a14);
/** Not there. @deprecated @hidden */
export const interpolate = absent('nn.functional.interpolate', a15);
/** Not there. @deprecated @hidden */
export const upsample = absent('nn.functional.upsample', a15);
/** Not there. @deprecated @hidden */
export const upsampleNearest = absent('nn.functional.upsampleNearest', a15);
/** Not there. @deprecated @hidden */
export const upsampleBilinear = absent('nn.functional.upsampleBilinear', a15);
/** Not there. @deprecated @hidden */
export const gridSample = absent('nn.functional.gridSample', a15);
/** Not there. @deprecated @hidden */
export const affineGrid = absent('nn.functional.affineGrid', a15);
/** Not there. @deprecated @hidden */
export const multiHeadAttentionForward = absent('nn.functional.multiHeadAttentionForward', a16);
