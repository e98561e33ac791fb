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
  /** @deprecated Not there. @hidden */
  numpy: absent('Tensor.numpy', a0),
  /** @deprecated Not there. @hidden */
  array: absent('Tensor.array', a0),
  /** @deprecated Not there. @hidden */
  bytes: absent('Tensor.bytes', a0),
  /** @deprecated Not there. @hidden */
  dataSync: absent('Tensor.dataSync', a1),
  /** @deprecated Not there. @hidden */
  arraySync: absent('Tensor.arraySync', a1),
  /** @deprecated Not there. @hidden */
  map: absent('Tensor.map', a2),
  /** @deprecated Not there. @hidden */
  forEach: absent('Tensor.forEach', a2),
  /** @deprecated Not there. @hidden */
  filter: absent('Tensor.filter', a2),
  /** @deprecated Not there. @hidden */
  reduce: absent('Tensor.reduce', a2),
  /** @deprecated Not there. @hidden */
  find: absent('Tensor.find', a2),
  /** @deprecated Not there. @hidden */
  some: absent('Tensor.some', a2),
  /** @deprecated Not there. @hidden */
  every: absent('Tensor.every', a2),
  /** @deprecated Not there. @hidden */
  indexOf: absent('Tensor.indexOf', a2),
  /** @deprecated Not there. @hidden */
  includes: absent('Tensor.includes', a2),
  /** @deprecated Not there. @hidden */
  join: absent('Tensor.join', a2),
  /** @deprecated Not there. @hidden */
  push: absent('Tensor.push', a2),
  /** @deprecated Not there. @hidden */
  pop: absent('Tensor.pop', a2),
  /** @deprecated Not there. @hidden */
  splice: absent('Tensor.splice', a2),
  /** @deprecated Not there. @hidden */
  at: absent('Tensor.at', a2),
  /** @deprecated Not there. @hidden */
  concat: absent('Tensor.concat', a3),
  /** @deprecated Not there. @hidden */
  print: absent('Tensor.print', a4),
  /** @deprecated Not there. @hidden */
  copy: absent('Tensor.copy', a5),
  /** @deprecated Not there. @hidden */
  fill: absent('Tensor.fill', a6),
  /** @deprecated Not there. @hidden */
  astype: absent('Tensor.astype', a7),
  /** @deprecated Not there. @hidden */
  asType: absent('Tensor.asType', a7),
  /** @deprecated Not there. @hidden */
  toFloat: absent('Tensor.toFloat', a7),
  /** @deprecated Not there. @hidden */
  toInt: absent('Tensor.toInt', a7),
  /** @deprecated Not there. @hidden */
  toBool: absent('Tensor.toBool', a7),
  /** @deprecated Not there. @hidden */
  asScalar: absent('Tensor.asScalar', a8),
  /** @deprecated Not there. @hidden */
  expandDims: absent('Tensor.expandDims', a9),
  /** @deprecated Not there. @hidden */
  matMul: absent('Tensor.matMul', a10),
  /** @deprecated Not there. @hidden */
  dataPtr: absent('Tensor.dataPtr', a11),
  /** @deprecated Not there. @hidden */
  getDevice: absent('Tensor.getDevice', a12),
  /** @deprecated Not there. @hidden */
  resize_: absent('Tensor.resize_', a13),
  /** @deprecated Not there. @hidden */
  resizeAs_: absent('Tensor.resizeAs_', a13),
  /** @deprecated Not there. @hidden */
  swapaxes_: absent('Tensor.swapaxes_', a14),
  /** @deprecated Not there. @hidden */
  swapdims_: absent('Tensor.swapdims_', a14),
  /** @deprecated Not there. @hidden */
  transpose_: absent('Tensor.transpose_', a14),
  /** @deprecated Not there. @hidden */
  t_: absent('Tensor.t_', a14),
  /** @deprecated Not there. @hidden */
  squeeze_: absent('Tensor.squeeze_', a15),
  /** @deprecated Not there. @hidden */
  unsqueeze_: absent('Tensor.unsqueeze_', a15),
  /** @deprecated Not there. @hidden */
  apply_: absent('Tensor.apply_', a16),
  /** @deprecated Not there. @hidden */
  map_: absent('Tensor.map_', a16),
  /** @deprecated Not there. @hidden */
  map2_: absent('Tensor.map2_', a16),
  /** @deprecated Not there. @hidden */
  cauchy_: absent('Tensor.cauchy_', a17),
  /** @deprecated Not there. @hidden */
  geometric_: absent('Tensor.geometric_', a17),
  /** @deprecated Not there. @hidden */
  logNormal_: absent('Tensor.logNormal_', a17),
  /** @deprecated Not there. @hidden */
  put_: absent('Tensor.put_', a18),
  /** @deprecated Not there. @hidden */
  fix: absent('Tensor.fix', a19),
  /** @deprecated Not there. @hidden */
  sgn: absent('Tensor.sgn', a20),
  /** @deprecated Not there. @hidden */
  ger: absent('Tensor.ger', a21),
  /** @deprecated Not there. @hidden */
  vdot: absent('Tensor.vdot', a22),
  /** @deprecated Not there. @hidden */
  tensordot: absent('Tensor.tensordot', a23),
  /** @deprecated Not there. @hidden */
  cdist: absent('Tensor.cdist', a23),
  /** @deprecated Not there. @hidden */
  dsplit: absent('Tensor.dsplit', a24),
  /** @deprecated Not there. @hidden */
  narrowCopy: absent('Tensor.narrowCopy', a25),
  /** @deprecated Not there. @hidden */
  cholesky: absent('Tensor.cholesky', a26),
  /** @deprecated Not there. @hidden */
  det: absent('Tensor.det', a26),
  /** @deprecated Not there. @hidden */
  inverse: absent('Tensor.inverse', a26),
  /** @deprecated Not there. @hidden */
  logdet: absent('Tensor.logdet', a26),
  /** @deprecated Not there. @hidden */
  lu: absent('Tensor.lu', a26),
  /** @deprecated Not there. @hidden */
  luSolve: absent('Tensor.luSolve', a26),
  /** @deprecated Not there. @hidden */
  lstsq: absent('Tensor.lstsq', a26),
  /** @deprecated Not there. @hidden */
  matrixExp: absent('Tensor.matrixExp', a26),
  /** @deprecated Not there. @hidden */
  matrixPower: absent('Tensor.matrixPower', a26),
  /** @deprecated Not there. @hidden */
  orgqr: absent('Tensor.orgqr', a26),
  /** @deprecated Not there. @hidden */
  pinverse: absent('Tensor.pinverse', a26),
  /** @deprecated Not there. @hidden */
  qr: absent('Tensor.qr', a26),
  /** @deprecated Not there. @hidden */
  slogdet: absent('Tensor.slogdet', a26),
  /** @deprecated Not there. @hidden */
  svd: absent('Tensor.svd', a26),
  /** @deprecated Not there. @hidden */
  triangularSolve: absent('Tensor.triangularSolve', a26),
  /** @deprecated Not there. @hidden */
  conj: absent('Tensor.conj', a27),
  /** @deprecated Not there. @hidden */
  conjPhysical: absent('Tensor.conjPhysical', a27),
  /** @deprecated Not there. @hidden */
  angle: absent('Tensor.angle', a27),
  /** @deprecated Not there. @hidden */
  isComplex: absent('Tensor.isComplex', a27),
  /** @deprecated Not there. @hidden */
  isConj: absent('Tensor.isConj', a27),
  /** @deprecated Not there. @hidden */
  resolveConj: absent('Tensor.resolveConj', a27),
  /** @deprecated Not there. @hidden */
  viewAsReal: absent('Tensor.viewAsReal', a27),
  /** @deprecated Not there. @hidden */
  cdouble: absent('Tensor.cdouble', a27),
  /** @deprecated Not there. @hidden */
  cfloat: absent('Tensor.cfloat', a27),
  /** @deprecated Not there. @hidden */
  chalf: absent('Tensor.chalf', a27),
  /** @deprecated Not there. @hidden */
  stft: absent('Tensor.stft', a27),
  /** @deprecated Not there. @hidden */
  istft: absent('Tensor.istft', a27),
  /** @deprecated Not there. @hidden */
  copysign: absent('Tensor.copysign', a28),
  /** @deprecated Not there. @hidden */
  corrcoef: absent('Tensor.corrcoef', a28),
  /** @deprecated Not there. @hidden */
  cov: absent('Tensor.cov', a28),
  /** @deprecated Not there. @hidden */
  cummax: absent('Tensor.cummax', a28),
  /** @deprecated Not there. @hidden */
  cummin: absent('Tensor.cummin', a28),
  /** @deprecated Not there. @hidden */
  digamma: absent('Tensor.digamma', a28),
  /** @deprecated Not there. @hidden */
  erfinv: absent('Tensor.erfinv', a28),
  /** @deprecated Not there. @hidden */
  floatPower: absent('Tensor.floatPower', a28),
  /** @deprecated Not there. @hidden */
  frexp: absent('Tensor.frexp', a28),
  /** @deprecated Not there. @hidden */
  gcd: absent('Tensor.gcd', a28),
  /** @deprecated Not there. @hidden */
  i0: absent('Tensor.i0', a28),
  /** @deprecated Not there. @hidden */
  igamma: absent('Tensor.igamma', a28),
  /** @deprecated Not there. @hidden */
  lcm: absent('Tensor.lcm', a28),
  /** @deprecated Not there. @hidden */
  ldexp: absent('Tensor.ldexp', a28),
  /** @deprecated Not there. @hidden */
  lgamma: absent('Tensor.lgamma', a28),
  /** @deprecated Not there. @hidden */
  logcumsumexp: absent('Tensor.logcumsumexp', a28),
  /** @deprecated Not there. @hidden */
  mode: absent('Tensor.mode', a28),
  /** @deprecated Not there. @hidden */
  msort: absent('Tensor.msort', a28),
  /** @deprecated Not there. @hidden */
  mvlgamma: absent('Tensor.mvlgamma', a28),
  /** @deprecated Not there. @hidden */
  nanmedian: absent('Tensor.nanmedian', a28),
  /** @deprecated Not there. @hidden */
  nanquantile: absent('Tensor.nanquantile', a28),
  /** @deprecated Not there. @hidden */
  nextafter: absent('Tensor.nextafter', a28),
  /** @deprecated Not there. @hidden */
  polygamma: absent('Tensor.polygamma', a28),
  /** @deprecated Not there. @hidden */
  renorm: absent('Tensor.renorm', a28),
  /** @deprecated Not there. @hidden */
  signbit: absent('Tensor.signbit', a28),
  /** @deprecated Not there. @hidden */
  sinc: absent('Tensor.sinc', a28),
  /** @deprecated Not there. @hidden */
  trapz: absent('Tensor.trapz', a28),
  /** @deprecated Not there. @hidden */
  histogram: absent('Tensor.histogram', a29),
  /** @deprecated Not there. @hidden */
  indexReduce: absent('Tensor.indexReduce', a30),
  /** @deprecated Not there. @hidden */
  rrelu: absent('Tensor.rrelu', a31),
  /** @deprecated Not there. @hidden */
  toDense: absent('Tensor.toDense', a32),
  /** @deprecated Not there. @hidden */
  toSparse: absent('Tensor.toSparse', a32),
  /** @deprecated Not there. @hidden */
  coalesce: absent('Tensor.coalesce', a32),
  /** @deprecated Not there. @hidden */
  sparseMask: absent('Tensor.sparseMask', a32),
  /** @deprecated Not there. @hidden */
  smm: absent('Tensor.smm', a32),
  /** @deprecated Not there. @hidden */
  dequantize: absent('Tensor.dequantize', a33),
  /** @deprecated Not there. @hidden */
  intRepr: absent('Tensor.intRepr', a33),
  /** @deprecated Not there. @hidden */
  qScale: absent('Tensor.qScale', a33),
  /** @deprecated Not there. @hidden */
  shareMemory_: absent('Tensor.shareMemory_', a34),
  /** @deprecated Not there. @hidden */
  isShared: absent('Tensor.isShared', a34),
  /** @deprecated Not there. @hidden */
  rename: absent('Tensor.rename', a35),
  /** @deprecated Not there. @hidden */
  refineNames: absent('Tensor.refineNames', a35),
};
addAbsent(Tensor.prototype, absentMethods);

type AbsentMethods = typeof absentMethods;

declare module '../tensor.js' {
  interface Tensor extends AbsentMethods {}
}
