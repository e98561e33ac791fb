// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent, absentNamespace } from '../absent.js';

const a0 = "is not there: import it from 'shardwise/data'";
const a1 = "is not there: DataLoader of 'shardwise/data' takes arrays, objects and iterables";
const a2 = 'is not there: use saveSafetensors or saveCheckpoint';
const a3 = 'is not there: use loadSafetensors or loadCheckpoint';
const a4 = "is not there: import it from 'shardwise/distributed'";
const a5 = 'is not there: use amp.autocast';
const a6 = 'is not there: use tensor(values), or fromBlob(typedArray) without a copy';
const a7 = 'is not there: use new nn.Parameter(tensor)';
const a8 = 'is not there: use scope(fn)';
const a9 = 'is not there: use matmul';
const a10 = 'is not there: use new nn.Sequential(…)';
const a11 = 'is not there: use nn';
const a12 = 'is not there: use arange, whose end is not included';
const a13 = 'is not there: the dtype is float32';
const a14 = 'is not there: the dtype is float64';
const a15 = 'is not there: the dtype is float16';
const a16 = 'is not there: the dtype is int64';
const a17 = 'is not there: the dtype is int32';
const a18 = 'is not there: the dtype is int16';
const a19 = 'is not there: use tensor(values, { dtype })';
const a20 = 'is not there: use uint8, or a signed dtype with more bits';
const a21 = 'is not there yet: there are no complex numbers; keep two tensors';
const a22 = 'is not there yet: compute it from arange and cos';
const a23 = 'is not there: all tensors are dense';
const a24 = 'is not there: there are no quantized tensors; dtypes are 16 bits or wider floats';
const a25 = 'is not there yet: of linear algebra there are products, norm, trace and triangles';
const a26 = 'is not there: use matmul, or einsum';
const a27 = 'is not there: use outer';
const a28 = 'is not there: use dot';
const a29 = 'is not there: the name is short, as acos';
const a30 = 'is not there: use trunc';
const a31 = 'is not there: use sign';
const a32 = 'is not there yet: compute it with methods of tensors; backward differentiates them';
const a33 = 'is not there yet: use histc or bincount';
const a34 = 'is not there: use tensorSplit(x, sections, 2)';
const a35 = 'is not there: use vstack';
const a36 = 'is not there: use narrow and clone';
const a37 = 'is not there yet: copy_ into a view of a clone, as x.clone().select(0, 1).copy_(y)';
const a38 = 'is not there yet: of draws there are rand, randn and multinomial';
const a39 = 'is not there yet: of draws there are rand, randn, bernoulli and multinomial';
const a40 = 'is not there: use Infinity';
const a41 = 'is not there: use NaN';
const a42 = 'is not there: use Math.PI';
const a43 = 'is not there: use x.unsqueeze(dim)';
const a44 = 'is not there: shapes are arrays of numbers';
const a45 = 'is not there: console.log and util.inspect take options of Node';
const a46 = 'is not there: use setDefaultDtype';
const a47 = 'is not there: no switch chooses other kernels';
const a48 = 'is not there: SHARDWISE_NUM_THREADS sets the threads of the CPU';
const a49 = 'is not there yet: write a loop; compile records it';
const a50 = 'is not there yet: use autograd.grad';
const a51 = 'is not there: use compile';
const a52 = 'is not there yet: saveSafetensors writes weights for other programs';
const a53 = "is not there: use loadHuggingFace of 'shardwise/distributed'";
const a54 = "is not there: use launch of 'shardwise/distributed'";
const a55 = 'is not there: use setFloat32MatmulPrecision, or cuda.isAvailable()';
const a56 = 'is not there yet: x.unfold(dim, size, step) and linear compute a convolution';
const a57 = 'is not there yet: x.unfold(dim, size, step) and amax(-1) compute it';

