/**
 * The public surface, written out: every name that users of PyTorch would look for, and where it
 * must be.
 */
import assert from 'node:assert/strict';
import * as compileEntry from '../../lib/compile/index.js';
import { absenceOf } from '../../lib/core/absent.js';
import * as dataEntry from '../../lib/data/index.js';
import * as distributedEntry from '../../lib/distributed.js';
import * as shardwise from '../../lib/index.js';
import { allComposites } from '../../lib/ops/composite.js';
import * as spmdEntry from '../../lib/spmd/index.js';
import * as testingEntry from '../../lib/testing/index.js';
import * as trainEntry from '../../lib/train/index.js';

const list = (names: string): string[] => names.trim().split(/\s+/);

/** Functions of the package. */
const creation = list(`
  tensor zeros ones full empty eye arange linspace logspace rand randn randint randperm normal zerosLike onesLike fullLike emptyLike randLike
  randnLike randintLike fromBlob asTensor scalarTensor trilIndices triuIndices meshgrid manualSeed seed initialSeed getRngState setRngState forkRng`);
const dtypes = list('float32 float16 bfloat16 float64 int64 int32 int16 int8 uint8 bool');
const dtypeFunctions = list(
  'finfo iinfo promoteTypes resultType getDefaultDtype setDefaultDtype dtypeByName isFloatingPoint isTensor numel',
);
/** Functions that take a list of tensors, or no tensor first. */
const joins = list(`
  cat concat concatenate stack hstack vstack dstack columnStack einsum broadcastTensors broadcastShapes cartesianProd blockDiag
  foreachCopy_ splitWithSizesCopy chunkCat searchsorted bucketize isin tensordot cdist cosineSimilarity pairwiseDistance bilinear atleast1d atleast2d atleast3d varMean stdMean`);
const losses = list(`
  binaryCrossEntropy binaryCrossEntropyWithLogits smoothL1Loss huberLoss klDiv marginRankingLoss cosineEmbeddingLoss tripletMarginLoss
  gumbelSoftmax normalize pad groupNorm batchNorm`);
const distributed = list(`
  initProcessGroup destroyProcessGroup isInitialized isAvailable newGroup worldGroup getRank getWorldSize launch
  getBackend getGlobalRank getGroupRank getProcessGroupRanks
  TCPStore FileStore HashStore PrefixStore
  allReduce broadcast allGather allGatherIntoTensor reduceScatter reduceScatterTensor
  allGatherIntoTensorCoalesced reduceScatterTensorCoalesced allToAll allToAllSingle gather scatter reduce
  send recv isend irecv batchIsendIrecv P2POp barrier
  DeviceMesh initDeviceMesh getCurrentMesh DTensor DTensorSpec TensorMeta distributeTensor Shard Replicate Partial explicitRedistribution CommDebugMode visualizeSharding
  parallelizeModule distributeModule ColwiseParallel RowwiseParallel SequenceParallel PrepareModuleInput PrepareModuleOutput
  PrepareModuleInputOutput ParallelStyle lossParallel
  fullyShard MixedPrecisionPolicy OffloadPolicy CPUOffloadPolicy FSDPParamGroup
  FullyShardedDataParallel FlatParamHandle FlatParamShardMetadata MixedPrecision CPUOffload
  computeLocalShapeAndGlobalOffset Checkpointer loadHuggingFace saveHuggingFace
  DistributedDataParallel allreduceHook fp16CompressHook bf16CompressHook withPurpose
  checkpoint checkpointWrapper applyActivationCheckpointing createSelectiveCheckpointContexts`);
const switches = list(
  `noGrad enableGrad inferenceMode isGradEnabled isInferenceModeEnabled setGradEnabled scope keep compile graphBreak`,
);

