/**
 * Attention weights written out in ops: for a mask with a gradient, for second derivatives, and for
 * layers that return them.
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
  // the inner one keeps NaN out of the gradient
  return where(blind, 0, where(blind, 0, scores).softmax(-1));
}

/** Scores with a mask: bool (true: look), or added. @internal */
export function maskedScores(scores: Tensor, mask: Tensor): Tensor {
  return mask.dtype === bool ? where(mask, scores, Number.NEGATIVE_INFINITY) : scores.add(mask);
}

/**
 * softmax(scale q k^T + mask), not rounded to the dtype of q; rows with nothing to see are 0.
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
 * `[S, T]`, true where position i sees j: up to its own, counted from the first of both. `like` is
 * a tensor `[..., S, T]`. @internal
 */
export function causalMask(like: Tensor, shape: readonly number[] = like.shape.slice(-2)): Tensor {
  return like.detach().newOnes(shape, { dtype: bool }).tril();
}
