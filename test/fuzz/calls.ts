/**
 * Every public op with the kinds of its arguments, one letter each; `fuzz` makes random arguments
 * of these kinds.
 *
 * t tensor, l tensor most likely of the receiver's shape, o that or a number, i index tensor, m
 * mask, d dim, D dims or none, n integer, x number, s sizes, S the receiver's own sizes mostly, T
 * list of tensors, I list of indices, f boolean, y dtype, e equation, R, G, U, L the words of an
 * option, ? nothing more half of the time, k `{ keepdim }`, a `{ alpha }`, other words of options
 * in braces: `{descending:f}`.
 */
const unary =
  'exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc neg abs square sign floor ceil round trunc relu sigmoid tanh silu bitwiseNot';
const tests = 'isnan isinf isfinite logicalNot';
const binary =
  'mul floorDivide remainder fmod pow maximum minimum atan2 eq ne lt le gt ge logicalAnd logicalOr logicalXor bitwiseAnd bitwiseOr bitwiseXor bitwiseLeftShift bitwiseRightShift';
const inPlace = (names: string): string[] => names.split(' ').flatMap((name) => [name, `${name}_`]);
const each = (names: readonly string[], kinds: string): [string, string][] =>
  names.map((name) => [name, kinds]);

/** Name and argument kinds; the receiver or first operand is always a tensor, and not written. */
export const methods: readonly [name: string, kinds: string][] = [
  ...each([...inPlace(unary), ...tests.split(' ')], ''),
  ...each(inPlace(binary), 'o'),
  ...each(inPlace('add sub'), 'o?a'),
  ...each(inPlace('div'), 'o?{roundingMode:R}'),
  ...each(['where'], 'mo'),
  ...each(inPlace('maskedFill'), 'mo'),
  ...each(inPlace('clamp'), '{min:o,max:o}'),
  ...each(inPlace('addcmul addcdiv'), 'll?{value:x}'),
  ...each(inPlace('lerp'), 'lo'),
  ...each(['gelu'], '?{approximate:G}'),
  ...each(['softplus', 'elu', 'leakyRelu'], ''),
  ...each(
    [
      'float',
      'double',
      'half',
      'bfloat16',
      'int',
      'long',
      'byte',
      'bool',
      'clone',
      'contiguous',
      'detach',
      'zerosLike',
      'zero_',
      't',
      'nonzero',
      'tolist',
      'item',
    ],
    '',
  ),
  ...each(['to'], 'y'),
  ...each(['copy_', 'fill_'], 'o'),
  ...each(['newZeros', 'newOnes'], 's'),
  ...each(['newFull'], 'sx'),
  ...each(['equal', 'allclose', 'isclose'], 'l'),
  ...each(['indexSelect'], 'di'),
  ...each(inPlace('indexAdd'), 'dil?a'),
  ...each(['gather'], 'di'),
  ...each(inPlace('scatter'), 'dio?{reduce:U}'),
  ...each(inPlace('scatterAdd'), 'dil'),
  ...each(['index'], 'I'),
  ...each(inPlace('indexPut'), 'It?{accumulate:f}'),
  ...each(['maskedSelect'], 'm'),
  ...each(['embedding'], 't?{paddingIdx:n}'),
  ...each(['oneHot'], '?n'),
  ...each(['tril', 'triu'], '?{diagonal:n}'),
  ...each(['flip'], 'D'),
  ...each(['roll'], 'nd'),
  ...each(['repeat'], 's'),
  ...each(['matmul', 'mm', 'bmm', 'mv', 'dot', 'outer'], 'l'),
  ...each(inPlace('addmm'), 'll?{alpha:x,beta:x}'),
  ...each(['baddbmm'], 'll?{alpha:x,beta:x}'),
  ...each(['linear'], 'l?l'),
  ...each(['layerNorm'], 'S?ll'),
  ...each(['rmsNorm'], 'S?l'),
  ...each(['uniform_', 'normal_'], '?xx'),
  ...each(['bernoulli_', 'dropout'], '?x'),
  ...each(['sum', 'mean', 'amax', 'amin', 'any', 'all', 'logsumexp'], '?Dk'),
  ...each(['var', 'std'], '?D{keepdim:f,correction:x}'),
  ...each(['prod', 'argmax', 'argmin', 'max', 'min'], '?dk'),
  ...each(['norm'], '?xDk'),
  ...each(['softmax', 'logSoftmax', 'cumsum', 'cumprod'], 'd'),
  ...each(['sort', 'argsort'], '?d{descending:f}'),
  ...each(['topk'], 'n?d{largest:f}'),
  ...each(['view', 'reshape', 'expand', 'sumToSize'], 's'),
  ...each(['permute'], 'D'),
  ...each(['expandAs'], 'l'),
  ...each(['transpose', 'movedim', 'flatten'], 'dd'),
  ...each(['unsqueeze', 'unbind'], 'd'),
  ...each(['squeeze'], '?D'),
  ...each(['unflatten'], 'ds'),
  ...each(['narrow'], 'dnn'),
  ...each(['slice'], 'dnnn'),
  ...each(['select'], 'dn'),
  ...each(['split', 'chunk'], 'nd'),
  ...each(['diagonal'], '?ndd'),
  ...each(['unfold'], 'dnn'),
  ...each(['asStrided'], 'ss?n'),
  ...each(['mseLoss', 'l1Loss', 'binaryCrossEntropyWithLogits'], 'l?{reduction:L}'),
  ...each(['crossEntropy', 'nllLoss'], 'i?{reduction:L,ignoreIndex:n,labelSmoothing:x}'),
  ...each(['scaledDotProductAttention'], 'll?{isCausal:f,attnMask:m}'),
  ...each(['multinomial'], 'n'),
  ...each(['bernoulli', 'randLike', 'randnLike', 'onesLike', 'emptyLike'], ''),
  ...each(['fullLike'], 'x'),
  ...each(['varMean'], '?D'),
];

/** Functions whose first argument is no tensor. */
export const functions: readonly [name: string, kinds: string][] = [
  ...each(['zeros', 'ones', 'empty', 'rand', 'randn'], 's?{dtype:y}'),
  ['full', 'sx?{dtype:y}'],
  ['arange', 'n?nn{dtype:y}'],
  ['linspace', 'xxn'],
  ['eye', 'n?n'],
  ['randint', 'nns'],
  ['randperm', 'n'],
  ['normal', 'xxs'],
  ...each(['cat', 'stack'], 'T?d'),
  ['einsum', 'etl'],
];
