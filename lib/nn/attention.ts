/** Multi-head attention with PyTorch's parameter layout. */
import { bool } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkProbability, checkSizesOf, optionsOf, unexpected } from '../core/options.js';
import { formatShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { scaledDotProductAttention } from '../ops/attention.js';
import { empty } from '../ops/factories.js';
import { linear } from '../ops/matmul.js';
import { dropout } from '../ops/random.js';
import { where } from '../ops/where.js';
import { constant_, xavierUniform_ } from './init.js';
import { type LayerOptions, Linear } from './layers.js';
import { Module } from './module.js';
import { Parameter } from './parameter.js';

/** Options of {@link MultiheadAttention}. */
export interface MultiheadAttentionOptions extends LayerOptions {
  dropout?: number;
  bias?: boolean;
  /** Size of keys, if not that of queries. */
  kdim?: number;
  /** Size of values, if not that of queries. */
  vdim?: number;
  /** Inputs are `[batch, sequence, feature]` instead of `[sequence, batch, feature]`. */
  batchFirst?: boolean;
}

/** Options of one call. */
export interface MultiheadAttentionCall {
  /** `[batch, T]`: bool (true: leave out) or added. */
  keyPaddingMask?: Tensor | null;
  /** `[S, T]` or `[batch * heads, S, T]`: bool (true: leave out) or added. */
  attnMask?: Tensor | null;
  needWeights?: boolean;
  averageAttnWeights?: boolean;
  isCausal?: boolean;
}

/**
 * Attention over several heads. State names: `in_proj_weight`, `in_proj_bias`, `out_proj.weight`, `out_proj.bias`, as PyTorch's.
 *
 * Shapes: query `[S, N, E]`, key and value `[T, N, E]` (or batch first), result `[S, N, E]` and weights `[N, S, T]` or null.
 *
 * @see Vaswani et al., arXiv:1706.03762
 */
export class MultiheadAttention extends Module<[query: Tensor, key: Tensor, value: Tensor, options?: MultiheadAttentionCall], [Tensor, Tensor | null]> {
  readonly embedDim: number;
  readonly numHeads: number;
  readonly dropout: number;
  readonly batchFirst: boolean;
  in_proj_weight: Parameter | null = null;
  q_proj_weight: Parameter | null = null;
  k_proj_weight: Parameter | null = null;
  v_proj_weight: Parameter | null = null;
  in_proj_bias: Parameter | null;
  out_proj: Linear;

  constructor(embedDim: number, numHeads: number, options: MultiheadAttentionOptions = {}) {
    super();
    const {
      dropout: p = 0,
      bias = true,
      batchFirst = false,
      kdim = embedDim,
      vdim = embedDim,
      ...place
    } = optionsOf('MultiheadAttention', options, 'dropout bias batchFirst kdim vdim dtype device');
    checkSizesOf('MultiheadAttention', { embedDim, numHeads, kdim, vdim }, 1);
    checkProbability('MultiheadAttention', 'dropout', p);
    if (embedDim % numHeads !== 0) throw new ArgumentError(`MultiheadAttention: ${embedDim} features do not divide into ${numHeads} heads`, { embedDim, numHeads });
    this.embedDim = embedDim;
    this.numHeads = numHeads;
    this.dropout = p;
    this.batchFirst = batchFirst;
    const weight = (rows: number, columns: number): Parameter => {
      const made = new Parameter(empty([rows, columns], place));
      xavierUniform_(made);
      return made;
    };
    if (kdim === embedDim && vdim === embedDim) this.in_proj_weight = weight(3 * embedDim, embedDim);
    else {
      this.q_proj_weight = weight(embedDim, embedDim);
      this.k_proj_weight = weight(embedDim, kdim);
      this.v_proj_weight = weight(embedDim, vdim);
    }
    this.in_proj_bias = bias ? new Parameter(empty([3 * embedDim], place)) : null;
    this.out_proj = new Linear(embedDim, embedDim, { bias, ...place });
    if (this.in_proj_bias) constant_(this.in_proj_bias, 0);
    if (this.out_proj.bias) constant_(this.out_proj.bias, 0);
  }

  forward(query: Tensor, key: Tensor, value: Tensor, options: MultiheadAttentionCall = {}): [Tensor, Tensor | null] {
    const {
      keyPaddingMask = null,
      attnMask = null,
      needWeights = true,
      averageAttnWeights = true,
      isCausal = false,
    } = optionsOf('MultiheadAttention', options, 'keyPaddingMask attnMask needWeights averageAttnWeights isCausal');
    this.checkInputs({ query, key, value });
    const single = query.ndim === 2;
    const batched = single ? [query, key, value].map((t) => t.unsqueeze(this.batchFirst ? 0 : 1)) : [query, key, value];
    const [q, k, v] = batched.map((t) => (this.batchFirst ? t : t.transpose(0, 1))) as [Tensor, Tensor, Tensor]; // [N, S, E]
    const [qh, kh, vh] = this.project(q, k, v).map((t) => this.splitHeads(t)) as [Tensor, Tensor, Tensor]; // [N, H, S, D]
    const causal = isCausal && attnMask === null && keyPaddingMask === null && !needWeights;
    const mask = causal ? null : this.mergeMasks(attnMask, keyPaddingMask, qh, kh);
    const p = this.training ? this.dropout : 0;
    const weights = needWeights ? this.weights(qh, kh, mask, p) : null;
    const heads = weights === null ? scaledDotProductAttention(qh, kh, vh, { attnMask: mask, dropoutP: p, isCausal: causal }) : weights.matmul(vh);
    const joined = heads.transpose(1, 2).reshape([...q.shape.slice(0, 2), this.embedDim]);
    const projected = this.out_proj(joined);
    const out = this.batchFirst ? projected : projected.transpose(0, 1);
    const shown = weights === null ? null : averageAttnWeights ? weights.mean(1) : weights;
    return single ? [out.squeeze(this.batchFirst ? 0 : 1), shown?.squeeze(0) ?? null] : [out, shown];
  }

  /** @throws ShapeError unless all are batches, or all are not, of features of their sizes */
  private checkInputs(inputs: { query: Tensor; key: Tensor; value: Tensor }): void {
    const { query } = inputs;
    for (const [name, t] of Object.entries(inputs)) {
      if (!(t instanceof Tensor)) throw unexpected('MultiheadAttention', name, 'a tensor', t);
      if ((t.ndim !== 2 && t.ndim !== 3) || t.ndim !== query.ndim)
        throw new ShapeError(`MultiheadAttention: expected query, key and value of 3 dims, or of 2 without a batch, got ${name} of shape ${formatShape(t.shape)}`, {
          argument: name,
        });
    }
    if (query.shape[query.ndim - 1] !== this.embedDim) {
      throw new ShapeError(`MultiheadAttention: expected a query of ${this.embedDim} features, got shape ${formatShape(query.shape)}`, { shape: query.shape });
    }
  }

  /** One product where all three inputs are the same tensor. */
  private project(q: Tensor, k: Tensor, v: Tensor): Tensor[] {
    const joint = this.in_proj_weight;
    if (joint !== null && q === k && k === v) return linear(q, joint, this.in_proj_bias).chunk(3, -1);
    const weights = joint?.chunk(3, 0) ?? [this.q_proj_weight, this.k_proj_weight, this.v_proj_weight];
    const biases = this.in_proj_bias?.chunk(3, 0);
    return [q, k, v].map((t, i) => linear(t, weights[i] as Tensor, biases?.[i] ?? null));
  }

  private splitHeads(t: Tensor): Tensor {
    const [n, s] = t.shape as [number, number];
    return t.reshape([n, s, this.numHeads, this.embedDim / this.numHeads]).transpose(1, 2);
  }

  private weights(q: Tensor, k: Tensor, mask: Tensor | null, p: number): Tensor {
    const scores = q.mul(1 / Math.sqrt(this.embedDim / this.numHeads)).matmul(k.transpose(-2, -1));
    const weights = (mask === null ? scores : scores.add(mask)).softmax(-1);
    return dropout(weights, p, p > 0);
  }

  /** Both masks as one that is added to the scores `[N, H, S, T]`. */
  private mergeMasks(attnMask: Tensor | null, padding: Tensor | null, q: Tensor, k: Tensor): Tensor | null {
    const [n, h, s] = q.shape as [number, number, number];
    const t = k.shape[2] as number;
    const spread = attnMask === null ? null : asAdded(attnMask, q).reshape(attnMask.ndim === 2 ? [1, 1, s, t] : [n, h, s, t]);
    const padded = padding === null ? null : asAdded(padding.ndim === 1 ? padding.unsqueeze(0) : padding, q).reshape([n, 1, 1, t]);
    return spread !== null && padded !== null ? spread.add(padded) : (spread ?? padded);
  }
}

/** A bool mask (true: leave out) as minus infinity and 0. */
function asAdded(mask: Tensor, like: Tensor): Tensor {
  return mask.dtype === bool ? where(mask, Number.NEGATIVE_INFINITY, like.newZeros([])) : mask.to(like.dtype);
}
