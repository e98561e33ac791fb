// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent, addAbsent } from '../absent.js';
import { Tensor } from '../tensor.js';

const a0 = 'is not there: await x.read() gives a typed array; x.tolist() gives nested arrays';
const a1 = 'is not there: x.toTypedArray() and x.tolist() block; await x.read() does not';
const a2 = 'is not there: a tensor is no array; take x.tolist(), or [...x] for its rows';
const a3 = 'is not there: use cat([a, b], dim)';
const a4 = 'is not there: use console.log(x)';
const a5 = 'is not there: use x.clone()';
const a6 = 'is not there: use x.fill_(value)';
const a7 = 'is not there: use x.to(dtype)';
const a8 = 'is not there: use x.item()';
const a9 = 'is not there: use x.unsqueeze(dim)';
const a10 = 'is not there: use x.matmul(y)';
const a11 = 'is not there: use x.untypedStorage()';
const a12 = 'is not there: use x.device';
const a13 = 'is not there: use x.reshape(shape), or x.untypedStorage().resize_(bytes)';
const a14 = 'is not there: y = x.transpose(0, 1)';
const a15 = 'is not there: y = x.squeeze(dim), or unsqueeze';
const a16 = 'is not there: methods such as x.exp() are much faster';
const a17 = 'is not there yet: use uniform_ or normal_';
const a18 = 'is not there yet: use x.view([-1]).indexPut_([ids], values)';
const a19 = 'is not there: use x.trunc()';
const a20 = 'is not there: use x.sign()';
const a21 = 'is not there: use x.outer(y)';
const a22 = 'is not there: use x.dot(y)';
const a23 = 'is not there: import the function, and give it x first';
const a24 = 'is not there: use x.tensorSplit(sections, 2)';
const a25 = 'is not there: use x.narrow(dim, start, length).clone()';
const a26 = 'is not there yet: of linear algebra there are products, norm, trace and triangles';
const a27 = 'is not there yet: there are no complex numbers; keep two tensors';
const a28 = 'is not there yet: compute it with methods of tensors; backward differentiates them';
const a29 = 'is not there yet: use x.histc() or x.bincount()';
const a30 = 'is not there yet: use x.scatterReduce(dim, index, source, reduce)';
const a31 = 'is not there: use x.leakyRelu()';
const a32 = 'is not there: all tensors are dense';
const a33 = 'is not there: there are no quantized tensors; dtypes are 16 bits or wider floats';
const a34 = 'is not there: threads get typed arrays; see docs/worker-threads.md';
const a35 = 'is not there: dims have no names';

