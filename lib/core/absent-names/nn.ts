// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent, absentNamespace } from '../absent.js';

const a0 = 'is not there yet: x.unfold(dim, size, step) and linear compute a convolution';
const a1 = 'is not there yet: x.unfold(dim, size, step) takes windows';
const a2 = 'is not there yet: x.unfold(dim, size, step) and amax(-1) compute it';
const a3 = 'is not there yet: x.unfold(dim, size, step) and mean(-1) compute it';
const a4 = 'is not there yet: x.mean([-2, -1]) averages whole images';
const a5 = 'is not there yet: x.amax([-2, -1]) is the maximum of whole images';
const a6 = 'is not there: use nn.functional.pad(x, pad, { mode, value }) in forward';
const a7 = 'is not there: use nn.LeakyReLU, which it is in evaluation';
const a8 = 'is not there: use new nn.Softmax(-3)';
const a9 = 'is not there yet: use nn.Linear and nn.CrossEntropyLoss';
const a10 = 'is not there yet: use nn.BatchNorm1d on x.flatten(2)';
const a11 = 'is not there yet: use nn.GroupNorm or nn.LayerNorm, which no other rank changes';
const a12 = 'is not there yet: use new nn.GroupNorm(channels, channels), which is the same';
const a13 = 'is not there: use nn.GroupNorm';
const a14 = 'is not there yet: write the recurrence with nn.Linear, or use nn.TransformerEncoder';
const a15 = 'is not there: give nn.Linear the size of its input';
const a16 = 'is not there yet: use nn.Dropout';
const a17 = 'is not there yet: use nn.Embedding, and sum(-2) or mean(-2) of its result';
const a18 = 'is not there: use nn.NLLLoss';
const a19 = 'is not there yet: use nn.TripletMarginLoss, or compute the distances';
const a20 = 'is not there yet: compute it with methods of tensors; backward differentiates them';
const a21 = 'is not there yet: unflatten, permute and flatten move the elements';
const a22 = 'is not there yet: x.repeatInterleave(2, -1).repeatInterleave(2, -2) doubles an image';
const a23 = "is not there: import DistributedDataParallel from 'shardwise/distributed'";
const a24 = 'is not there: call this.registerBuffer(name, tensor) in the module';
const a25 = "is not there: make the module on 'meta' with withDevice, then call toEmpty(device)";

