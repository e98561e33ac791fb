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
import { allOps } from '../../lib/core/op.js';
import { bool, Tensor } from '../../lib/index.js';
import { allComposites } from '../../lib/ops/composite.js';

const inPlace = (names: string): string[] => names.split(' ').flatMap((name) => [name, `${name}_`]);
const each = (names: readonly string[], kinds: string): [string, string][] =>
  names.map((name) => [name, kinds]);

/** Pointwise ops of the table that tensors have as methods, with the twins in place. */
function pointwise(arity: 1 | 2): string[] {
  return allOps()
    .filter((op) => op.pointwise?.arity === arity)
    .flatMap(({ name }) => [name, `${name}_`])
    .filter((name) => name in Tensor.prototype);
}

/** The kind of an argument, as a sample has it; null where there is none. */
function kindOf(value: unknown): string | null {
  if (value instanceof Tensor)
    return value.dtype === bool ? 'm' : value.dtype.isFloatingPoint ? 'l' : 'i';
  if (typeof value === 'boolean') return 'f';
  if (typeof value === 'number') return Number.isInteger(value) ? 'n' : 'x';
  if (!Array.isArray(value)) return null;
  return value.every((each) => typeof each === 'number') ? 's' : null;
}

/** Compositions that are methods, with the kinds of their first sample. */
function compositions(): [string, string][] {
  return allComposites().flatMap(({ name, method, inPlace, samples }) => {
    const [, ...args] = samples()[0] ?? [];
    const kinds = args.map(kindOf);
    if (!method || kinds.includes(null)) return [];
    return each(inPlace ? [name, `${name}_`] : [name], kinds.join(''));
  });
}

/** Name and argument kinds; the receiver or first operand is always a tensor, and not written. */
export const methods: readonly [name: string, kinds: string][] = [
  ...each(pointwise(1), ''),
  ...each(pointwise(2), 'o'),
  ...compositions(),
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
