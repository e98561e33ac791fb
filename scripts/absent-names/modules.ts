/** Absent names of `nn`, `optim`, `autograd` and `cuda`. */
import {
  type AbsentPlace,
  AVERAGE_POOL,
  CONVOLUTION,
  FORMULA,
  MAX_POOL,
  PARALLEL,
  RECURRENT,
  RESAMPLE,
} from './groups.js';

export const nn: AbsentPlace = {
  file: 'nn',
  prefix: 'nn.',
  groups: [
    {
      names: `Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d
        LazyConv2d LazyConv3d`,
      advice: CONVOLUTION,
    },
    { names: 'Unfold Fold', advice: 'is not there yet: x.unfold(dim, size, step) takes windows' },
    {
      names: `MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d
        FractionalMaxPool2d FractionalMaxPool3d`,
      advice: MAX_POOL,
    },
    { names: 'AvgPool1d AvgPool2d AvgPool3d LPPool1d LPPool2d LPPool3d', advice: AVERAGE_POOL },
    {
      names: 'AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d',
      advice: 'is not there yet: x.mean([-2, -1]) averages whole images',
    },
    {
      names: 'AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d',
      advice: 'is not there yet: x.amax([-2, -1]) is the maximum of whole images',
    },
    {
      names: `ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d
        ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d ConstantPad3d
        CircularPad1d CircularPad2d CircularPad3d`,
      advice: 'is not there: use nn.functional.pad(x, pad, { mode, value }) in forward',
    },
    { names: 'RReLU', advice: 'is not there: use nn.LeakyReLU, which it is in evaluation' },
    { names: 'Softmax2d', advice: 'is not there: use new nn.Softmax(-3)' },
    {
      names: 'AdaptiveLogSoftmaxWithLoss',
      advice: 'is not there yet: use nn.Linear and nn.CrossEntropyLoss',
    },
    {
      names: 'BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d',
      advice: 'is not there yet: use nn.BatchNorm1d on x.flatten(2)',
    },
    {
      names: 'SyncBatchNorm',
      advice: 'is not there yet: use nn.GroupNorm or nn.LayerNorm, which no other rank changes',
    },
    {
      names: `InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d
        LazyInstanceNorm3d`,
      advice: 'is not there yet: use new nn.GroupNorm(channels, channels), which is the same',
    },
    { names: 'LocalResponseNorm', advice: 'is not there: use nn.GroupNorm' },
    { names: 'RNNBase RNN LSTM GRU RNNCell LSTMCell GRUCell', advice: RECURRENT },
    { names: 'LazyLinear', advice: 'is not there: give nn.Linear the size of its input' },
    {
      names: 'Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout',
      advice: 'is not there yet: use nn.Dropout',
    },
    {
      names: 'EmbeddingBag',
      advice: 'is not there yet: use nn.Embedding, and sum(-2) or mean(-2) of its result',
    },
    { names: 'NLLLoss2d', advice: 'is not there: use nn.NLLLoss' },
    {
      names: 'TripletMarginWithDistanceLoss',
      advice: 'is not there yet: use nn.TripletMarginLoss, or compute the distances',
    },
    {
      names: `CTCLoss PoissonNLLLoss GaussianNLLLoss HingeEmbeddingLoss MultiLabelMarginLoss
        SoftMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss`,
      advice: FORMULA,
    },
    {
      names: 'PixelShuffle PixelUnshuffle ChannelShuffle',
      advice: 'is not there yet: unflatten, permute and flatten move the elements',
    },
    { names: 'Upsample UpsamplingNearest2d UpsamplingBilinear2d', advice: RESAMPLE },
    { names: 'DataParallel', advice: PARALLEL },
    { names: 'parallel', advice: PARALLEL, isNamespace: true },
    {
      names: 'Buffer',
      advice: 'is not there: call this.registerBuffer(name, tensor) in the module',
    },
    {
      names: 'UninitializedParameter UninitializedBuffer',
      advice: "is not there: make the module on 'meta' with withDevice, then call toEmpty(device)",
    },
  ],
};

