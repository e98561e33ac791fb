// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent, absentNamespace } from '../absent.js';

const a0 = 'is not there yet: randperm(n).split(batchSize) has batches of indices for x.index([ids])';
const a1 = 'is not there: use saveSafetensors or saveCheckpoint';
const a2 = 'is not there: use loadSafetensors or loadCheckpoint';
const a3 = "is not there: import it from 'shardwise/distributed'";
const a4 = 'is not there: use amp.autocast';
const a5 = 'is not there: use tensor(values), or fromBlob(typedArray) without a copy';
const a6 = 'is not there: use new nn.Parameter(tensor)';
const a7 = 'is not there: use scope(fn)';
const a8 = 'is not there: use matmul';
const a9 = 'is not there: use new nn.Sequential(…)';
const a10 = 'is not there: use nn';
const a11 = 'is not there: use arange, whose end is not included';
const a12 = 'is not there: the dtype is float32';
const a13 = 'is not there: the dtype is float64';
const a14 = 'is not there: the dtype is float16';
const a15 = 'is not there: the dtype is int64';
const a16 = 'is not there: the dtype is int32';
const a17 = 'is not there: the dtype is int16';
const a18 = 'is not there: use tensor(values, { dtype })';
const a19 = 'is not there: use uint8, or a signed dtype with more bits';
const a20 = 'is not there yet: there are no complex numbers; keep two tensors';
const a21 = 'is not there yet: compute it from arange and cos';
const a22 = 'is not there: all tensors are dense';
const a23 = 'is not there: there are no quantized tensors; dtypes are 16 bits or wider floats';
const a24 = 'is not there yet: of linear algebra there are products, norm, trace and triangles';
const a25 = 'is not there: use matmul, or einsum';
const a26 = 'is not there: use outer';
const a27 = 'is not there: use dot';
const a28 = 'is not there: the name is short, as acos';
const a29 = 'is not there: use trunc';
const a30 = 'is not there: use sign';
const a31 = 'is not there yet: compute it with methods of tensors; backward differentiates them';
const a32 = 'is not there yet: use histc or bincount';
const a33 = 'is not there: use tensorSplit(x, sections, 2)';
const a34 = 'is not there: use vstack';
const a35 = 'is not there: use narrow and clone';
const a36 = 'is not there yet: copy_ into a view of a clone, as x.clone().select(0, 1).copy_(y)';
const a37 = 'is not there yet: of draws there are rand, randn and multinomial';
const a38 = 'is not there yet: of draws there are rand, randn, bernoulli and multinomial';
const a39 = 'is not there: use Infinity';
const a40 = 'is not there: use NaN';
const a41 = 'is not there: use Math.PI';
const a42 = 'is not there: use x.unsqueeze(dim)';
const a43 = 'is not there: shapes are arrays of numbers';
const a44 = 'is not there: console.log and util.inspect take options of Node';
const a45 = 'is not there: use setDefaultDtype';
const a46 = 'is not there: no switch chooses other kernels';
const a47 = 'is not there: SHARDWISE_NUM_THREADS sets the threads of the CPU';
const a48 = 'is not there yet: write a loop; compile records it';
const a49 = 'is not there yet: use autograd.grad';
const a50 = 'is not there: use compile';
const a51 = 'is not there yet: saveSafetensors writes weights for other programs';
const a52 = "is not there: use loadHuggingFace of 'shardwise/distributed'";
const a53 = "is not there: use launch of 'shardwise/distributed'";
const a54 = 'is not there: use setFloat32MatmulPrecision, or cuda.isAvailable()';
const a55 = 'is not there yet: x.unfold(dim, size, step) and linear compute a convolution';
const a56 = 'is not there yet: x.unfold(dim, size, step) and amax(-1) compute it';

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
export const array = absent('shardwise.array', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tensor1d = absent('shardwise.tensor1d', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tensor2d = absent('shardwise.tensor2d', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tensor3d = absent('shardwise.tensor3d', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const scalar = absent('shardwise.scalar', a5);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const variable = absent('shardwise.variable', a6);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const tidy = absent('shardwise.tidy', a7);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const matMul = absent('shardwise.matMul', a8);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sequential = absent('shardwise.sequential', a9);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const layers = absentNamespace('shardwise.layers', a10);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const range = absent('shardwise.range', a11);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const float = absent('shardwise.float', a12);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const double = absent('shardwise.double', a13);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const half = absent('shardwise.half', a14);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const long = absent('shardwise.long', a15);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const int = absent('shardwise.int', a16);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const short = absent('shardwise.short', a17);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const FloatTensor = absent('shardwise.FloatTensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const DoubleTensor = absent('shardwise.DoubleTensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const HalfTensor = absent('shardwise.HalfTensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const BFloat16Tensor = absent('shardwise.BFloat16Tensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const LongTensor = absent('shardwise.LongTensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const IntTensor = absent('shardwise.IntTensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ShortTensor = absent('shardwise.ShortTensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const CharTensor = absent('shardwise.CharTensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ByteTensor = absent('shardwise.ByteTensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const BoolTensor = absent('shardwise.BoolTensor', a18);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const uint16 = absent('shardwise.uint16', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const uint32 = absent('shardwise.uint32', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const uint64 = absent('shardwise.uint64', a19);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex32 = absent('shardwise.complex32', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex64 = absent('shardwise.complex64', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex128 = absent('shardwise.complex128', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const isComplex = absent('shardwise.isComplex', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const isConj = absent('shardwise.isConj', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const complex = absent('shardwise.complex', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const polar = absent('shardwise.polar', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conj = absent('shardwise.conj', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conjPhysical = absent('shardwise.conjPhysical', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const real = absent('shardwise.real', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const imag = absent('shardwise.imag', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const angle = absent('shardwise.angle', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const viewAsReal = absent('shardwise.viewAsReal', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const viewAsComplex = absent('shardwise.viewAsComplex', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const resolveConj = absent('shardwise.resolveConj', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const resolveNeg = absent('shardwise.resolveNeg', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fft = absentNamespace('shardwise.fft', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const stft = absent('shardwise.stft', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const istft = absent('shardwise.istft', a20);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const bartlettWindow = absent('shardwise.bartlettWindow', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const blackmanWindow = absent('shardwise.blackmanWindow', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const hammingWindow = absent('shardwise.hammingWindow', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const hannWindow = absent('shardwise.hannWindow', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const kaiserWindow = absent('shardwise.kaiserWindow', a21);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sparseCooTensor = absent('shardwise.sparseCooTensor', a22);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sparseCsrTensor = absent('shardwise.sparseCsrTensor', a22);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sparse = absentNamespace('shardwise.sparse', a22);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const quantizePerTensor = absent('shardwise.quantizePerTensor', a23);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const quantizePerChannel = absent('shardwise.quantizePerChannel', a23);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const dequantize = absent('shardwise.dequantize', a23);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const quantization = absentNamespace('shardwise.quantization', a23);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const linalg = absentNamespace('shardwise.linalg', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cholesky = absent('shardwise.cholesky', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const choleskyInverse = absent('shardwise.choleskyInverse', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const choleskySolve = absent('shardwise.choleskySolve', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const det = absent('shardwise.det', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const geqrf = absent('shardwise.geqrf', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const inverse = absent('shardwise.inverse', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lobpcg = absent('shardwise.lobpcg', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const logdet = absent('shardwise.logdet', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lu = absent('shardwise.lu', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const luSolve = absent('shardwise.luSolve', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const luUnpack = absent('shardwise.luUnpack', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const matrixExp = absent('shardwise.matrixExp', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const matrixPower = absent('shardwise.matrixPower', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const orgqr = absent('shardwise.orgqr', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ormqr = absent('shardwise.ormqr', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const pcaLowrank = absent('shardwise.pcaLowrank', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const pinverse = absent('shardwise.pinverse', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const qr = absent('shardwise.qr', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const slogdet = absent('shardwise.slogdet', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const svd = absent('shardwise.svd', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const svdLowrank = absent('shardwise.svdLowrank', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const triangularSolve = absent('shardwise.triangularSolve', a24);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const chainMatmul = absent('shardwise.chainMatmul', a25);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ger = absent('shardwise.ger', a26);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const vdot = absent('shardwise.vdot', a27);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arccos = absent('shardwise.arccos', a28);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arccosh = absent('shardwise.arccosh', a28);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arcsin = absent('shardwise.arcsin', a28);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arcsinh = absent('shardwise.arcsinh', a28);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arctan = absent('shardwise.arctan', a28);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arctanh = absent('shardwise.arctanh', a28);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const arctan2 = absent('shardwise.arctan2', a28);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fix = absent('shardwise.fix', a29);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sgn = absent('shardwise.sgn', a30);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const copysign = absent('shardwise.copysign', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const digamma = absent('shardwise.digamma', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const erfinv = absent('shardwise.erfinv', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const floatPower = absent('shardwise.floatPower', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const frexp = absent('shardwise.frexp', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const gcd = absent('shardwise.gcd', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const gradient = absent('shardwise.gradient', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const i0 = absent('shardwise.i0', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const igamma = absent('shardwise.igamma', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const igammac = absent('shardwise.igammac', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lcm = absent('shardwise.lcm', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const ldexp = absent('shardwise.ldexp', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const lgamma = absent('shardwise.lgamma', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const logcumsumexp = absent('shardwise.logcumsumexp', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const mvlgamma = absent('shardwise.mvlgamma', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nextafter = absent('shardwise.nextafter', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const polygamma = absent('shardwise.polygamma', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const signbit = absent('shardwise.signbit', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sinc = absent('shardwise.sinc', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const special = absentNamespace('shardwise.special', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const combinations = absent('shardwise.combinations', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const corrcoef = absent('shardwise.corrcoef', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cov = absent('shardwise.cov', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cumulativeTrapezoid = absent('shardwise.cumulativeTrapezoid', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cummax = absent('shardwise.cummax', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cummin = absent('shardwise.cummin', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const mode = absent('shardwise.mode', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const msort = absent('shardwise.msort', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nanmedian = absent('shardwise.nanmedian', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nanquantile = absent('shardwise.nanquantile', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const renorm = absent('shardwise.renorm', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const trapezoid = absent('shardwise.trapezoid', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const trapz = absent('shardwise.trapz', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const vander = absent('shardwise.vander', a31);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const histogram = absent('shardwise.histogram', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const histogramdd = absent('shardwise.histogramdd', a32);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const dsplit = absent('shardwise.dsplit', a33);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const rowStack = absent('shardwise.rowStack', a34);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const narrowCopy = absent('shardwise.narrowCopy', a35);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const diagonalScatter = absent('shardwise.diagonalScatter', a36);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const selectScatter = absent('shardwise.selectScatter', a36);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const sliceScatter = absent('shardwise.sliceScatter', a36);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const indexReduce = absent('shardwise.indexReduce', a36);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const poisson = absent('shardwise.poisson', a37);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const distributions = absentNamespace('shardwise.distributions', a38);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const inf = absent('shardwise.inf', a39);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const nan = absent('shardwise.nan', a40);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const pi = absent('shardwise.pi', a41);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const newaxis = absent('shardwise.newaxis', a42);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const Size = absent('shardwise.Size', a43);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setPrintoptions = absent('shardwise.setPrintoptions', a44);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setDefaultTensorType = absent('shardwise.setDefaultTensorType', a45);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const useDeterministicAlgorithms = absent('shardwise.useDeterministicAlgorithms', a46);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const areDeterministicAlgorithmsEnabled = absent('shardwise.areDeterministicAlgorithmsEnabled', a46);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setDeterministicDebugMode = absent('shardwise.setDeterministicDebugMode', a46);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const getNumThreads = absent('shardwise.getNumThreads', a47);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setNumThreads = absent('shardwise.setNumThreads', a47);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const getNumInteropThreads = absent('shardwise.getNumInteropThreads', a47);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const setNumInteropThreads = absent('shardwise.setNumInteropThreads', a47);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const vmap = absent('shardwise.vmap', a48);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const cond = absent('shardwise.cond', a48);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const func = absentNamespace('shardwise.func', a49);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const jit = absentNamespace('shardwise.jit', a50);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const fx = absentNamespace('shardwise.fx', a50);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const onnx = absentNamespace('shardwise.onnx', a51);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const hub = absentNamespace('shardwise.hub', a52);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const multiprocessing = absentNamespace('shardwise.multiprocessing', a53);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const backends = absentNamespace('shardwise.backends', a54);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conv1d = absent('shardwise.conv1d', a55);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conv2d = absent('shardwise.conv2d', a55);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const conv3d = absent('shardwise.conv3d', a55);
/** Not there: its type says what to use instead. @deprecated @hidden */
export const maxPool2d = absent('shardwise.maxPool2d', a56);