/** Not there. @deprecated @hidden */
export const Conv1d = absent('nn.Conv1d', a0);
/** Not there. @deprecated @hidden */
export const Conv2d = absent('nn.Conv2d', a0);
/** Not there. @deprecated @hidden */
export const Conv3d = absent('nn.Conv3d', a0);
/** Not there. @deprecated @hidden */
export const ConvTranspose1d = absent('nn.ConvTranspose1d', a0);
/** Not there. @deprecated @hidden */
export const ConvTranspose2d = absent('nn.ConvTranspose2d', a0);
/** Not there. @deprecated @hidden */
export const ConvTranspose3d = absent('nn.ConvTranspose3d', a0);
/** Not there. @deprecated @hidden */
export const LazyConv1d = absent('nn.LazyConv1d', a0);
/** Not there. @deprecated @hidden */
export const LazyConv2d = absent('nn.LazyConv2d', a0);
/** Not there. @deprecated @hidden */
export const LazyConv3d = absent('nn.LazyConv3d', a0);
/** Not there. @deprecated @hidden */
export const Unfold = absent('nn.Unfold', a1);
/** Not there. @deprecated @hidden */
export const Fold = absent('nn.Fold', a1);
/** Not there. @deprecated @hidden */
export const MaxPool1d = absent('nn.MaxPool1d', a2);
/** Not there. @deprecated @hidden */
export const MaxPool2d = absent('nn.MaxPool2d', a2);
/** Not there. @deprecated @hidden */
export const MaxPool3d = absent('nn.MaxPool3d', a2);
/** Not there. @deprecated @hidden */
export const MaxUnpool1d = absent('nn.MaxUnpool1d', a2);
/** Not there. @deprecated @hidden */
export const MaxUnpool2d = absent('nn.MaxUnpool2d', a2);
/** Not there. @deprecated @hidden */
export const MaxUnpool3d = absent('nn.MaxUnpool3d', a2);
/** Not there. @deprecated @hidden */
export const FractionalMaxPool2d = absent('nn.FractionalMaxPool2d', a2);
/** Not there. @deprecated @hidden */
export const FractionalMaxPool3d = absent('nn.FractionalMaxPool3d', a2);
/** Not there. @deprecated @hidden */
export const AvgPool1d = absent('nn.AvgPool1d', a3);
/** Not there. @deprecated @hidden */
export const AvgPool2d = absent('nn.AvgPool2d', a3);
/** Not there. @deprecated @hidden */
export const AvgPool3d = absent('nn.AvgPool3d', a3);
/** Not there. @deprecated @hidden */
export const LPPool1d = absent('nn.LPPool1d', a3);
/** Not there. @deprecated @hidden */
export const LPPool2d = absent('nn.LPPool2d', a3);
/** Not there. @deprecated @hidden */
export const LPPool3d = absent('nn.LPPool3d', a3);
/** Not there. @deprecated @hidden */
export const AdaptiveAvgPool1d = absent('nn.AdaptiveAvgPool1d', a4);
/** Not there. @deprecated @hidden */
export const AdaptiveAvgPool2d = absent('nn.AdaptiveAvgPool2d', a4);
/** Not there. @deprecated @hidden */
export const AdaptiveAvgPool3d = absent('nn.AdaptiveAvgPool3d', a4);
/** Not there. @deprecated @hidden */
export const AdaptiveMaxPool1d = absent('nn.AdaptiveMaxPool1d', a5);
/** Not there. @deprecated @hidden */
export const AdaptiveMaxPool2d = absent('nn.AdaptiveMaxPool2d', a5);
/** Not there. @deprecated @hidden */
export const AdaptiveMaxPool3d = absent('nn.AdaptiveMaxPool3d', a5);
/** Not there. @deprecated @hidden */
export const ReflectionPad1d = absent('nn.ReflectionPad1d', a6);
/** Not there. @deprecated @hidden */
export const ReflectionPad2d = absent('nn.ReflectionPad2d', a6);
/** Not there. @deprecated @hidden */
export const ReflectionPad3d = absent('nn.ReflectionPad3d', a6);
/** Not there. @deprecated @hidden */
export const ReplicationPad1d = absent('nn.ReplicationPad1d', a6);
/** Not there. @deprecated @hidden */
export const ReplicationPad2d = absent('nn.ReplicationPad2d', a6);
/** Not there. @deprecated @hidden */
export const ReplicationPad3d = absent('nn.ReplicationPad3d', a6);
/** Not there. @deprecated @hidden */
export const ZeroPad1d = absent('nn.ZeroPad1d', a6);
/** Not there. @deprecated @hidden */
export const ZeroPad2d = absent('nn.ZeroPad2d', a6);
/** Not there. @deprecated @hidden */
export const ZeroPad3d = absent('nn.ZeroPad3d', a6);
/** Not there. @deprecated @hidden */
export const ConstantPad1d = absent('nn.ConstantPad1d', a6);
/** Not there. @deprecated @hidden */
export const ConstantPad2d = absent('nn.ConstantPad2d', a6);
/** Not there. @deprecated @hidden */
export const ConstantPad3d = absent('nn.ConstantPad3d', a6);
/** Not there. @deprecated @hidden */
export const CircularPad1d = absent('nn.CircularPad1d', a6);
/** Not there. @deprecated @hidden */
export const CircularPad2d = absent('nn.CircularPad2d', a6);
/** Not there. @deprecated @hidden */
export const CircularPad3d = absent('nn.CircularPad3d', a6);
/** Not there. @deprecated @hidden */
export const RReLU = absent('nn.RReLU', a7);
/** Not there. @deprecated @hidden */
export const Softmax2d = absent('nn.Softmax2d', a8);
/** Not there. @deprecated @hidden */
export const AdaptiveLogSoftmaxWithLoss = absent('nn.AdaptiveLogSoftmaxWithLoss', a9);
/** Not there. @deprecated @hidden */
export const BatchNorm2d = absent('nn.BatchNorm2d', a10);
/** Not there. @deprecated @hidden */
export const BatchNorm3d = absent('nn.BatchNorm3d', a10);
/** Not there. @deprecated @hidden */
export const LazyBatchNorm1d = absent('nn.LazyBatchNorm1d', a10);
/** Not there. @deprecated @hidden */
export const LazyBatchNorm2d = absent('nn.LazyBatchNorm2d', a10);
/** Not there. @deprecated @hidden */
export const LazyBatchNorm3d = absent('nn.LazyBatchNorm3d', a10);
/** Not there. @deprecated @hidden */
export const SyncBatchNorm = absent('nn.SyncBatchNorm', a11);
/** Not there. @deprecated @hidden */
export const InstanceNorm1d = absent('nn.InstanceNorm1d', a12);
/** Not there. @deprecated @hidden */
export const InstanceNorm2d = absent('nn.InstanceNorm2d', a12);
/** Not there. @deprecated @hidden */
export const InstanceNorm3d = absent('nn.InstanceNorm3d', a12);
/** Not there. @deprecated @hidden */
export const LazyInstanceNorm1d = absent('nn.LazyInstanceNorm1d', a12);
/** Not there. @deprecated @hidden */
export const LazyInstanceNorm2d = absent('nn.LazyInstanceNorm2d', a12);
/** Not there. @deprecated @hidden */
export const LazyInstanceNorm3d = absent('nn.LazyInstanceNorm3d', a12);
/** Not there. @deprecated @hidden */
export const LocalResponseNorm = absent('nn.LocalResponseNorm', a13);
/** Not there. @deprecated @hidden */
export const RNNBase = absent('nn.RNNBase', a14);
/** Not there. @deprecated @hidden */
export const RNN = absent('nn.RNN', a14);
/** Not there. @deprecated @hidden */
export const LSTM = absent('nn.LSTM', a14);
/** Not there. @deprecated @hidden */
export const GRU = absent('nn.GRU', a14);
/** Not there. @deprecated @hidden */
export const RNNCell = absent('nn.RNNCell', a14);
/** Not there. @deprecated @hidden */
export const LSTMCell = absent('nn.LSTMCell', a14);
/** Not there. @deprecated @hidden */
export const GRUCell = absent('nn.GRUCell', a14);
/** Not there. @deprecated @hidden */
export const LazyLinear = absent('nn.LazyLinear', a15);
/** Not there. @deprecated @hidden */
export const Dropout1d = absent('nn.Dropout1d', a16);
/** Not there. @deprecated @hidden */
export const Dropout2d = absent('nn.Dropout2d', a16);
/** Not there. @deprecated @hidden */
export const Dropout3d = absent('nn.Dropout3d', a16);
/** Not there. @deprecated @hidden */
export const AlphaDropout = absent('nn.AlphaDropout', a16);
/** Not there. @deprecated @hidden */
export const FeatureAlphaDropout = absent('nn.FeatureAlphaDropout', a16);
/** Not there. @deprecated @hidden */
export const EmbeddingBag = absent('nn.EmbeddingBag', a17);
/** Not there. @deprecated @hidden */
export const NLLLoss2d = absent('nn.NLLLoss2d', a18);
/** Not there. @deprecated @hidden */
export const TripletMarginWithDistanceLoss = absent('nn.TripletMarginWithDistanceLoss', a19);
/** Not there. @deprecated @hidden */
export const CTCLoss = absent('nn.CTCLoss', a20);
/** Not there. @deprecated @hidden */
export const PoissonNLLLoss = absent('nn.PoissonNLLLoss', a20);
/** Not there. @deprecated @hidden */
export const GaussianNLLLoss = absent('nn.GaussianNLLLoss', a20);
/** Not there. @deprecated @hidden */
export const HingeEmbeddingLoss = absent('nn.HingeEmbeddingLoss', a20);
/** Not there. @deprecated @hidden */
export const MultiLabelMarginLoss = absent('nn.MultiLabelMarginLoss', a20);
/** Not there. @deprecated @hidden */
export const SoftMarginLoss = absent('nn.SoftMarginLoss', a20);
/** Not there. @deprecated @hidden */
export const MultiLabelSoftMarginLoss = absent('nn.MultiLabelSoftMarginLoss', a20);
/** Not there. @deprecated @hidden */
export const MultiMarginLoss = absent('nn.MultiMarginLoss', a20);
/** Not there. @deprecated @hidden */
export const PixelShuffle = absent('nn.PixelShuffle', a21);
/** Not there. @deprecated @hidden */
export const PixelUnshuffle = absent('nn.PixelUnshuffle', a21);
/** Not there. @deprecated @hidden */
export const ChannelShuffle = absent('nn.ChannelShuffle', a21);
/** Not there. @deprecated @hidden */
export const Upsample = absent('nn.Upsample', a22);
/** Not there. @deprecated @hidden */
export const UpsamplingNearest2d = absent('nn.UpsamplingNearest2d', a22);
/** Not there. @deprecated @hidden */
export const UpsamplingBilinear2d = absent('nn.UpsamplingBilinear2d', a22);
/** Not there. @deprecated @hidden */
export const DataParallel = absent('nn.DataParallel', a23);
/** Not there. @deprecated @hidden */
export const parallel = absentNamespace('nn.parallel', a23);
/** Not there. @deprecated @hidden */
export const Buffer = absent('nn.Buffer', a24);
/** Not there. @deprecated @hidden */
export const UninitializedParameter = absent('nn.UninitializedParameter', a25);
/** Not there. @deprecated @hidden */
export const UninitializedBuffer = absent('nn.UninitializedBuffer', a25);