export const functional: AbsentPlace = {
  file: 'functional',
  prefix: 'nn.functional.',
  groups: [
    {
      names: 'conv1d conv2d conv3d convTranspose1d convTranspose2d convTranspose3d',
      advice: CONVOLUTION,
    },
    { names: 'unfold fold', advice: 'is not there yet: x.unfold(dim, size, step) takes windows' },
    {
      names: `maxPool1d maxPool2d maxPool3d maxUnpool1d maxUnpool2d maxUnpool3d
        fractionalMaxPool2d fractionalMaxPool3d`,
      advice: MAX_POOL,
    },
    { names: 'avgPool1d avgPool2d avgPool3d lpPool1d lpPool2d lpPool3d', advice: AVERAGE_POOL },
    {
      names: 'adaptiveAvgPool1d adaptiveAvgPool2d adaptiveAvgPool3d',
      advice: 'is not there yet: x.mean([-2, -1]) averages whole images',
    },
    {
      names: 'adaptiveMaxPool1d adaptiveMaxPool2d adaptiveMaxPool3d',
      advice: 'is not there yet: x.amax([-2, -1]) is the maximum of whole images',
    },
    {
      names: 'threshold_ relu_ hardtanh_ elu_ leakyRelu_',
      advice: 'is not there: call the method of the tensor, as x.relu_()',
    },
    { names: 'rrelu rrelu_', advice: 'is not there: use nn.functional.leakyRelu' },
    {
      names: 'instanceNorm',
      advice: 'is not there yet: use groupNorm(x, channels), which is the same',
    },
    { names: 'localResponseNorm', advice: 'is not there: use nn.functional.groupNorm' },
    {
      names: 'dropout1d dropout2d dropout3d alphaDropout featureAlphaDropout',
      advice: 'is not there yet: use nn.functional.dropout',
    },
    {
      names: 'embeddingBag',
      advice: 'is not there yet: use embedding, and sum(-2) or mean(-2) of its result',
    },
    { names: 'pdist', advice: 'is not there yet: use cdist(x, x)' },
    {
      names: `ctcLoss poissonNllLoss gaussianNllLoss hingeEmbeddingLoss multilabelMarginLoss
        multilabelSoftMarginLoss multiMarginLoss softMarginLoss tripletMarginWithDistanceLoss`,
      advice: FORMULA,
    },
    {
      names: 'pixelShuffle pixelUnshuffle channelShuffle',
      advice: 'is not there yet: unflatten, permute and flatten move the elements',
    },
    {
      names: 'interpolate upsample upsampleNearest upsampleBilinear gridSample affineGrid',
      advice: RESAMPLE,
    },
    {
      names: 'multiHeadAttentionForward',
      advice: 'is not there: use nn.MultiheadAttention or scaledDotProductAttention',
    },
  ],
};

export const init: AbsentPlace = {
  file: 'init',
  prefix: 'nn.init.',
  groups: [
    {
      names: `uniform normal constant eye orthogonal xavierUniform xavierNormal kaimingUniform
        kaimingNormal`,
      advice: 'is not there: its name ends with an underscore, as nn.init.normal_',
    },
    { names: 'dirac_ sparse_', advice: 'is not there yet: compute the values, and copy_ them' },
  ],
};

export const utils: AbsentPlace = {
  file: 'utils',
  prefix: 'nn.utils.',
  groups: [
    { names: 'clipGradNorm', advice: 'is not there: use nn.utils.clipGradNorm_' },
    {
      names: 'clipGradsWithNorm_',
      advice: 'is not there yet: use nn.utils.clipGradNorm_, which computes the norm, too',
    },
    {
      names: 'weightNorm removeWeightNorm spectralNorm removeSpectralNorm',
      advice: 'is not there yet: compute the weight in forward, and give it to linear',
    },
    {
      names: 'parametrize parametrizations prune stateless',
      advice: 'is not there yet: compute the weight in forward, and give it to linear',
      isNamespace: true,
    },
    { names: 'skipInit', advice: "is not there: use withDevice('meta', fn), then toEmpty(device)" },
  ],
};

export const optim: AbsentPlace = {
  file: 'optim',
  prefix: 'optim.',
  groups: [
    {
      names: `Adadelta Adafactor Adagrad Adamax ASGD LBFGS Muon NAdam RAdam RMSprop Rprop
        SparseAdam`,
      advice: 'is not there yet: use optim.AdamW, optim.Adam, optim.SGD, or extend optim.Optimizer',
    },
    {
      names: 'swaUtils',
      advice: 'is not there yet: average.lerp_(parameter, 0.01) under noGrad averages',
      isNamespace: true,
    },
  ],
};

export const autograd: AbsentPlace = {
  file: 'autograd',
  prefix: 'autograd.',
  groups: [
    { names: 'detectAnomaly', advice: 'is not there: use autograd.setDetectAnomaly(true)' },
    {
      names: 'noGrad enableGrad setGradEnabled inferenceMode',
      advice: "is not there: import it from 'shardwise'",
    },
    { names: 'Variable', advice: 'is not there: tensors record gradients by x.requiresGrad_()' },
    {
      names: 'functional forwardAd',
      advice: 'is not there yet: autograd.grad(y, x, { createGraph: true }) differentiates twice',
      isNamespace: true,
    },
  ],
};

export const cuda: AbsentPlace = {
  file: 'cuda',
  prefix: 'cuda.',
  groups: [
    {
      names: 'setDevice device currentDevice',
      advice: "is not there: use withDevice('cuda:1', fn), setDefaultDevice or getDefaultDevice",
    },
    {
      names: 'getDeviceName getDeviceCapability isBf16Supported memGetInfo',
      advice: 'is not there: use cuda.getDeviceProperties()',
    },
    { names: 'memorySummary', advice: 'is not there: use cuda.memoryStats() or memory.stats()' },
    {
      names: 'manualSeed manualSeedAll seed getRngState setRngState getRngStateAll',
      advice: "is not there: one generator serves all devices; import it from 'shardwise'",
    },
    { names: 'currentStream defaultStream', advice: 'is not there: use cuda.stream(stream, fn)' },
    {
      names: 'CUDAGraph graph makeGraphedCallables',
      advice: 'is not there: use compile, which makes one submission of a function',
    },
    { names: 'amp', advice: "is not there: import amp from 'shardwise'", isNamespace: true },
    {
      names: 'ipcCollect setPerProcessMemoryFraction',
      advice: 'is not there: use cuda.emptyCache',
    },
  ],
};