/** Not there: its type says what to use instead. @deprecated @hidden */
export const DataLoader = absent('shardwise.DataLoader', a0);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const BatchSampler = absent('shardwise.BatchSampler', a0);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const RandomSampler = absent('shardwise.RandomSampler', a0);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const SequentialSampler = absent('shardwise.SequentialSampler', a0);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const Dataset = absent('shardwise.Dataset', a1);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const TensorDataset = absent('shardwise.TensorDataset', a1);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const IterableDataset = absent('shardwise.IterableDataset', a1);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const save = absent('shardwise.save', a2);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const load = absent('shardwise.load', a3);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const distributed = absentNamespace('shardwise.distributed', a4);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const autocast = absent('shardwise.autocast', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fromNumpy = absent('shardwise.fromNumpy', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const frombuffer = absent('shardwise.frombuffer', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fromDlpack = absent('shardwise.fromDlpack', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fromFile = absent('shardwise.fromFile', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const asarray = absent('shardwise.asarray', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const array = absent('shardwise.array', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tensor1d = absent('shardwise.tensor1d', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tensor2d = absent('shardwise.tensor2d', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tensor3d = absent('shardwise.tensor3d', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const scalar = absent('shardwise.scalar', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const variable = absent('shardwise.variable', a7);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tidy = absent('shardwise.tidy', a8);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const matMul = absent('shardwise.matMul', a9);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sequential = absent('shardwise.sequential', a10);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const layers = absentNamespace('shardwise.layers', a11);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const range = absent('shardwise.range', a12);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const float = absent('shardwise.float', a13);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const double = absent('shardwise.double', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const half = absent('shardwise.half', a15);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const long = absent('shardwise.long', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const int = absent('shardwise.int', a17);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const short = absent('shardwise.short', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const FloatTensor = absent('shardwise.FloatTensor', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const DoubleTensor = absent('shardwise.DoubleTensor', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const HalfTensor = absent('shardwise.HalfTensor', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const BFloat16Tensor = absent('shardwise.BFloat16Tensor', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const LongTensor = absent('shardwise.LongTensor', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const IntTensor = absent('shardwise.IntTensor', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ShortTensor = absent('shardwise.ShortTensor', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const CharTensor = absent('shardwise.CharTensor', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ByteTensor = absent('shardwise.ByteTensor', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const BoolTensor = absent('shardwise.BoolTensor', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const uint16 = absent('shardwise.uint16', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const uint32 = absent('shardwise.uint32', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const uint64 = absent('shardwise.uint64', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex32 = absent('shardwise.complex32', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex64 = absent('shardwise.complex64', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex128 = absent('shardwise.complex128', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const isComplex = absent('shardwise.isComplex', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const isConj = absent('shardwise.isConj', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex = absent('shardwise.complex', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const polar = absent('shardwise.polar', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conj = absent('shardwise.conj', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conjPhysical = absent('shardwise.conjPhysical', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const real = absent('shardwise.real', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const imag = absent('shardwise.imag', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const angle = absent('shardwise.angle', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const viewAsReal = absent('shardwise.viewAsReal', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const viewAsComplex = absent('shardwise.viewAsComplex', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const resolveConj = absent('shardwise.resolveConj', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const resolveNeg = absent('shardwise.resolveNeg', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fft = absentNamespace('shardwise.fft', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const stft = absent('shardwise.stft', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const istft = absent('shardwise.istft', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const bartlettWindow = absent('shardwise.bartlettWindow', a22);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const blackmanWindow = absent('shardwise.blackmanWindow', a22);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const hammingWindow = absent('shardwise.hammingWindow', a22);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const hannWindow = absent('shardwise.hannWindow', a22);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const kaiserWindow = absent('shardwise.kaiserWindow', a22);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sparseCooTensor = absent('shardwise.sparseCooTensor', a23);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sparseCsrTensor = absent('shardwise.sparseCsrTensor', a23);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sparse = absentNamespace('shardwise.sparse', a23);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const quantizePerTensor = absent('shardwise.quantizePerTensor', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const quantizePerChannel = absent('shardwise.quantizePerChannel', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const dequantize = absent('shardwise.dequantize', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const quantization = absentNamespace('shardwise.quantization', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const linalg = absentNamespace('shardwise.linalg', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cholesky = absent('shardwise.cholesky', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const choleskyInverse = absent('shardwise.choleskyInverse', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const choleskySolve = absent('shardwise.choleskySolve', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const det = absent('shardwise.det', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const geqrf = absent('shardwise.geqrf', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const inverse = absent('shardwise.inverse', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lobpcg = absent('shardwise.lobpcg', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const logdet = absent('shardwise.logdet', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lu = absent('shardwise.lu', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const luSolve = absent('shardwise.luSolve', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const luUnpack = absent('shardwise.luUnpack', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const matrixExp = absent('shardwise.matrixExp', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const matrixPower = absent('shardwise.matrixPower', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const orgqr = absent('shardwise.orgqr', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ormqr = absent('shardwise.ormqr', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const pcaLowrank = absent('shardwise.pcaLowrank', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const pinverse = absent('shardwise.pinverse', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const qr = absent('shardwise.qr', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const slogdet = absent('shardwise.slogdet', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const svd = absent('shardwise.svd', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const svdLowrank = absent('shardwise.svdLowrank', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const triangularSolve = absent('shardwise.triangularSolve', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const chainMatmul = absent('shardwise.chainMatmul', a26);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ger = absent('shardwise.ger', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const vdot = absent('shardwise.vdot', a28);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arccos = absent('shardwise.arccos', a29);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arccosh = absent('shardwise.arccosh', a29);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arcsin = absent('shardwise.arcsin', a29);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arcsinh = absent('shardwise.arcsinh', a29);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arctan = absent('shardwise.arctan', a29);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arctanh = absent('shardwise.arctanh', a29);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arctan2 = absent('shardwise.arctan2', a29);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fix = absent('shardwise.fix', a30);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sgn = absent('shardwise.sgn', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const copysign = absent('shardwise.copysign', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const digamma = absent('shardwise.digamma', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const erfinv = absent('shardwise.erfinv', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const floatPower = absent('shardwise.floatPower', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const frexp = absent('shardwise.frexp', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const gcd = absent('shardwise.gcd', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const gradient = absent('shardwise.gradient', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const i0 = absent('shardwise.i0', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const igamma = absent('shardwise.igamma', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const igammac = absent('shardwise.igammac', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lcm = absent('shardwise.lcm', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ldexp = absent('shardwise.ldexp', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lgamma = absent('shardwise.lgamma', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const logcumsumexp = absent('shardwise.logcumsumexp', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const mvlgamma = absent('shardwise.mvlgamma', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nextafter = absent('shardwise.nextafter', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const polygamma = absent('shardwise.polygamma', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const signbit = absent('shardwise.signbit', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sinc = absent('shardwise.sinc', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const special = absentNamespace('shardwise.special', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const combinations = absent('shardwise.combinations', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const corrcoef = absent('shardwise.corrcoef', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cov = absent('shardwise.cov', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cumulativeTrapezoid = absent('shardwise.cumulativeTrapezoid', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cummax = absent('shardwise.cummax', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cummin = absent('shardwise.cummin', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const mode = absent('shardwise.mode', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const msort = absent('shardwise.msort', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nanmedian = absent('shardwise.nanmedian', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nanquantile = absent('shardwise.nanquantile', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const renorm = absent('shardwise.renorm', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const trapezoid = absent('shardwise.trapezoid', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const trapz = absent('shardwise.trapz', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const vander = absent('shardwise.vander', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const histogram = absent('shardwise.histogram', a33);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const histogramdd = absent('shardwise.histogramdd', a33);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const dsplit = absent('shardwise.dsplit', a34);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const rowStack = absent('shardwise.rowStack', a35);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const narrowCopy = absent('shardwise.narrowCopy', a36);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const diagonalScatter = absent('shardwise.diagonalScatter', a37);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const selectScatter = absent('shardwise.selectScatter', a37);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sliceScatter = absent('shardwise.sliceScatter', a37);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const indexReduce = absent('shardwise.indexReduce', a37);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const poisson = absent('shardwise.poisson', a38);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const distributions = absentNamespace('shardwise.distributions', a39);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const inf = absent('shardwise.inf', a40);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nan = absent('shardwise.nan', a41);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const pi = absent('shardwise.pi', a42);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const newaxis = absent('shardwise.newaxis', a43);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const Size = absent('shardwise.Size', a44);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setPrintoptions = absent('shardwise.setPrintoptions', a45);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setDefaultTensorType = absent('shardwise.setDefaultTensorType', a46);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const useDeterministicAlgorithms = absent('shardwise.useDeterministicAlgorithms', a47);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const areDeterministicAlgorithmsEnabled = absent('shardwise.areDeterministicAlgorithmsEnabled', a47);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setDeterministicDebugMode = absent('shardwise.setDeterministicDebugMode', a47);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const getNumThreads = absent('shardwise.getNumThreads', a48);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setNumThreads = absent('shardwise.setNumThreads', a48);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const getNumInteropThreads = absent('shardwise.getNumInteropThreads', a48);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setNumInteropThreads = absent('shardwise.setNumInteropThreads', a48);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const vmap = absent('shardwise.vmap', a49);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cond = absent('shardwise.cond', a49);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const func = absentNamespace('shardwise.func', a50);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const jit = absentNamespace('shardwise.jit', a51);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fx = absentNamespace('shardwise.fx', a51);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const onnx = absentNamespace('shardwise.onnx', a52);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const hub = absentNamespace('shardwise.hub', a53);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const multiprocessing = absentNamespace('shardwise.multiprocessing', a54);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const backends = absentNamespace('shardwise.backends', a55);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conv1d = absent('shardwise.conv1d', a56);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conv2d = absent('shardwise.conv2d', a56);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conv3d = absent('shardwise.conv3d', a56);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const maxPool2d = absent('shardwise.maxPool2d', a57);
