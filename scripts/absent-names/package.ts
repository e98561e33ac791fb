/** Absent names of `shardwise`, most of them functions of `torch`. */
import {
  type AbsentPlace,
  COMPLEX,
  CONVOLUTION,
  FORMULA,
  MATRIX,
  MAX_POOL,
  QUANTIZED,
  SPARSE,
} from './groups.js';

export const shardwise: AbsentPlace = {
  file: 'shardwise',
  prefix: 'shardwise.',
  groups: [
    {
      names: 'DataLoader BatchSampler RandomSampler SequentialSampler',
      advice: "is not there: import it from 'shardwise/data'",
    },
    {
      names: 'Dataset TensorDataset IterableDataset',
      advice: "is not there: DataLoader of 'shardwise/data' takes arrays, objects and iterables",
    },
    { names: 'save', advice: 'is not there: use saveSafetensors or saveCheckpoint' },
    { names: 'load', advice: 'is not there: use loadSafetensors or loadCheckpoint' },
    {
      names: 'distributed',
      advice: "is not there: import it from 'shardwise/distributed'",
      isNamespace: true,
    },
    { names: 'autocast', advice: 'is not there: use amp.autocast' },
    {
      names: 'fromNumpy frombuffer fromDlpack fromFile asarray tensor1d tensor2d tensor3d scalar',
      advice: 'is not there: use tensor(values), or fromBlob(typedArray) without a copy',
    },
    { names: 'tidy', advice: 'is not there: use scope(fn)' },
    { names: 'matMul', advice: 'is not there: use matmul' },
    { names: 'float', advice: 'is not there: the dtype is float32' },
    { names: 'double', advice: 'is not there: the dtype is float64' },
    { names: 'half', advice: 'is not there: the dtype is float16' },
    { names: 'long', advice: 'is not there: the dtype is int64' },
    { names: 'int', advice: 'is not there: the dtype is int32' },
    { names: 'short', advice: 'is not there: the dtype is int16' },
    {
      names: `FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor
        CharTensor ByteTensor BoolTensor`,
      advice: 'is not there: use tensor(values, { dtype })',
    },
    {
      names: 'uint16 uint32 uint64',
      advice: 'is not there: use uint8, or a signed dtype with more bits',
    },
    { names: 'complex32 complex64 complex128', advice: COMPLEX },
    {
      names: `isComplex isConj complex polar conj conjPhysical real imag angle viewAsReal viewAsComplex
        resolveConj resolveNeg`,
      advice: COMPLEX,
    },
    { names: 'fft', advice: COMPLEX, isNamespace: true },
    { names: 'stft istft', advice: COMPLEX },
    {
      names: 'bartlettWindow blackmanWindow hammingWindow hannWindow kaiserWindow',
      advice: 'is not there yet: compute it from arange and cos',
    },
    { names: 'sparseCooTensor sparseCsrTensor', advice: SPARSE },
    { names: 'sparse', advice: SPARSE, isNamespace: true },
    { names: 'quantizePerTensor quantizePerChannel dequantize', advice: QUANTIZED },
    { names: 'quantization', advice: QUANTIZED, isNamespace: true },
    { names: 'linalg', advice: MATRIX, isNamespace: true },
    {
      names: `cholesky choleskyInverse choleskySolve det geqrf inverse lobpcg logdet lu luSolve
        luUnpack matrixExp matrixPower orgqr ormqr pcaLowrank pinverse qr slogdet svd svdLowrank
        triangularSolve`,
      advice: MATRIX,
    },
    { names: 'chainMatmul', advice: 'is not there: use matmul, or einsum' },
    { names: 'ger', advice: 'is not there: use outer' },
    { names: 'vdot', advice: 'is not there: use dot' },
    {
      names: 'arccos arccosh arcsin arcsinh arctan arctanh arctan2',
      advice: 'is not there: the name is short, as acos',
    },
    { names: 'fix', advice: 'is not there: use trunc' },
    { names: 'sgn', advice: 'is not there: use sign' },
    {
      names: `copysign digamma erfinv floatPower frexp gcd gradient i0 igamma igammac lcm ldexp lgamma
        logcumsumexp mvlgamma nextafter polygamma signbit sinc`,
      advice: FORMULA,
    },
    { names: 'special', advice: FORMULA, isNamespace: true },
    {
      names: `combinations corrcoef cov cumulativeTrapezoid cummax cummin mode msort nanmedian
        nanquantile renorm trapezoid trapz vander`,
      advice: FORMULA,
    },
    { names: 'histogram histogramdd', advice: 'is not there yet: use histc or bincount' },
    { names: 'dsplit', advice: 'is not there: use tensorSplit(x, sections, 2)' },
    { names: 'rowStack', advice: 'is not there: use vstack' },
    { names: 'narrowCopy', advice: 'is not there: use narrow and clone' },
    {
      names: 'diagonalScatter selectScatter sliceScatter indexReduce',
      advice: 'is not there yet: copy_ into a view of a clone, as x.clone().select(0, 1).copy_(y)',
    },
    {
      names: 'poisson',
      advice: 'is not there yet: of draws there are rand, randn and multinomial',
    },
    {
      names: 'distributions',
      advice: 'is not there yet: of draws there are rand, randn, bernoulli and multinomial',
      isNamespace: true,
    },
    { names: 'inf', advice: 'is not there: use Infinity' },
    { names: 'nan', advice: 'is not there: use NaN' },
    { names: 'pi', advice: 'is not there: use Math.PI' },
    { names: 'newaxis', advice: 'is not there: use x.unsqueeze(dim)' },
    { names: 'Size', advice: 'is not there: shapes are arrays of numbers' },
    {
      names: 'setPrintoptions',
      advice: 'is not there: console.log and util.inspect take options of Node',
    },
    { names: 'setDefaultTensorType', advice: 'is not there: use setDefaultDtype' },
    {
      names:
        'useDeterministicAlgorithms areDeterministicAlgorithmsEnabled setDeterministicDebugMode',
      advice: 'is not there: no switch chooses other kernels',
    },
    {
      names: 'getNumThreads setNumThreads getNumInteropThreads setNumInteropThreads',
      advice: 'is not there: SHARDWISE_NUM_THREADS sets the threads of the CPU',
    },
    {
      names: 'vmap cond',
      advice: 'is not there yet: write a loop; compile records it',
    },
    { names: 'func', advice: 'is not there yet: use autograd.grad', isNamespace: true },
    { names: 'jit fx', advice: 'is not there: use compile', isNamespace: true },
    {
      names: 'onnx',
      advice: 'is not there yet: saveSafetensors writes weights for other programs',
      isNamespace: true,
    },
    {
      names: 'hub',
      advice: "is not there: use loadHuggingFace of 'shardwise/distributed'",
      isNamespace: true,
    },
    {
      names: 'multiprocessing',
      advice: "is not there: use launch of 'shardwise/distributed'",
      isNamespace: true,
    },
    {
      names: 'backends',
      advice: 'is not there: use setFloat32MatmulPrecision, or cuda.isAvailable()',
      isNamespace: true,
    },
    { names: 'conv1d conv2d conv3d', advice: CONVOLUTION },
    { names: 'maxPool2d', advice: MAX_POOL },
  ],
};
