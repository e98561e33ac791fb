// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent, absentNamespace } from '../absent.js';

const a0 = 'is not there yet: randperm(n).split(batchSize) has batches of indices for x.index([ids])';
const a1 = 'is not there: use saveSafetensors or saveCheckpoint';
const a2 = 'is not there: use loadSafetensors or loadCheckpoint';
const a3 = "is not there: import it from 'shardwise/distributed'";
const a4 = 'is not there: use amp.autocast';
const a5 = 'is not there: use tensor(values), or fromBlob(typedArray) without a copy';
const a6 = 'is not there: use scope(fn)';
const a7 = 'is not there: use matmul';
const a8 = 'is not there: the dtype is float32';
const a9 = 'is not there: the dtype is float64';
const a10 = 'is not there: the dtype is float16';
const a11 = 'is not there: the dtype is int64';
const a12 = 'is not there: the dtype is int32';
const a13 = 'is not there: the dtype is int16';
const a14 = 'is not there: use tensor(values, { dtype })';
const a15 = 'is not there: use uint8, or a signed dtype with more bits';
const a16 = 'is not there yet: there are no complex numbers; keep two tensors';
const a17 = 'is not there yet: compute it from arange and cos';
const a18 = 'is not there: all tensors are dense';
const a19 = 'is not there: there are no quantized tensors; dtypes are 16 bits or wider floats';
const a20 = 'is not there yet: of linear algebra there are products, norm, trace and triangles';
const a21 = 'is not there: use matmul, or einsum';
const a22 = 'is not there: use outer';
const a23 = 'is not there: use dot';
const a24 = 'is not there: the name is short, as acos';
const a25 = 'is not there: use trunc';
const a26 = 'is not there: use sign';
const a27 = 'is not there yet: compute it with methods of tensors; backward differentiates them';
const a28 = 'is not there yet: use histc or bincount';
const a29 = 'is not there: use tensorSplit(x, sections, 2)';
const a30 = 'is not there: use vstack';
const a31 = 'is not there: use narrow and clone';
const a32 = 'is not there yet: copy_ into a view of a clone, as x.clone().select(0, 1).copy_(y)';
const a33 = 'is not there yet: of draws there are rand, randn and multinomial';
const a34 = 'is not there yet: of draws there are rand, randn, bernoulli and multinomial';
const a35 = 'is not there: use Infinity';
const a36 = 'is not there: use NaN';
const a37 = 'is not there: use Math.PI';
const a38 = 'is not there: use x.unsqueeze(dim)';
const a39 = 'is not there: shapes are arrays of numbers';
const a40 = 'is not there: console.log and util.inspect take options of Node';
const a41 = 'is not there: use setDefaultDtype';
const a42 = 'is not there: no switch chooses other kernels';
const a43 = 'is not there: SHARDWISE_NUM_THREADS sets the threads of the CPU';
const a44 = 'is not there yet: write a loop; compile records it';
const a45 = 'is not there yet: use autograd.grad';
const a46 = 'is not there: use compile';
const a47 = 'is not there yet: saveSafetensors writes weights for other programs';
const a48 = "is not there: use loadHuggingFace of 'shardwise/distributed'";
const a49 = "is not there: use launch of 'shardwise/distributed'";
const a50 = 'is not there: use setFloat32MatmulPrecision, or cuda.isAvailable()';
const a51 = 'is not there yet: x.unfold(dim, size, step) and linear compute a convolution';
const a52 = 'is not there yet: x.unfold(dim, size, step) and amax(-1) compute it';