/** Functions that are methods too. */
const both = list(`
  exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc neg abs square
  sign floor ceil round trunc frac logit deg2rad rad2deg nanToNum positive isnan isinf isfinite isposinf isneginf logicalNot bitwiseNot
  add sub mul div floorDivide remainder fmod pow maximum minimum fmax fmin atan2 hypot logaddexp logaddexp2 xlogy heaviside rsub lerp addcmul
  addcdiv clamp clip clampMin clampMax absolute negative multiply subtract divide trueDivide
  eq ne lt le gt ge greater greaterEqual less lessEqual notEqual isclose allclose equal logicalAnd logicalOr logicalXor bitwiseAnd bitwiseOr
  bitwiseXor bitwiseLeftShift bitwiseRightShift
  sum mean var std amax amin aminmax max min argmax argmin prod logsumexp any all norm cumsum cumprod median kthvalue quantile nansum nanmean
  countNonzero diff bincount histc unique uniqueConsecutive sort argsort topk
  matmul mm bmm mv addmm addmv addr addbmm baddbmm linear dot inner outer kron trace cross dist
  view reshape ravel flatten unflatten permute transpose swapaxes swapdims movedim moveaxis adjoint t squeeze unsqueeze expand expandAs
  broadcastTo narrow select slice split tensorSplit hsplit vsplit chunk unbind diagonal diag diagEmbed diagflat unfold asStrided detach
  tile repeat repeatInterleave roll flip fliplr flipud rot90
  indexSelect indexAdd indexFill indexCopy gather scatter scatterAdd scatterReduce maskedFill maskedSelect maskedSelectAsync maskedScatter where index indexAsync indexPut
  take takeAlongDim nonzero nonzeroAsync argwhere embedding oneHot tril triu
  softmax logSoftmax softmin layerNorm rmsNorm crossEntropy nllLoss mseLoss l1Loss dropout scaledDotProductAttention
  gelu relu silu sigmoid tanh softplus leakyRelu elu relu6 hardtanh hardsigmoid hardswish hardshrink softshrink tanhshrink softsign mish selu
  celu glu prelu threshold logsigmoid bernoulli multinomial clone`);

/** Methods alone. */
const methods = list(`
  size stride dim ndimension numel nelement elementSize isContiguous isFloatingPoint isSigned isSetTo isSameSize untypedStorage
  item tolist toTypedArray read itemAsync to type typeAs float double half bfloat16 int long short char byte bool cpu cuda contiguous
  pinMemory isPinned recordStream backward requiresGrad_ registerHook registerPostAccumulateGradHook retainGrad detach_ dispose
  newTensor newEmpty newZeros newOnes newFull viewAs reshapeAs sumToSize
  copy_ set_ fill_ zero_ fillDiagonal_ uniform_ normal_ bernoulli_ random_ exponential_`);
const properties = list(`
  shape dtype device layout requiresGrad grad gradFn isLeaf retainsGrad nbytes itemsize ndim _version _base T mT isCuda isCpu length data`);

/** Names with a twin that works in place. */
const twins = list(`
  exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc neg abs square
  sign floor ceil round trunc frac logit deg2rad rad2deg nanToNum logicalNot bitwiseNot add sub mul div floorDivide remainder fmod pow maximum
  minimum atan2 hypot logaddexp logaddexp2 xlogy heaviside lerp addcmul addcdiv clamp clip clampMin clampMax absolute negative multiply
  subtract divide trueDivide eq ne lt le gt ge logicalAnd logicalOr logicalXor bitwiseAnd bitwiseOr bitwiseXor bitwiseLeftShift
  bitwiseRightShift cumsum cumprod addmm addmv addr addbmm baddbmm indexAdd indexFill indexCopy scatter scatterAdd scatterReduce maskedFill
  maskedScatter indexPut tril triu relu sigmoid tanh silu leakyRelu elu relu6 hardtanh hardsigmoid hardswish mish selu celu`);

const layers = list(`
  Linear Bilinear Embedding LayerNorm RMSNorm GroupNorm BatchNorm1d Dropout Identity Flatten Unflatten ReLU ReLU6 LeakyReLU PReLU ELU CELU SELU
  GELU SiLU Mish Tanh Sigmoid LogSigmoid Hardsigmoid Hardswish Hardtanh Hardshrink Softshrink Softplus Softsign Tanhshrink Threshold GLU Softmax
  Softmin LogSoftmax Sequential ModuleList ModuleDict ParameterList ParameterDict MultiheadAttention Transformer TransformerEncoder
  TransformerEncoderLayer TransformerDecoder TransformerDecoderLayer CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss
  BCEWithLogitsLoss KLDivLoss MarginRankingLoss CosineEmbeddingLoss TripletMarginLoss CosineSimilarity PairwiseDistance Module Parameter`);
