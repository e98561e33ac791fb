// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent, absentNamespace } from '../absent.js';

const a0 = "is not there: import it from 'shardwise/data'";
const a1 = "is not there: DataLoader of 'shardwise/data' takes arrays, objects and iterables";
const a2 = 'is not there: use saveSafetensors or saveCheckpoint';
const a3 = 'is not there: use loadSafetensors or loadCheckpoint';
const a4 = "is not there: import it from 'shardwise/distributed'";
const a5 = 'is not there: use amp.autocast';
const a6 = 'is not there: use tensor(values), or fromBlob(typedArray) without a copy';
const a7 = 'is not there: use scope(fn)';
const a8 = 'is not there: use matmul';
const a9 = 'is not there: the dtype is float32';
const a10 = 'is not there: the dtype is float64';
const a11 = 'is not there: the dtype is float16';
const a12 = 'is not there: the dtype is int64';
const a13 = 'is not there: the dtype is int32';
const a14 = 'is not there: the dtype is int16';
const a15 = 'is not there: use tensor(values, { dtype })';
const a16 = 'is not there: use uint8, or a signed dtype with more bits';
const a17 = 'is not there yet: there are no complex numbers; keep two tensors';
const a18 = 'is not there yet: compute it from arange and cos';
const a19 = 'is not there: all tensors are dense';
const a20 = 'is not there: there are no quantized tensors; dtypes are 16 bits or wider floats';
const a21 = 'is not there yet: of linear algebra there are products, norm, trace and triangles';
const a22 = 'is not there: use matmul, or einsum';
const a23 = 'is not there: use outer';
const a24 = 'is not there: use dot';
const a25 = 'is not there: the name is short, as acos';
const a26 = 'is not there: use trunc';
const a27 = 'is not there: use sign';
const a28 = 'is not there yet: compute it with methods of tensors; backward differentiates them';
const a29 = 'is not there yet: use histc or bincount';
const a30 = 'is not there: use tensorSplit(x, sections, 2)';
const a31 = 'is not there: use vstack';
const a32 = 'is not there: use narrow and clone';
const a33 = 'is not there yet: copy_ into a view of a clone, as x.clone().select(0, 1).copy_(y)';
const a34 = 'is not there yet: of draws there are rand, randn and multinomial';
const a35 = 'is not there yet: of draws there are rand, randn, bernoulli and multinomial';
const a36 = 'is not there: use Infinity';
const a37 = 'is not there: use NaN';
const a38 = 'is not there: use Math.PI';
const a39 = 'is not there: use x.unsqueeze(dim)';
const a40 = 'is not there: shapes are arrays of numbers';
const a41 = 'is not there: console.log and util.inspect take options of Node';
const a42 = 'is not there: use setDefaultDtype';
const a43 = 'is not there: no switch chooses other kernels';
const a44 = 'is not there: SHARDWISE_NUM_THREADS sets the threads of the CPU';
const a45 = 'is not there yet: write a loop; compile records it';
const a46 = 'is not there yet: use autograd.grad';
const a47 = 'is not there: use compile';
const a48 = 'is not there yet: saveSafetensors writes weights for other programs';
const a49 = "is not there: use loadHuggingFace of 'shardwise/distributed'";
const a50 = "is not there: use launch of 'shardwise/distributed'";
const a51 = 'is not there: use setFloat32MatmulPrecision, or cuda.isAvailable()';
const a52 = 'is not there yet: x.unfold(dim, size, step) and linear compute a convolution';
const a53 = 'is not there yet: x.unfold(dim, size, step) and amax(-1) compute it';

