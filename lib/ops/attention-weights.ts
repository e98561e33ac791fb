/**
 * Computes attention weights with other ops: for a mask with a gradient, for second derivatives,
 * and for layers that return the weights.
 */

import { reduced } from '../core/decompose.js';
import { bool, type DType, float32, float64 } from '../core/dtype.js';
import type { Tensor } from '../core/tensor.js';
import { where } from './where.js';

/** The dtype in which attention of operands of `dtype` accumulates. @internal */
export const accumulatedIn = (dtype: DType): DType => (dtype === float64 ? float64 : float32);

/**
 * softmax of scores `[..., S, T]` along keys; 0, with gradient 0, in rows of which every score is
 * minus infinity. @internal
 */
export function softmaxOfSeen(scores: Tensor): Tensor {
  if (scores.numel() === 0) return scores.softmax(-1);
  const blind = scores.detach().amax(-1, { keepdim: true }).eq(Number.NEGATIVE_INFINITY);
  // the inner `where` keeps NaN out of the gradient
  return where(blind, 0, where(blind, 0, scores).softmax(-1));
}

/**
 * Applies a mask to scores: a bool mask keeps the true positions, any other mask is added.
 * @internal
 */
export function maskedScores(scores: Tensor, mask: Tensor): Tensor {
  return mask.dtype === bool ? where(mask, scores, Number.NEGATIVE_INFINITY) : scores.add(mask);
}

/**
 * softmax(scale q k^T + mask), not rounded to the dtype of q; fully masked rows are 0.
 * @internal
 */
export function attentionWeights(
  q: Tensor,
  k: Tensor,
  mask: Tensor,
  scale: number,
  causal: boolean,
): Tensor {
  const wide = accumulatedIn(q.dtype);
  let scores = q.to(wide).matmul(k.to(wide).transpose(-2, -1)).mul(scale); // [B, H, S, T]
  if (mask.storage !== null)
    scores = maskedScores(scores, mask.dtype === bool ? mask : mask.to(wide));
  if (causal) scores = maskedScores(scores, causalMask(scores));
  return softmaxOfSeen(reduced(scores));
}

/**
 * `[S, T]`, true where position i attends to j: j <= i, both counted from 0. `like` is a tensor
 * `[..., S, T]`. @internal
 */
export function causalMask(like: Tensor, shape: readonly number[] = like.sizes.slice(-2)): Tensor {
  return like.detach().newOnes(shape, { dtype: bool }).tril();
}

/**
 * Repeats keys and values of grouped heads for each query head. Heads are the third dim from the
 * end.
 */
export function shareHeads(t: Tensor, heads: number): Tensor {
  const at = t.sizes.length - 3;
  const own = t.sizes[at] as number;
  if (own === heads) return t;
  const [before, after] = [t.sizes.slice(0, at), t.sizes.slice(at + 1)];
  return t
    .unsqueeze(at + 1)
    .expand([...before, own, heads / own, ...after])
    .reshape([...before, heads, ...after]);
}

/** Sums gradients of keys or values over the query heads that share them. */
export function sumHeads(t: Tensor, own: number): Tensor {
  const [b, heads, s, d] = t.sizes as [number, number, number, number];
  return heads === own ? t : t.reshape([b, own, heads / own, s, d]).sum(2);
}
