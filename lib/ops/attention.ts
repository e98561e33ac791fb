/** Scaled dot product attention. The kernel is fused and never writes the score matrix. */

import { autocastOperands, setAutocast } from '../core/autocast.js';
import { dispatchOne } from '../core/dispatch.js';
import { bool } from '../core/dtype.js';
import { ArgumentError, DtypeError, ShapeError } from '../core/errors.js';
import { checkFlag, checkNumber, checkProbability } from '../core/options.js';
import { nextDraw } from '../core/random.js';
import { formatShape, numelOf, type Shape, sameShape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import { type Attention, attentionOp } from './attention-ops.js';
import { attentionWeights, shareHeads } from './attention-weights.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';

/** Options of {@link scaledDotProductAttention}. */
export interface AttentionOptions {
  /**
   * A mask that broadcasts to `[..., S, T]`: bool, true for positions that take part, or of the
   * query's dtype and added to the scores. Gets a gradient if it requires one.
   */
  attnMask?: Tensor | null;
  /**
   * Probability with which a weight is dropped; the others are scaled up. Applies in training and
   * evaluation alike. 0 by default.
   */
  dropoutP?: number;
  /**
   * Causal mask: query i attends to keys up to i, both counted from 0. False by default; not
   * together with `attnMask`.
   */
  isCausal?: boolean;
  /** Factor of the scores; by default one over the square root of the head size. */
  scale?: number | null;
  /**
   * Let several query heads share a key and value head. The number of query heads is a multiple of
   * that of key heads; heads are the third dim from the end. False by default.
   */
  enableGqa?: boolean;
}

/**
 * softmax(scale q k^T + mask) v, without writing the scores. A fully masked row gives 0.
 *
 * Shapes: query `[..., S, D]`, key `[..., T, D]`, value `[..., T, Dv]`, result `[..., S, Dv]`;
 * leading dims are equal, the last of them heads. Dtypes: equal floating types, kept; accumulates
 * in float32 (float64 for float64). Gradient: query, key, value, and a mask that requires it.
 *
 * @throws ShapeError for fewer than 2 dims, or sizes of query, key and value that do not fit;
 * DtypeError for dtypes that differ or do not fit the mask's; ArgumentError for `attnMask` with
 * `isCausal`, for a value that is not a tensor, bad options, and in a second derivative with
 * dropout
 * @see PyTorch `torch.nn.functional.scaled_dot_product_attention`; Vaswani et al.,
 * arXiv:1706.03762; Dao et al., arXiv:2205.14135; Ainslie et al., arXiv:2305.13245 for grouped
 * heads
 * @example
 * const [q, k, v] = randn([3, 2, 4, 16, 8]).unbind() as [Tensor, Tensor, Tensor];
 * scaledDotProductAttention(q, k, v, { isCausal: true }).shape; // [2, 4, 16, 8]
 */
export const scaledDotProductAttention = defineFunction(
  'scaledDotProductAttention(query, /, key, value, attnMask, dropoutP, isCausal, *, scale, enableGqa)',
  (
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attnMask: Tensor | null = null,
    dropoutP = 0,
    isCausal = false,
    { scale = null, enableGqa = false }: Pick<AttentionOptions, 'scale' | 'enableGqa'> = {},
  ): Tensor => {
    requireTensor(query, 'scaledDotProductAttention', 'query');
    requireTensor(key, 'scaledDotProductAttention', 'key');
    requireTensor(value, 'scaledDotProductAttention', 'value');
    if (attnMask !== null) requireTensor(attnMask, 'scaledDotProductAttention', 'attnMask');
    const [q, k, v] = autocastOperands('low precision', [query, key, value] as const);
    const mask =
      attnMask === null ? null : autocastOperands('low precision', [attnMask] as const)[0];
    return attentionOf(q, k, v, { attnMask: mask, dropoutP, isCausal, scale, enableGqa });
  },
);

function attentionOf(query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions): Tensor {
  const { attnMask = null, dropoutP = 0, isCausal = false } = options;
  checkAttention(query, key, value, options);
  const scale =
    // finite for a head size of 0, too
    options.scale ?? 1 / Math.sqrt(Math.max(1, query.sizes[query.sizes.length - 1] as number));
  if (attnMask?.requiresGrad)
    return attentionWithMaskGradient(query, key, value, attnMask, scale, dropoutP);
  const four = [query, key, value].map((t) => toFourDims(t)) as [Tensor, Tensor, Tensor];
  const mask =
    attnMask === null
      ? wrapNumber(0, query.dtype, query.device)
      : maskToFourDims(attnMask, query.sizes);
  const params: Attention = {
    scale,
    causal: Number(isCausal),
    dropout: dropoutP,
    ...(dropoutP > 0 ? nextDraw(undefined, ...four) : { seedLow: 0, seedHigh: 0, offset: 0 }),
  };
  const out = dispatchOne(attentionOp, [...four, mask], params);
  return query.sizes.length === 4
    ? out
    : out.reshape([...query.sizes.slice(0, -1), value.sizes[value.sizes.length - 1] as number]);
}

function toFourDims(t: Tensor): Tensor {
  const { sizes: shape } = t;
  if (shape.length === 4) return t;
  if (shape.length === 3) return t.unsqueeze(0);
  if (shape.length === 2) return t.unsqueeze(0).unsqueeze(0);
  return t.reshape([numelOf(shape.slice(0, -3)), ...shape.slice(-3)]);
}

function maskToFourDims(mask: Tensor, query: Shape): Tensor {
  if (query.length > 4)
    return mask
      .expand([...query.slice(0, -2), ...mask.sizes.slice(-2)])
      .reshape([numelOf(query.slice(0, -3)), ...query.slice(-3, -2), ...mask.sizes.slice(-2)]);
  return mask;
}

/**
 * Attention with a mask that requires a gradient: it writes the scores, so that the mask gets its
 * gradient.
 */
function attentionWithMaskGradient(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  mask: Tensor,
  scale: number,
  p: number,
): Tensor {
  const heads = q.sizes[q.sizes.length - 3] ?? 1;
  const share = (t: Tensor): Tensor => (t.sizes.length > 2 ? shareHeads(t, heads) : t);
  // Mixed precision has converted the operands already and must not round the sums.
  const autocast = setAutocast(false);
  try {
    const weights = attentionWeights(q, share(k), mask, scale, false).dropout(p, p > 0);
    return weights.matmul(share(v).to(weights.dtype)).to(q.dtype);
  } finally {
    setAutocast(autocast);
  }
}

function checkAttention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions): void {
  const op = 'scaledDotProductAttention';
  const {
    attnMask: mask = null,
    dropoutP = 0,
    isCausal = false,
    scale = null,
    enableGqa = false,
  } = options;
  checkFlag(op, 'isCausal', isCausal);
  checkFlag(op, 'enableGqa', enableGqa);
  if (scale !== null) checkNumber(op, 'scale', scale);
  checkProbability(op, 'dropoutP', dropoutP);
  checkShapes(op, q, k, v, enableGqa);
  if (q.dtype !== k.dtype || k.dtype !== v.dtype || !q.dtype.isFloatingPoint)
    throw new DtypeError(
      `${op}: expected equal floating dtypes, got ${q.dtype.name}, ` +
        `${k.dtype.name}, ${v.dtype.name}`,
      { op },
    );
  if (mask === null) return;
  if (isCausal) throw new ArgumentError(`${op}: give attnMask or isCausal, not both`, { op });
  if (mask.dtype !== bool && mask.dtype !== q.dtype)
    throw new DtypeError(
      `${op}: the mask must be bool or ${q.dtype.name}, got ${mask.dtype.name}`,
      { op },
    );
  checkMask(op, mask, [...q.sizes.slice(0, -1), k.sizes[k.sizes.length - 2] as number]);
}