/** Not there. @deprecated @hidden */
export const DataLoader = absent('shardwise.DataLoader', a0);
/** Not there. @deprecated @hidden */
export const BatchSampler = absent('shardwise.BatchSampler', a0);
/** Not there. @deprecated @hidden */
export const RandomSampler = absent('shardwise.RandomSampler', a0);
/** Not there. @deprecated @hidden */
export const SequentialSampler = absent('shardwise.SequentialSampler', a0);
/** Not there. @deprecated @hidden */
export const Dataset = absent('shardwise.Dataset', a1);
/** Not there. @deprecated @hidden */
export const TensorDataset = absent('shardwise.TensorDataset', a1);
/** Not there. @deprecated @hidden */
export const IterableDataset = absent('shardwise.IterableDataset', a1);
/** Not there. @deprecated @hidden */
export const save = absent('shardwise.save', a2);
/** Not there. @deprecated @hidden */
export const load = absent('shardwise.load', a3);
/** Not there. @deprecated @hidden */
export const distributed = absentNamespace('shardwise.distributed', a4);
/** Not there. @deprecated @hidden */
export const autocast = absent('shardwise.autocast', a5);
/** Not there. @deprecated @hidden */
export const fromNumpy = absent('shardwise.fromNumpy', a6);
/** Not there. @deprecated @hidden */
export const frombuffer = absent('shardwise.frombuffer', a6);
/** Not there. @deprecated @hidden */
export const fromDlpack = absent('shardwise.fromDlpack', a6);
/** Not there. @deprecated @hidden */
export const fromFile = absent('shardwise.fromFile', a6);
/** Not there. @deprecated @hidden */
export const asarray = absent('shardwise.asarray', a6);
/** Not there. @deprecated @hidden */
export const tensor1d = absent('shardwise.tensor1d', a6);
/** Not there. @deprecated @hidden */
export const tensor2d = absent('shardwise.tensor2d', a6);
/** Not there. @deprecated @hidden */
export const tensor3d = absent('shardwise.tensor3d', a6);
/** Not there. @deprecated @hidden */
export const scalar = absent('shardwise.scalar', a6);
/** Not there. @deprecated @hidden */
export const tidy = absent('shardwise.tidy', a7);
/** Not there. @deprecated @hidden */
export const matMul = absent('shardwise.matMul', a8);
/** Not there. @deprecated @hidden */
export const float = absent('shardwise.float', a9);
/** Not there. @deprecated @hidden */
export const double = absent('shardwise.double', a10);
/** Not there. @deprecated @hidden */
export const half = absent('shardwise.half', a11);
/** Not there. @deprecated @hidden */
export const long = absent('shardwise.long', a12);
/** Not there. @deprecated @hidden */
export const int = absent('shardwise.int', a13);
/** Not there. @deprecated @hidden */
export const short = absent('shardwise.short', a14);
/** Not there. @deprecated @hidden */
export const FloatTensor = absent('shardwise.FloatTensor', a15);
/** Not there. @deprecated @hidden */
export const DoubleTensor = absent('shardwise.DoubleTensor', a15);
/** Not there. @deprecated @hidden */
export const HalfTensor = absent('shardwise.HalfTensor', a15);
/** Not there. @deprecated @hidden */
export const BFloat16Tensor = absent('shardwise.BFloat16Tensor', a15);
/** Not there. @deprecated @hidden */
export const LongTensor = absent('shardwise.LongTensor', a15);
/** Not there. @deprecated @hidden */
export const IntTensor = absent('shardwise.IntTensor', a15);
/** Not there. @deprecated @hidden */
export const ShortTensor = absent('shardwise.ShortTensor', a15);
/** Not there. @deprecated @hidden */
export const CharTensor = absent('shardwise.CharTensor', a15);
/** Not there. @deprecated @hidden */
export const ByteTensor = absent('shardwise.ByteTensor', a15);
/** Not there. @deprecated @hidden */
export const BoolTensor = absent('shardwise.BoolTensor', a15);
/** Not there. @deprecated @hidden */
export const uint16 = absent('shardwise.uint16', a16);
/** Not there. @deprecated @hidden */
export const uint32 = absent('shardwise.uint32', a16);
/** Not there. @deprecated @hidden */
export const uint64 = absent('shardwise.uint64', a16);
/** Not there. @deprecated @hidden */
export const complex32 = absent('shardwise.complex32', a17);
/** Not there. @deprecated @hidden */
export const complex64 = absent('shardwise.complex64', a17);
/** Not there. @deprecated @hidden */
export const complex128 = absent('shardwise.complex128', a17);
/** Not there. @deprecated @hidden */
export const isComplex = absent('shardwise.isComplex', a17);
/** Not there. @deprecated @hidden */
export const isConj = absent('shardwise.isConj', a17);
/** Not there. @deprecated @hidden */
export const complex = absent('shardwise.complex', a17);
/** Not there. @deprecated @hidden */
export const polar = absent('shardwise.polar', a17);
/** Not there. @deprecated @hidden */
export const conj = absent('shardwise.conj', a17);
/** Not there. @deprecated @hidden */
export const conjPhysical = absent('shardwise.conjPhysical', a17);
/** Not there. @deprecated @hidden */
export const real = absent('shardwise.real', a17);
/** Not there. @deprecated @hidden */
export const imag = absent('shardwise.imag', a17);
/** Not there. @deprecated @hidden */
export const angle = absent('shardwise.angle', a17);
/** Not there. @deprecated @hidden */
export const viewAsReal = absent('shardwise.viewAsReal', a17);
/** Not there. @deprecated @hidden */
export const viewAsComplex = absent('shardwise.viewAsComplex', a17);
/** Not there. @deprecated @hidden */
export const resolveConj = absent('shardwise.resolveConj', a17);
/** Not there. @deprecated @hidden */
export const resolveNeg = absent('shardwise.resolveNeg', a17);
/** Not there. @deprecated @hidden */
export const fft = absentNamespace('shardwise.fft', a17);
/** Not there. @deprecated @hidden */
export const stft = absent('shardwise.stft', a17);
/** Not there. @deprecated @hidden */
export const istft = absent('shardwise.istft', a17);
/** Not there. @deprecated @hidden */
export const bartlettWindow = absent('shardwise.bartlettWindow', a18);
/** Not there. @deprecated @hidden */
export const blackmanWindow = absent('shardwise.blackmanWindow', a18);
/** Not there. @deprecated @hidden */
export const hammingWindow = absent('shardwise.hammingWindow', a18);
/** Not there. @deprecated @hidden */
export const hannWindow = absent('shardwise.hannWindow', a18);
/** Not there. @deprecated @hidden */
export const kaiserWindow = absent('shardwise.kaiserWindow', a18);
/** Not there. @deprecated @hidden */
export const sparseCooTensor = absent('shardwise.sparseCooTensor', a19);
/** Not there. @deprecated @hidden */
export const sparseCsrTensor = absent('shardwise.sparseCsrTensor', a19);
/** Not there. @deprecated @hidden */
export const sparse = absentNamespace('shardwise.sparse', a19);
/** Not there. @deprecated @hidden */
export const quantizePerTensor = absent('shardwise.quantizePerTensor', a20);
/** Not there. @deprecated @hidden */
export const quantizePerChannel = absent('shardwise.quantizePerChannel', a20);
/** Not there. @deprecated @hidden */
export const dequantize = absent('shardwise.dequantize', a20);
/** Not there. @deprecated @hidden */
export const quantization = absentNamespace('shardwise.quantization', a20);
/** Not there. @deprecated @hidden */
export const linalg = absentNamespace('shardwise.linalg', a21);
/** Not there. @deprecated @hidden */
export const cholesky = absent('shardwise.cholesky', a21);
/** Not there. @deprecated @hidden */
export const choleskyInverse = absent('shardwise.choleskyInverse', a21);
/** Not there. @deprecated @hidden */
export const choleskySolve = absent('shardwise.choleskySolve', a21);
/** Not there. @deprecated @hidden */
export const det = absent('shardwise.det', a21);
/** Not there. @deprecated @hidden */
export const geqrf = absent('shardwise.geqrf', a21);
/** Not there. @deprecated @hidden */
export const inverse = absent('shardwise.inverse', a21);
/** Not there. @deprecated @hidden */
export const lobpcg = absent('shardwise.lobpcg', a21);
/** Not there. @deprecated @hidden */
export const logdet = absent('shardwise.logdet', a21);
/** Not there. @deprecated @hidden */
export const lu = absent('shardwise.lu', a21);
/** Not there. @deprecated @hidden */
export const luSolve = absent('shardwise.luSolve', a21);
/** Not there. @deprecated @hidden */
export const luUnpack = absent('shardwise.luUnpack', a21);
/** Not there. @deprecated @hidden */
export const matrixExp = absent('shardwise.matrixExp', a21);
/** Not there. @deprecated @hidden */
export const matrixPower = absent('shardwise.matrixPower', a21);
/** Not there. @deprecated @hidden */
export const orgqr = absent('shardwise.orgqr', a21);
/** Not there. @deprecated @hidden */
export const ormqr = absent('shardwise.ormqr', a21);
/** Not there. @deprecated @hidden */
export const pcaLowrank = absent('shardwise.pcaLowrank', a21);
/** Not there. @deprecated @hidden */
export const pinverse = absent('shardwise.pinverse', a21);
/** Not there. @deprecated @hidden */
export const qr = absent('shardwise.qr', a21);
/** Not there. @deprecated @hidden */
export const slogdet = absent('shardwise.slogdet', a21);
/** Not there. @deprecated @hidden */
export const svd = absent('shardwise.svd', a21);
/** Not there. @deprecated @hidden */
export const svdLowrank = absent('shardwise.svdLowrank', a21);
/** Not there. @deprecated @hidden */
export const triangularSolve = absent('shardwise.triangularSolve', a21);
/** Not there. @deprecated @hidden */
export const chainMatmul = absent('shardwise.chainMatmul', a22);
/** Not there. @deprecated @hidden */
export const ger = absent('shardwise.ger', a23);
/** Not there. @deprecated @hidden */
export const vdot = absent('shardwise.vdot', a24);
/** Not there. @deprecated @hidden */
export const arccos = absent('shardwise.arccos', a25);
/** Not there. @deprecated @hidden */
export const arccosh = absent('shardwise.arccosh', a25);
/** Not there. @deprecated @hidden */
export const arcsin = absent('shardwise.arcsin', a25);
/** Not there. @deprecated @hidden */
export const arcsinh = absent('shardwise.arcsinh', a25);
/** Not there. @deprecated @hidden */
export const arctan = absent('shardwise.arctan', a25);
/** Not there. @deprecated @hidden */
export const arctanh = absent('shardwise.arctanh', a25);
/** Not there. @deprecated @hidden */
export const arctan2 = absent('shardwise.arctan2', a25);
/** Not there. @deprecated @hidden */
export const fix = absent('shardwise.fix', a26);
/** Not there. @deprecated @hidden */
export const sgn = absent('shardwise.sgn', a27);
/** Not there. @deprecated @hidden */
export const copysign = absent('shardwise.copysign', a28);
/** Not there. @deprecated @hidden */
export const digamma = absent('shardwise.digamma', a28);
/** Not there. @deprecated @hidden */
export const erfinv = absent('shardwise.erfinv', a28);
/** Not there. @deprecated @hidden */
export const floatPower = absent('shardwise.floatPower', a28);
/** Not there. @deprecated @hidden */
export const frexp = absent('shardwise.frexp', a28);
/** Not there. @deprecated @hidden */
export const gcd = absent('shardwise.gcd', a28);
/** Not there. @deprecated @hidden */
export const gradient = absent('shardwise.gradient', a28);
/** Not there. @deprecated @hidden */
export const i0 = absent('shardwise.i0', a28);
/** Not there. @deprecated @hidden */
export const igamma = absent('shardwise.igamma', a28);
/** Not there. @deprecated @hidden */
export const igammac = absent('shardwise.igammac', a28);
/** Not there. @deprecated @hidden */
export const lcm = absent('shardwise.lcm', a28);
/** Not there. @deprecated @hidden */
export const ldexp = absent('shardwise.ldexp', a28);
/** Not there. @deprecated @hidden */
export const lgamma = absent('shardwise.lgamma', a28);
/** Not there. @deprecated @hidden */
export const logcumsumexp = absent('shardwise.logcumsumexp', a28);
/** Not there. @deprecated @hidden */
export const mvlgamma = absent('shardwise.mvlgamma', a28);
/** Not there. @deprecated @hidden */
export const nextafter = absent('shardwise.nextafter', a28);
/** Not there. @deprecated @hidden */
export const polygamma = absent('shardwise.polygamma', a28);
/** Not there. @deprecated @hidden */
export const signbit = absent('shardwise.signbit', a28);
/** Not there. @deprecated @hidden */
export const sinc = absent('shardwise.sinc', a28);
/** Not there. @deprecated @hidden */
export const special = absentNamespace('shardwise.special', a28);
/** Not there. @deprecated @hidden */
export const combinations = absent('shardwise.combinations', a28);
/** Not there. @deprecated @hidden */
export const corrcoef = absent('shardwise.corrcoef', a28);
/** Not there. @deprecated @hidden */
export const cov = absent('shardwise.cov', a28);
/** Not there. @deprecated @hidden */
export const cumulativeTrapezoid = absent('shardwise.cumulativeTrapezoid', a28);
/** Not there. @deprecated @hidden */
export const cummax = absent('shardwise.cummax', a28);
/** Not there. @deprecated @hidden */
export const cummin = absent('shardwise.cummin', a28);
/** Not there. @deprecated @hidden */
export const mode = absent('shardwise.mode', a28);
/** Not there. @deprecated @hidden */
export const msort = absent('shardwise.msort', a28);
/** Not there. @deprecated @hidden */
export const nanmedian = absent('shardwise.nanmedian', a28);
/** Not there. @deprecated @hidden */
export const nanquantile = absent('shardwise.nanquantile', a28);
/** Not there. @deprecated @hidden */
export const renorm = absent('shardwise.renorm', a28);
/** Not there. @deprecated @hidden */
export const trapezoid = absent('shardwise.trapezoid', a28);
/** Not there. @deprecated @hidden */
export const trapz = absent('shardwise.trapz', a28);
/** Not there. @deprecated @hidden */
export const vander = absent('shardwise.vander', a28);
/** Not there. @deprecated @hidden */
export const histogram = absent('shardwise.histogram', a29);
/** Not there. @deprecated @hidden */
export const histogramdd = absent('shardwise.histogramdd', a29);
/** Not there. @deprecated @hidden */
export const dsplit = absent('shardwise.dsplit', a30);
/** Not there. @deprecated @hidden */
export const rowStack = absent('shardwise.rowStack', a31);
/** Not there. @deprecated @hidden */
export const narrowCopy = absent('shardwise.narrowCopy', a32);
/** Not there. @deprecated @hidden */
export const diagonalScatter = absent('shardwise.diagonalScatter', a33);
/** Not there. @deprecated @hidden */
export const selectScatter = absent('shardwise.selectScatter', a33);
/** Not there. @deprecated @hidden */
export const sliceScatter = absent('shardwise.sliceScatter', a33);
/** Not there. @deprecated @hidden */
export const indexReduce = absent('shardwise.indexReduce', a33);
/** Not there. @deprecated @hidden */
export const poisson = absent('shardwise.poisson', a34);
/** Not there. @deprecated @hidden */
export const distributions = absentNamespace('shardwise.distributions', a35);
/** Not there. @deprecated @hidden */
export const inf = absent('shardwise.inf', a36);
/** Not there. @deprecated @hidden */
export const nan = absent('shardwise.nan', a37);
/** Not there. @deprecated @hidden */
export const pi = absent('shardwise.pi', a38);
/** Not there. @deprecated @hidden */
export const newaxis = absent('shardwise.newaxis', a39);
/** Not there. @deprecated @hidden */
export const Size = absent('shardwise.Size', a40);
/** Not there. @deprecated @hidden */
export const setPrintoptions = absent('shardwise.setPrintoptions', a41);
/** Not there. @deprecated @hidden */
export const setDefaultTensorType = absent('shardwise.setDefaultTensorType', a42);
/** Not there. @deprecated @hidden */
export const useDeterministicAlgorithms = absent('shardwise.useDeterministicAlgorithms', a43);
/** Not there. @deprecated @hidden */
export const areDeterministicAlgorithmsEnabled = absent('shardwise.areDeterministicAlgorithmsEnabled', a43);
/** Not there. @deprecated @hidden */
export const setDeterministicDebugMode = absent('shardwise.setDeterministicDebugMode', a43);
/** Not there. @deprecated @hidden */
export const getNumThreads = absent('shardwise.getNumThreads', a44);
/** Not there. @deprecated @hidden */
export const setNumThreads = absent('shardwise.setNumThreads', a44);
/** Not there. @deprecated @hidden */
export const getNumInteropThreads = absent('shardwise.getNumInteropThreads', a44);
/** Not there. @deprecated @hidden */
export const setNumInteropThreads = absent('shardwise.setNumInteropThreads', a44);
/** Not there. @deprecated @hidden */
export const vmap = absent('shardwise.vmap', a45);
/** Not there. @deprecated @hidden */
export const cond = absent('shardwise.cond', a45);
/** Not there. @deprecated @hidden */
export const func = absentNamespace('shardwise.func', a46);
/** Not there. @deprecated @hidden */
export const jit = absentNamespace('shardwise.jit', a47);
/** Not there. @deprecated @hidden */
export const fx = absentNamespace('shardwise.fx', a47);
/** Not there. @deprecated @hidden */
export const onnx = absentNamespace('shardwise.onnx', a48);
/** Not there. @deprecated @hidden */
export const hub = absentNamespace('shardwise.hub', a49);
/** Not there. @deprecated @hidden */
export const multiprocessing = absentNamespace('shardwise.multiprocessing', a50);
/** Not there. @deprecated @hidden */
export const backends = absentNamespace('shardwise.backends', a51);
/** Not there. @deprecated @hidden */
export const conv1d = absent('shardwise.conv1d', a52);
/** Not there. @deprecated @hidden */
export const conv2d = absent('shardwise.conv2d', a52);
/** Not there. @deprecated @hidden */
export const conv3d = absent('shardwise.conv3d', a52);
/** Not there. @deprecated @hidden */
export const maxPool2d = absent('shardwise.maxPool2d', a53);