/** Not there: its type says what to use instead. @deprecated @hidden */
export const DataLoader = absent('shardwise.DataLoader', a0);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const Dataset = absent('shardwise.Dataset', a0);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const TensorDataset = absent('shardwise.TensorDataset', a0);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const save = absent('shardwise.save', a1);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const load = absent('shardwise.load', a2);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const distributed = absentNamespace('shardwise.distributed', a3);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const autocast = absent('shardwise.autocast', a4);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fromNumpy = absent('shardwise.fromNumpy', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const frombuffer = absent('shardwise.frombuffer', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fromDlpack = absent('shardwise.fromDlpack', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fromFile = absent('shardwise.fromFile', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const asarray = absent('shardwise.asarray', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tensor1d = absent('shardwise.tensor1d', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tensor2d = absent('shardwise.tensor2d', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tensor3d = absent('shardwise.tensor3d', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const scalar = absent('shardwise.scalar', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tidy = absent('shardwise.tidy', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const matMul = absent('shardwise.matMul', a7);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const float = absent('shardwise.float', a8);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const double = absent('shardwise.double', a9);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const half = absent('shardwise.half', a10);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const long = absent('shardwise.long', a11);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const int = absent('shardwise.int', a12);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const short = absent('shardwise.short', a13);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const FloatTensor = absent('shardwise.FloatTensor', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const DoubleTensor = absent('shardwise.DoubleTensor', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const HalfTensor = absent('shardwise.HalfTensor', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const BFloat16Tensor = absent('shardwise.BFloat16Tensor', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const LongTensor = absent('shardwise.LongTensor', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const IntTensor = absent('shardwise.IntTensor', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ShortTensor = absent('shardwise.ShortTensor', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const CharTensor = absent('shardwise.CharTensor', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ByteTensor = absent('shardwise.ByteTensor', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const BoolTensor = absent('shardwise.BoolTensor', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const uint16 = absent('shardwise.uint16', a15);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const uint32 = absent('shardwise.uint32', a15);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const uint64 = absent('shardwise.uint64', a15);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex32 = absent('shardwise.complex32', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex64 = absent('shardwise.complex64', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex128 = absent('shardwise.complex128', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const isComplex = absent('shardwise.isComplex', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const isConj = absent('shardwise.isConj', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex = absent('shardwise.complex', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const polar = absent('shardwise.polar', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conj = absent('shardwise.conj', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conjPhysical = absent('shardwise.conjPhysical', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const real = absent('shardwise.real', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const imag = absent('shardwise.imag', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const angle = absent('shardwise.angle', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const viewAsReal = absent('shardwise.viewAsReal', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const viewAsComplex = absent('shardwise.viewAsComplex', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const resolveConj = absent('shardwise.resolveConj', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const resolveNeg = absent('shardwise.resolveNeg', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fft = absentNamespace('shardwise.fft', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const stft = absent('shardwise.stft', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const istft = absent('shardwise.istft', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const bartlettWindow = absent('shardwise.bartlettWindow', a17);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const blackmanWindow = absent('shardwise.blackmanWindow', a17);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const hammingWindow = absent('shardwise.hammingWindow', a17);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const hannWindow = absent('shardwise.hannWindow', a17);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const kaiserWindow = absent('shardwise.kaiserWindow', a17);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sparseCooTensor = absent('shardwise.sparseCooTensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sparseCsrTensor = absent('shardwise.sparseCsrTensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sparse = absentNamespace('shardwise.sparse', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const quantizePerTensor = absent('shardwise.quantizePerTensor', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const quantizePerChannel = absent('shardwise.quantizePerChannel', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const dequantize = absent('shardwise.dequantize', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const quantization = absentNamespace('shardwise.quantization', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const linalg = absentNamespace('shardwise.linalg', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cholesky = absent('shardwise.cholesky', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const choleskyInverse = absent('shardwise.choleskyInverse', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const choleskySolve = absent('shardwise.choleskySolve', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const det = absent('shardwise.det', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const geqrf = absent('shardwise.geqrf', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const inverse = absent('shardwise.inverse', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lobpcg = absent('shardwise.lobpcg', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const logdet = absent('shardwise.logdet', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lu = absent('shardwise.lu', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const luSolve = absent('shardwise.luSolve', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const luUnpack = absent('shardwise.luUnpack', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const matrixExp = absent('shardwise.matrixExp', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const matrixPower = absent('shardwise.matrixPower', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const orgqr = absent('shardwise.orgqr', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ormqr = absent('shardwise.ormqr', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const pcaLowrank = absent('shardwise.pcaLowrank', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const pinverse = absent('shardwise.pinverse', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const qr = absent('shardwise.qr', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const slogdet = absent('shardwise.slogdet', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const svd = absent('shardwise.svd', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const svdLowrank = absent('shardwise.svdLowrank', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const triangularSolve = absent('shardwise.triangularSolve', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const chainMatmul = absent('shardwise.chainMatmul', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ger = absent('shardwise.ger', a22);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const vdot = absent('shardwise.vdot', a23);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arccos = absent('shardwise.arccos', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arccosh = absent('shardwise.arccosh', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arcsin = absent('shardwise.arcsin', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arcsinh = absent('shardwise.arcsinh', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arctan = absent('shardwise.arctan', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arctanh = absent('shardwise.arctanh', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arctan2 = absent('shardwise.arctan2', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fix = absent('shardwise.fix', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sgn = absent('shardwise.sgn', a26);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const copysign = absent('shardwise.copysign', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const digamma = absent('shardwise.digamma', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const erfinv = absent('shardwise.erfinv', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const floatPower = absent('shardwise.floatPower', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const frexp = absent('shardwise.frexp', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const gcd = absent('shardwise.gcd', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const gradient = absent('shardwise.gradient', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const i0 = absent('shardwise.i0', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const igamma = absent('shardwise.igamma', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const igammac = absent('shardwise.igammac', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lcm = absent('shardwise.lcm', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ldexp = absent('shardwise.ldexp', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lgamma = absent('shardwise.lgamma', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const logcumsumexp = absent('shardwise.logcumsumexp', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const mvlgamma = absent('shardwise.mvlgamma', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nextafter = absent('shardwise.nextafter', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const polygamma = absent('shardwise.polygamma', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const signbit = absent('shardwise.signbit', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sinc = absent('shardwise.sinc', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const special = absentNamespace('shardwise.special', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const combinations = absent('shardwise.combinations', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const corrcoef = absent('shardwise.corrcoef', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cov = absent('shardwise.cov', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cumulativeTrapezoid = absent('shardwise.cumulativeTrapezoid', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cummax = absent('shardwise.cummax', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cummin = absent('shardwise.cummin', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const mode = absent('shardwise.mode', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const msort = absent('shardwise.msort', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nanmedian = absent('shardwise.nanmedian', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nanquantile = absent('shardwise.nanquantile', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const renorm = absent('shardwise.renorm', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const trapezoid = absent('shardwise.trapezoid', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const trapz = absent('shardwise.trapz', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const vander = absent('shardwise.vander', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const histogram = absent('shardwise.histogram', a28);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const histogramdd = absent('shardwise.histogramdd', a28);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const dsplit = absent('shardwise.dsplit', a29);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const rowStack = absent('shardwise.rowStack', a30);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const narrowCopy = absent('shardwise.narrowCopy', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const diagonalScatter = absent('shardwise.diagonalScatter', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const selectScatter = absent('shardwise.selectScatter', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sliceScatter = absent('shardwise.sliceScatter', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const indexReduce = absent('shardwise.indexReduce', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const poisson = absent('shardwise.poisson', a33);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const distributions = absentNamespace('shardwise.distributions', a34);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const inf = absent('shardwise.inf', a35);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nan = absent('shardwise.nan', a36);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const pi = absent('shardwise.pi', a37);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const newaxis = absent('shardwise.newaxis', a38);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const Size = absent('shardwise.Size', a39);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setPrintoptions = absent('shardwise.setPrintoptions', a40);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setDefaultTensorType = absent('shardwise.setDefaultTensorType', a41);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const useDeterministicAlgorithms = absent('shardwise.useDeterministicAlgorithms', a42);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const areDeterministicAlgorithmsEnabled = absent('shardwise.areDeterministicAlgorithmsEnabled', a42);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setDeterministicDebugMode = absent('shardwise.setDeterministicDebugMode', a42);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const getNumThreads = absent('shardwise.getNumThreads', a43);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setNumThreads = absent('shardwise.setNumThreads', a43);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const getNumInteropThreads = absent('shardwise.getNumInteropThreads', a43);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setNumInteropThreads = absent('shardwise.setNumInteropThreads', a43);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const vmap = absent('shardwise.vmap', a44);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cond = absent('shardwise.cond', a44);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const func = absentNamespace('shardwise.func', a45);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const jit = absentNamespace('shardwise.jit', a46);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fx = absentNamespace('shardwise.fx', a46);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const onnx = absentNamespace('shardwise.onnx', a47);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const hub = absentNamespace('shardwise.hub', a48);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const multiprocessing = absentNamespace('shardwise.multiprocessing', a49);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const backends = absentNamespace('shardwise.backends', a50);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conv1d = absent('shardwise.conv1d', a51);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conv2d = absent('shardwise.conv2d', a51);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conv3d = absent('shardwise.conv3d', a51);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const maxPool2d = absent('shardwise.maxPool2d', a52);
