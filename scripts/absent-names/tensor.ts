/** Absent methods of tensors. */
import { type AbsentPlace, COMPLEX, FORMULA, MATRIX, QUANTIZED, SPARSE } from './groups.js';

export const tensor: AbsentPlace = {
  file: 'tensor',
  prefix: 'Tensor.',
  methodsOf: { name: 'Tensor', file: 'tensor' },
  groups: [
    {
      names: 'numpy array bytes',
      advice: 'is not there: await x.read() gives a typed array; x.tolist() gives nested arrays',
    },
    {
      names: 'dataSync arraySync',
      advice: 'is not there: x.toTypedArray() and x.tolist() block; await x.read() does not',
    },
    {
      names: 'map forEach filter reduce find some every indexOf includes join push pop splice at',
      advice: 'is not there: a tensor is no array; take x.tolist(), or [...x] for its rows',
    },
    { names: 'concat', advice: 'is not there: use cat([a, b], dim)' },
    { names: 'print', advice: 'is not there: use console.log(x)' },
    { names: 'copy', advice: 'is not there: use x.clone()' },
    { names: 'fill', advice: 'is not there: use x.fill_(value)' },
    { names: 'astype asType toFloat toInt toBool', advice: 'is not there: use x.to(dtype)' },
    { names: 'asScalar', advice: 'is not there: use x.item()' },
    { names: 'expandDims', advice: 'is not there: use x.unsqueeze(dim)' },
    { names: 'matMul', advice: 'is not there: use x.matmul(y)' },
    { names: 'dataPtr', advice: 'is not there: use x.untypedStorage()' },
    { names: 'getDevice', advice: 'is not there: use x.device' },
    {
      names: 'resize_ resizeAs_',
      advice: 'is not there: use x.reshape(shape), or x.untypedStorage().resize_(bytes)',
    },
    { names: 'swapaxes_ swapdims_ transpose_ t_', advice: 'is not there: y = x.transpose(0, 1)' },
    { names: 'squeeze_ unsqueeze_', advice: 'is not there: y = x.squeeze(dim), or unsqueeze' },
    { names: 'apply_ map_ map2_', advice: 'is not there: methods such as x.exp() are much faster' },
    { names: 'cauchy_ geometric_ logNormal_', advice: 'is not there yet: use uniform_ or normal_' },
    { names: 'put_', advice: 'is not there yet: use x.view([-1]).indexPut_([ids], values)' },
    { names: 'fix', advice: 'is not there: use x.trunc()' },
    { names: 'sgn', advice: 'is not there: use x.sign()' },
    { names: 'ger', advice: 'is not there: use x.outer(y)' },
    { names: 'vdot', advice: 'is not there: use x.dot(y)' },
    { names: 'tensordot cdist', advice: 'is not there: import the function, and give it x first' },
    { names: 'dsplit', advice: 'is not there: use x.tensorSplit(sections, 2)' },
    { names: 'narrowCopy', advice: 'is not there: use x.narrow(dim, start, length).clone()' },
    {
      names: `cholesky det inverse logdet lu luSolve lstsq matrixExp matrixPower orgqr pinverse qr
        slogdet svd triangularSolve`,
      advice: MATRIX,
    },
    {
      names: `conj conjPhysical angle isComplex isConj resolveConj viewAsReal cdouble cfloat chalf`,
      advice: COMPLEX,
    },
    { names: 'stft istft', advice: COMPLEX },
    {
      names: `copysign corrcoef cov cummax cummin digamma erfinv floatPower frexp gcd i0 igamma lcm ldexp
        lgamma logcumsumexp mode msort mvlgamma nanmedian nanquantile nextafter polygamma renorm
        signbit sinc trapz`,
      advice: FORMULA,
    },
    { names: 'histogram', advice: 'is not there yet: use x.histc() or x.bincount()' },
    {
      names: 'indexReduce',
      advice: 'is not there yet: use x.scatterReduce(dim, index, source, reduce)',
    },
    { names: 'rrelu', advice: 'is not there: use x.leakyRelu()' },
    { names: 'toDense toSparse coalesce sparseMask smm', advice: SPARSE },
    { names: 'dequantize intRepr qScale', advice: QUANTIZED },
    {
      names: 'shareMemory_ isShared',
      advice: 'is not there: threads get typed arrays; see docs/worker-threads.md',
    },
    { names: 'rename refineNames', advice: 'is not there: dims have no names' },
  ],
};