const absentMethods = {
  /** Not there. @deprecated @hidden */
  numpy: absent('Tensor.numpy', a0),
  /** Not there. @deprecated @hidden */
  array: absent('Tensor.array', a0),
  /** Not there. @deprecated @hidden */
  bytes: absent('Tensor.bytes', a0),
  /** Not there. @deprecated @hidden */
  dataSync: absent('Tensor.dataSync', a1),
  /** Not there. @deprecated @hidden */
  arraySync: absent('Tensor.arraySync', a1),
  /** Not there. @deprecated @hidden */
  map: absent('Tensor.map', a2),
  /** Not there. @deprecated @hidden */
  forEach: absent('Tensor.forEach', a2),
  /** Not there. @deprecated @hidden */
  filter: absent('Tensor.filter', a2),
  /** Not there. @deprecated @hidden */
  reduce: absent('Tensor.reduce', a2),
  /** Not there. @deprecated @hidden */
  find: absent('Tensor.find', a2),
  /** Not there. @deprecated @hidden */
  some: absent('Tensor.some', a2),
  /** Not there. @deprecated @hidden */
  every: absent('Tensor.every', a2),
  /** Not there. @deprecated @hidden */
  indexOf: absent('Tensor.indexOf', a2),
  /** Not there. @deprecated @hidden */
  includes: absent('Tensor.includes', a2),
  /** Not there. @deprecated @hidden */
  join: absent('Tensor.join', a2),
  /** Not there. @deprecated @hidden */
  push: absent('Tensor.push', a2),
  /** Not there. @deprecated @hidden */
  pop: absent('Tensor.pop', a2),
  /** Not there. @deprecated @hidden */
  splice: absent('Tensor.splice', a2),
  /** Not there. @deprecated @hidden */
  at: absent('Tensor.at', a2),
  /** Not there. @deprecated @hidden */
  concat: absent('Tensor.concat', a3),
  /** Not there. @deprecated @hidden */
  print: absent('Tensor.print', a4),
  /** Not there. @deprecated @hidden */
  copy: absent('Tensor.copy', a5),
  /** Not there. @deprecated @hidden */
  fill: absent('Tensor.fill', a6),
  /** Not there. @deprecated @hidden */
  astype: absent('Tensor.astype', a7),
  /** Not there. @deprecated @hidden */
  asType: absent('Tensor.asType', a7),
  /** Not there. @deprecated @hidden */
  toFloat: absent('Tensor.toFloat', a7),
  /** Not there. @deprecated @hidden */
  toInt: absent('Tensor.toInt', a7),
  /** Not there. @deprecated @hidden */
  toBool: absent('Tensor.toBool', a7),
  /** Not there. @deprecated @hidden */
  asScalar: absent('Tensor.asScalar', a8),
  /** Not there. @deprecated @hidden */
  expandDims: absent('Tensor.expandDims', a9),
  /** Not there. @deprecated @hidden */
  matMul: absent('Tensor.matMul', a10),
  /** Not there. @deprecated @hidden */
  dataPtr: absent('Tensor.dataPtr', a11),
  /** Not there. @deprecated @hidden */
  getDevice: absent('Tensor.getDevice', a12),
  /** Not there. @deprecated @hidden */
  resize_: absent('Tensor.resize_', a13),
  /** Not there. @deprecated @hidden */
  resizeAs_: absent('Tensor.resizeAs_', a13),
  /** Not there. @deprecated @hidden */
  swapaxes_: absent('Tensor.swapaxes_', a14),
  /** Not there. @deprecated @hidden */
  swapdims_: absent('Tensor.swapdims_', a14),
  /** Not there. @deprecated @hidden */
  transpose_: absent('Tensor.transpose_', a14),
  /** Not there. @deprecated @hidden */
  t_: absent('Tensor.t_', a14),
  /** Not there. @deprecated @hidden */
  squeeze_: absent('Tensor.squeeze_', a15),
  /** Not there. @deprecated @hidden */
  unsqueeze_: absent('Tensor.unsqueeze_', a15),
  /** Not there. @deprecated @hidden */
  apply_: absent('Tensor.apply_', a16),
  /** Not there. @deprecated @hidden */
  map_: absent('Tensor.map_', a16),
  /** Not there. @deprecated @hidden */
  map2_: absent('Tensor.map2_', a16),
  /** Not there. @deprecated @hidden */
  cauchy_: absent('Tensor.cauchy_', a17),
  /** Not there. @deprecated @hidden */
  geometric_: absent('Tensor.geometric_', a17),
  /** Not there. @deprecated @hidden */
  logNormal_: absent('Tensor.logNormal_', a17),
  /** Not there. @deprecated @hidden */
  put_: absent('Tensor.put_', a18),
  /** Not there. @deprecated @hidden */
  fix: absent('Tensor.fix', a19),
  /** Not there. @deprecated @hidden */
  sgn: absent('Tensor.sgn', a20),
  /** Not there. @deprecated @hidden */
  ger: absent('Tensor.ger', a21),
  /** Not there. @deprecated @hidden */
  vdot: absent('Tensor.vdot', a22),
  /** Not there. @deprecated @hidden */
  tensordot: absent('Tensor.tensordot', a23),
  /** Not there. @deprecated @hidden */
  cdist: absent('Tensor.cdist', a23),
  /** Not there. @deprecated @hidden */
  dsplit: absent('Tensor.dsplit', a24),
  /** Not there. @deprecated @hidden */
  narrowCopy: absent('Tensor.narrowCopy', a25),
  /** Not there. @deprecated @hidden */
  cholesky: absent('Tensor.cholesky', a26),
  /** Not there. @deprecated @hidden */
  det: absent('Tensor.det', a26),
  /** Not there. @deprecated @hidden */
  inverse: absent('Tensor.inverse', a26),
  /** Not there. @deprecated @hidden */
  logdet: absent('Tensor.logdet', a26),
  /** Not there. @deprecated @hidden */
  lu: absent('Tensor.lu', a26),
  /** Not there. @deprecated @hidden */
  luSolve: absent('Tensor.luSolve', a26),
  /** Not there. @deprecated @hidden */
  lstsq: absent('Tensor.lstsq', a26),
  /** Not there. @deprecated @hidden */
  matrixExp: absent('Tensor.matrixExp', a26),
  /** Not there. @deprecated @hidden */
  matrixPower: absent('Tensor.matrixPower', a26),
  /** Not there. @deprecated @hidden */
  orgqr: absent('Tensor.orgqr', a26),
  /** Not there. @deprecated @hidden */
  pinverse: absent('Tensor.pinverse', a26),
  /** Not there. @deprecated @hidden */
  qr: absent('Tensor.qr', a26),
  /** Not there. @deprecated @hidden */
  slogdet: absent('Tensor.slogdet', a26),
  /** Not there. @deprecated @hidden */
  svd: absent('Tensor.svd', a26),
  /** Not there. @deprecated @hidden */
  triangularSolve: absent('Tensor.triangularSolve', a26),
  /** Not there. @deprecated @hidden */
  conj: absent('Tensor.conj', a27),
  /** Not there. @deprecated @hidden */
  conjPhysical: absent('Tensor.conjPhysical', a27),
  /** Not there. @deprecated @hidden */
  angle: absent('Tensor.angle', a27),
  /** Not there. @deprecated @hidden */
  isComplex: absent('Tensor.isComplex', a27),
  /** Not there. @deprecated @hidden */
  isConj: absent('Tensor.isConj', a27),
  /** Not there. @deprecated @hidden */
  resolveConj: absent('Tensor.resolveConj', a27),
  /** Not there. @deprecated @hidden */
  viewAsReal: absent('Tensor.viewAsReal', a27),
  /** Not there. @deprecated @hidden */
  cdouble: absent('Tensor.cdouble', a27),
  /** Not there. @deprecated @hidden */
  cfloat: absent('Tensor.cfloat', a27),
  /** Not there. @deprecated @hidden */
  chalf: absent('Tensor.chalf', a27),
  /** Not there. @deprecated @hidden */
  stft: absent('Tensor.stft', a27),
  /** Not there. @deprecated @hidden */
  istft: absent('Tensor.istft', a27),
  /** Not there. @deprecated @hidden */
  copysign: absent('Tensor.copysign', a28),
  /** Not there. @deprecated @hidden */
  corrcoef: absent('Tensor.corrcoef', a28),
  /** Not there. @deprecated @hidden */
  cov: absent('Tensor.cov', a28),
  /** Not there. @deprecated @hidden */
  cummax: absent('Tensor.cummax', a28),
  /** Not there. @deprecated @hidden */
  cummin: absent('Tensor.cummin', a28),
  /** Not there. @deprecated @hidden */
  digamma: absent('Tensor.digamma', a28),
  /** Not there. @deprecated @hidden */
  erfinv: absent('Tensor.erfinv', a28),
  /** Not there. @deprecated @hidden */
  floatPower: absent('Tensor.floatPower', a28),
  /** Not there. @deprecated @hidden */
  frexp: absent('Tensor.frexp', a28),
  /** Not there. @deprecated @hidden */
  gcd: absent('Tensor.gcd', a28),
  /** Not there. @deprecated @hidden */
  i0: absent('Tensor.i0', a28),
  /** Not there. @deprecated @hidden */
  igamma: absent('Tensor.igamma', a28),
  /** Not there. @deprecated @hidden */
  lcm: absent('Tensor.lcm', a28),
  /** Not there. @deprecated @hidden */
  ldexp: absent('Tensor.ldexp', a28),
  /** Not there. @deprecated @hidden */
  lgamma: absent('Tensor.lgamma', a28),
  /** Not there. @deprecated @hidden */
  logcumsumexp: absent('Tensor.logcumsumexp', a28),
  /** Not there. @deprecated @hidden */
  mode: absent('Tensor.mode', a28),
  /** Not there. @deprecated @hidden */
  msort: absent('Tensor.msort', a28),
  /** Not there. @deprecated @hidden */
  mvlgamma: absent('Tensor.mvlgamma', a28),
  /** Not there. @deprecated @hidden */
  nanmedian: absent('Tensor.nanmedian', a28),
  /** Not there. @deprecated @hidden */
  nanquantile: absent('Tensor.nanquantile', a28),
  /** Not there. @deprecated @hidden */
  nextafter: absent('Tensor.nextafter', a28),
  /** Not there. @deprecated @hidden */
  polygamma: absent('Tensor.polygamma', a28),
  /** Not there. @deprecated @hidden */
  renorm: absent('Tensor.renorm', a28),
  /** Not there. @deprecated @hidden */
  signbit: absent('Tensor.signbit', a28),
  /** Not there. @deprecated @hidden */
  sinc: absent('Tensor.sinc', a28),
  /** Not there. @deprecated @hidden */
  trapz: absent('Tensor.trapz', a28),
  /** Not there. @deprecated @hidden */
  histogram: absent('Tensor.histogram', a29),
  /** Not there. @deprecated @hidden */
  indexReduce: absent('Tensor.indexReduce', a30),
  /** Not there. @deprecated @hidden */
  rrelu: absent('Tensor.rrelu', a31),
  /** Not there. @deprecated @hidden */
  toDense: absent('Tensor.toDense', a32),
  /** Not there. @deprecated @hidden */
  toSparse: absent('Tensor.toSparse', a32),
  /** Not there. @deprecated @hidden */
  coalesce: absent('Tensor.coalesce', a32),
  /** Not there. @deprecated @hidden */
  sparseMask: absent('Tensor.sparseMask', a32),
  /** Not there. @deprecated @hidden */
  smm: absent('Tensor.smm', a32),
  /** Not there. @deprecated @hidden */
  dequantize: absent('Tensor.dequantize', a33),
  /** Not there. @deprecated @hidden */
  intRepr: absent('Tensor.intRepr', a33),
  /** Not there. @deprecated @hidden */
  qScale: absent('Tensor.qScale', a33),
  /** Not there. @deprecated @hidden */
  shareMemory_: absent('Tensor.shareMemory_', a34),
  /** Not there. @deprecated @hidden */
  isShared: absent('Tensor.isShared', a34),
  /** Not there. @deprecated @hidden */
  rename: absent('Tensor.rename', a35),
  /** Not there. @deprecated @hidden */
  refineNames: absent('Tensor.refineNames', a35),
};
addAbsent(Tensor.prototype, absentMethods);

type AbsentMethods = typeof absentMethods;

declare module '../tensor.js' {
  interface Tensor extends AbsentMethods {}
}