const moduleMethods = list(`
  namedParameters parameters namedBuffers buffers namedChildren children namedModules modules getSubmodule getParameter getBuffer
  registerBuffer registerParameter registerModule addModule stateDict loadStateDict to half bfloat16 float double cuda cpu train eval
  requiresGrad_ zeroGrad apply registerForwardPreHook registerForwardHook registerFullBackwardPreHook registerFullBackwardHook extraRepr
  registerStateDictPreHook registerStateDictHook registerLoadStateDictPreHook registerLoadStateDictPostHook toEmpty toString compile dispose`);
const functional = list(`
  linear bilinear embedding oneHot relu relu6 leakyRelu prelu elu celu selu gelu silu mish tanh sigmoid logsigmoid hardsigmoid hardswish hardtanh
  hardshrink softshrink softplus softsign tanhshrink threshold glu softmax softmin logSoftmax gumbelSoftmax dropout layerNorm rmsNorm groupNorm
  batchNorm normalize pad cosineSimilarity pairwiseDistance scaledDotProductAttention crossEntropy nllLoss mseLoss l1Loss smoothL1Loss huberLoss
  binaryCrossEntropy binaryCrossEntropyWithLogits klDiv marginRankingLoss cosineEmbeddingLoss tripletMarginLoss`);
const initialisers = list(`
  uniform_ normal_ truncNormal_ constant_ ones_ zeros_ eye_ orthogonal_ xavierUniform_ xavierNormal_ kaimingUniform_ kaimingNormal_ calculateGain`);

const optimizerMethods = list(
  'step zeroGrad addParamGroup stateDict loadStateDict registerStepPreHook registerStepPostHook',
);
const schedules = list(`
  LRScheduler LambdaLR MultiplicativeLR StepLR MultiStepLR ConstantLR LinearLR ExponentialLR PolynomialLR CosineAnnealingLR
  CosineAnnealingWarmRestarts OneCycleLR CyclicLR SequentialLR ChainedScheduler ReduceLROnPlateau`);

const autograd = list(`
  backward grad Function savedTensorsHooks withoutSavedTensorsHooks registerMultiGradHook setGradMemory opaqueHook recomputed AccumulateGrad queueCallback unsafePreserveVersionCounter unsafeSetVersionCounter setDetectAnomaly gradcheck gradgradcheck`);
const cuda = list(`
  memoryAllocated memoryReserved maxMemoryAllocated memorySnapshot emptyCache synchronize Stream Event stream isAvailable deviceCount`);

const memory = list('stats snapshot recordHistory resetPeak emptyCache collect owned');

type Named = Readonly<Record<string, unknown>>;

/** Names of functions or classes that are not there. */
const missing = (where: object, names: readonly string[]): string[] =>
  names.filter((name) => {
    const value = (where as Named)[name];
    return typeof value !== 'function' || absenceOf(value) !== undefined;
  });