function checkShapes(op: string, q: Tensor, k: Tensor, v: Tensor, gqa: boolean): void {
  const shapes =
    `query ${formatShape(q.sizes)}, key ${formatShape(k.sizes)}, value ` +
    `${formatShape(v.sizes)}`;
  const size = (t: Tensor, back: number): number | undefined => t.sizes[t.sizes.length - back];
  const lead = (t: Tensor): Shape => t.sizes.slice(0, gqa ? -3 : -2);
  if (q.sizes.length < 2 || q.sizes.length !== k.sizes.length || k.sizes.length !== v.sizes.length)
    throw new ShapeError(`${op}: expected equal numbers of dims, at least 2: ${shapes}`, { op });
  if (size(q, 1) !== size(k, 1) || size(k, 2) !== size(v, 2))
    throw new ShapeError(
      `${op}: query and key need equal last sizes, key and value equal lengths: ${shapes}`,
      { op },
    );
  if (!sameShape(lead(q), lead(k)) || !sameShape(lead(k), lead(v)))
    throw new ShapeError(
      `${op}: leading dims differ: ` +
        `${shapes}${gqa ? '' : '. For grouped heads pass { enableGqa: true }.'}`,
      { op },
    );
  if (!gqa) return;
  const [heads, keyHeads] = [size(q, 3) ?? 1, size(k, 3) ?? 1];
  if (size(k, 3) !== size(v, 3))
    throw new ShapeError(
      `${op}: key and value need equally many heads, the third dim from the end: ${shapes}`,
      { op },
    );
  if (heads !== keyHeads && (keyHeads === 0 || heads % keyHeads !== 0))
    throw new ShapeError(`${op}: query heads must be a multiple of key heads: ${shapes}`, { op });
}

function checkMask(op: string, mask: Tensor, scores: Shape): void {
  const lead = scores.length - mask.sizes.length;
  if (lead >= 0 && mask.sizes.every((s, i) => s === 1 || s === scores[lead + i])) return;
  throw new ShapeError(
    `${op}: a mask of shape ${formatShape(mask.sizes)} does not broadcast to the scores, ` +
      `${formatShape(scores)}`,
    { op, shapes: [mask.sizes, scores] },
  );
}

addMethod('scaledDotProductAttention', methodOf(scaledDotProductAttention));

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Attention of this, the queries, over keys and values. The same as {@link
     * scaledDotProductAttention}.
     */
    scaledDotProductAttention: MethodOf<typeof scaledDotProductAttention>;
  }
}