const { nn, optim, Tensor } = shardwise;
const places: Record<string, [where: object, names: readonly string[]]> = {
  'shardwise has the functions': [
    shardwise,
    [...creation, ...dtypeFunctions, ...joins, ...losses, ...switches, ...both],
  ],
  'tensors have the methods': [Tensor.prototype, [...both, ...methods]],
  'tensors have the in-place twins': [Tensor.prototype, twins.map((name) => `${name}_`)],
  'autograd has its functions': [shardwise.autograd, autograd],
  'cuda has its functions': [shardwise.cuda, cuda],
  'memory has its functions': [shardwise.memory, memory],
  'profiler has its functions': [
    shardwise.profiler,
    list('profile recordFunction schedule Profile KeyAverages'),
  ],
  'tree has its functions': [shardwise.tree, list('map tensors')],
  'ops.fsdp has its ops': [shardwise.ops.fsdp, list('set_ copy_')],
  'nn has the layers': [nn, layers],
  'modules have the methods': [nn.Module.prototype, moduleMethods],
  'nn.functional has the functions': [nn.functional, functional],
  'nn.init has the initialisers': [nn.init, initialisers],
  'nn.utils has its tools': [
    nn.utils,
    list('clipGradNorm_ clipGradValue_ getTotalNorm parametersToVector vectorToParameters'),
  ],
  'optim has the optimizers': [optim, list('Optimizer SGD Adam AdamW')],
  'optimizers have the methods': [optim.Optimizer.prototype, optimizerMethods],
  'optim.lrScheduler has the schedules': [optim.lrScheduler, schedules],
  'compiler has its functions': [
    shardwise.compiler,
    list('isCompiling capturedStep reset disable explain markDynamic markRebound'),
  ],
  'shardwise/compile has its names': [
    compileEntry,
    list(
      'compile graphBreak markDynamic markRebound Graph Node GraphModule FakeTensorMode isCompiling reset disable ' +
        'defaultPartition minCutRematerializationPartition captureStep CapturedStep raiseCollectives sinkWaits ' +
        'reorderForOverlap runAndGetKernelCode',
    ),
  ],
  'shardwise/spmd has its names': [
    spmdEntry,
    list(
      'compile GraphModuleTransformation IterGraphModule graphOptimizationPass clearAppliedPasses commFusionWithConcat ' +
        'scheduleCommWait removeCopyFromOptimizer splitFusedOptimizer getAllFusedOptimizerBlocks iterMoveGradsAndOptimizers ' +
        'findAllDescendants findNode getCommBlock getAllCommBlocks dumpGraphsToFiles timeline recordTimeline Timeline plan ' +
        'StepPlan',
    ),
  ],
  'shardwise/data has its names': [
    dataEntry,
    list(
      'DataLoader SequentialSampler RandomSampler DistributedSampler BatchSampler defaultCollate mapDataset importDataset ' +
        'ndjson tokenWindows TensorDataset Subset randomSplit DataError',
    ),
  ],
  'shardwise/distributed has its names': [distributedEntry, distributed],
  'distributedCheckpoint has its functions': [
    distributedEntry.distributedCheckpoint,
    list('save load'),
  ],
  'shardwise/train has its names': [
    trainEntry,
    list(
      'TrainMetrics JsonlWriter SummaryWriter progress sparkline lossCurve transformerFlops peakFlops exposedCommunication',
    ),
  ],
  'shardwise/testing has its names': [
    testingEntry,
    list(
      'assertClose assertCloseAsync CompileCounter CompileCounterWithBackend FileCheck ' +
        'slowCollectives tensorEquality withRanks',
    ),
  ],
};

describe('the public surface', () => {
  for (const [what, [where, names]] of Object.entries(places)) {
    it(what, () => assert.deepEqual(missing(where, names), []));
  }

  it('dtypes are constants with names', () => {
    for (const name of dtypes) assert.equal(String((shardwise as Named)[name]), name);
  });

  it('what is an attribute in PyTorch is a property', () => {
    const t = shardwise.ones([2, 2]);
    assert.deepEqual(
      properties.filter(
        (name) => !(name in t) || typeof (t as unknown as Named)[name] === 'function',
      ),
      [],
    );
  });

  it('every twin has the form it is a twin of, and no other method ends with an underscore', () => {
    const alone = new Set(methods);
    const all = Object.entries(Object.getOwnPropertyDescriptors(Tensor.prototype)).flatMap(
      ([name, { value }]) => (name.endsWith('_') && absenceOf(value) === undefined ? [name] : []),
    );
    assert.deepEqual(
      all.filter((name) => !alone.has(name) && !(name.slice(0, -1) in Tensor.prototype)),
      [],
    );
  });

  it('every composition is a function of the package, of nn.functional or a method', () => {
    const given = [shardwise, nn.functional, Tensor.prototype];
    assert.deepEqual(
      allComposites().flatMap(({ name }) => (given.some((where) => name in where) ? [] : [name])),
      [],
    );
  });

  it('every tensor can be iterated over, read and printed, whatever its dtype', () => {
    for (const name of dtypes) {
      const dtype = (shardwise as Named)[name] as shardwise.DType;
      const t = shardwise.ones([2], { dtype });
      const one = name === 'bool' ? true : 1;
      assert.deepEqual(
        [...t].map((x) => x.item()),
        [one, one],
      );
      assert.deepEqual(t.tolist(), [one, one]);
      assert.match(String(t), /^tensor\(\[/);
    }
    const large = shardwise.tensor([2n ** 60n], { dtype: shardwise.int64 });
    assert.equal(large.item<bigint>(), 2n ** 60n);
    assert.deepEqual(large.tolist(), [2n ** 60n]);
  });
});
