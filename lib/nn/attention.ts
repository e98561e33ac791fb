/** Multi-head attention with PyTorch's parameter layout. */
import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkFlag, checkProbability, checkSizesOf } from '../core/options.js';
import { formatShape, sameShape } from '../core/shape.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { scaledDotProductAttention } from '../ops/attention.js';
import { maskedScores, softmaxOfSeen } from '../ops/attention-weights.js';
import { dropout } from '../ops/dropout.js';
import { linear } from '../ops/linear.js';
import { requireTensor } from '../ops/operand.js';
import { checkMaskTypes, mergedMask } from './attention-masks.js';
import { xavierUniform_, zeros_ } from './init.js';
import { type LayerOptions, Linear, makeParameter } from './layers.js';
import { Module } from './module.js';
import type { Parameter } from './parameter.js';

/**
 * Options of {@link MultiheadAttention} that are given by name only: PyTorch's come after
 * `add_bias_kv` and `add_zero_attn`, which are missing here.
 */
export interface MultiheadAttentionOptions extends LayerOptions {
  /** Features of keys; `embedDim` by default. */
  kdim?: number | null;
  /** Features of values; `embedDim` by default. */
  vdim?: number | null;
  /** Inputs are `[batch, sequence, feature]` instead of `[sequence, batch, feature]`. */
  batchFirst?: boolean;
}

/**
 * Options of one call. PyTorch's order by position: `keyPaddingMask`, `needWeights`, `attnMask`,
 * `averageAttnWeights`, `isCausal`.
 */
export interface MultiheadAttentionCall {
  /** `[batch, T]`, or `[T]` without a batch: bool (true: leave out) or floating and added. */
  keyPaddingMask?: Tensor | null;
  /** Return the weights as the second result; without them it is null and the call faster. */
  needWeights?: boolean;
  /**
   * `[S, T]` or `[batch * heads, S, T]` (`[heads, S, T]` without a batch): bool (true: leave out)
   * or floating and added.
   */
  attnMask?: Tensor | null;
  /**
   * Average the weights over heads, `[batch, S, T]` instead of `[batch, heads, S, T]`. True by
   * default.
   */
  averageAttnWeights?: boolean;
  /**
   * Position i attends to positions up to i that `keyPaddingMask` allows. An `attnMask` replaces
   * this. False by default.
   */
  isCausal?: boolean;
}

/** The projection of the result, with PyTorch's name. Its bias begins at 0. */
class NonDynamicallyQuantizableLinear extends Linear {
  override resetParameters(): void {
    super.resetParameters();
    if (this.bias) zeros_(this.bias);
  }
}

const attentionArguments = defineArguments(
  'MultiheadAttention(embedDim, numHeads, dropout, bias, *, kdim, vdim, batchFirst, device, dtype)',
  (
    embedDim: number,
    numHeads: number,
    dropout = 0,
    bias = true,
    options: MultiheadAttentionOptions = {},
  ) => ({ embedDim, numHeads, dropout, bias, options }),
);

/** {@link MultiheadAttentionCall} by position or as options. */
const callArguments = defineArguments(
  'MultiheadAttention(query, key, value, /, keyPaddingMask, needWeights, attnMask, averageAttnWeights, isCausal)',
  (
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keyPaddingMask: Tensor | null = null,
    needWeights = true,
    attnMask: Tensor | null = null,
    averageAttnWeights = true,
    isCausal = false,
  ) => ({ query, key, value, keyPaddingMask, needWeights, attnMask, averageAttnWeights, isCausal }),
);

type CallArguments = ArgumentsOf<typeof callArguments>;

/**
 * Attention over several heads. State names: `in_proj_weight`, `in_proj_bias`, `out_proj.weight`,
 * `out_proj.bias`, as PyTorch's.
 *
 * Shapes: query `[S, N, E]`, key and value `[T, N, E]` (or batch first), result `[S, N, E]` and
 * weights `[N, S, T]` or null. A row whose keys are all masked has weights of 0.
 *
 * @throws ShapeError, DtypeError if inputs or masks do not fit; ArgumentError for other values
 * @see Vaswani et al., arXiv:1706.03762
 */
export class MultiheadAttention extends Module<CallArguments, [Tensor, Tensor | null]> {
  /** The number of features. */
  readonly embedDim: number;
  /** The number of heads. */
  readonly numHeads: number;
  /** The probability of dropping an attention weight. */
  readonly dropout: number;
  /** Whether the batch is the first dim, before the sequence. */
  readonly batchFirst: boolean;
  /** The packed projections of query, key and value; null when their sizes differ. */
  in_proj_weight: Parameter | null = null;
  /** The projection of the query when sizes differ, else null. */
  q_proj_weight: Parameter | null = null;
  /** The projection of the key when sizes differ, else null. */
  k_proj_weight: Parameter | null = null;
  /** The projection of the value when sizes differ, else null. */
  v_proj_weight: Parameter | null = null;
  /** The packed biases of query, key and value; null without bias. */
  in_proj_bias: Parameter | null;
  /** The projection of the result. */
  out_proj: Linear;

  constructor(...args: ArgumentsOf<typeof attentionArguments>) {
    super();
    const { embedDim, numHeads, dropout: p, bias, options } = attentionArguments(...args);
    const { batchFirst = false, kdim: keySize, vdim: valueSize, ...place } = options;
    const [kdim, vdim] = [keySize ?? embedDim, valueSize ?? embedDim];
    checkSizesOf('MultiheadAttention', { embedDim, numHeads, kdim, vdim }, 1);
    checkProbability('MultiheadAttention', 'dropout', p);
    checkFlag('MultiheadAttention', 'bias', bias);
    checkFlag('MultiheadAttention', 'batchFirst', batchFirst);
    if (embedDim % numHeads !== 0)
      throw new ArgumentError(
        `MultiheadAttention: ${embedDim} features do not divide into ${numHeads} heads`,
        { embedDim, numHeads },
      );
    this.embedDim = embedDim;
    this.numHeads = numHeads;
    this.dropout = p;
    this.batchFirst = batchFirst;
    const weight = (rows: number, columns: number): Parameter =>
      makeParameter([rows, columns], place);
    if (kdim === embedDim && vdim === embedDim)
      this.in_proj_weight = weight(3 * embedDim, embedDim);
    else {
      this.q_proj_weight = weight(embedDim, embedDim);
      this.k_proj_weight = weight(embedDim, kdim);
      this.v_proj_weight = weight(embedDim, vdim);
    }
    this.in_proj_bias = bias ? makeParameter([3 * embedDim], place) : null;
    this.resetOwn();
    this.out_proj = new NonDynamicallyQuantizableLinear(embedDim, embedDim, bias, place);
  }

  /** Initialises as PyTorch: Xavier uniform projections, and biases of 0. */
  resetParameters(): void {
    this.resetOwn();
    this.out_proj.resetParameters();
  }

  private resetOwn(): void {
    const { in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias } = this;
    for (const weight of [in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight])
      if (weight) xavierUniform_(weight);
    if (in_proj_bias) zeros_(in_proj_bias);
  }

  forward(...args: CallArguments): [Tensor, Tensor | null] {
    const {
      query,
      key,
      value,
      keyPaddingMask,
      needWeights,
      attnMask,
      averageAttnWeights,
      isCausal,
    } = callArguments(...args);
    checkMaskTypes(
      'MultiheadAttention',
      { keyPaddingMask, attnMask },
      { needWeights, averageAttnWeights, isCausal },
    );
    this.checkInputs({ query, key, value });
    const single = query.ndim === 2;
    const batched = single
      ? [query, key, value].map((t) => t.unsqueeze(this.batchFirst ? 0 : 1))
      : [query, key, value];
    const [q, k, v] = batched.map((t) => (this.batchFirst ? t : t.transpose(0, 1))) as [
      Tensor,
      Tensor,
      Tensor,
    ]; // [N, S, E]
    const [qh, kh, vh] = this.project(q, k, v).map((t) => this.splitHeads(t)) as [
      Tensor,
      Tensor,
      Tensor,
    ]; // [N, H, S, D]
    // The fused kernels mask causally by themselves.
    const causal = isCausal && attnMask === null && keyPaddingMask === null && !needWeights;
    const masks = { attnMask, keyPaddingMask, batched: !single };
    const mask = causal
      ? null
      : mergedMask('MultiheadAttention', masks, isCausal && attnMask === null, { q: qh, k: kh });
    const p = this.training ? this.dropout : 0;
    const weights = needWeights ? this.weights(qh, kh, mask, p) : null;
    const heads =
      weights === null
        ? scaledDotProductAttention(qh, kh, vh, { attnMask: mask, dropoutP: p, isCausal: causal })
        : weights.matmul(vh);
    const joined = heads.transpose(1, 2).reshape([...q.sizes.slice(0, 2), this.embedDim]);
    const projected = this.out_proj(joined);
    const out = this.batchFirst ? projected : projected.transpose(0, 1);
    const shown = weights === null ? null : averageAttnWeights ? weights.mean(1) : weights;
    return single
      ? [out.squeeze(this.batchFirst ? 0 : 1), shown?.squeeze(0) ?? null]
      : [out, shown];
  }

  /** @throws ShapeError unless either all inputs are batched or none, with the features expected */
  private checkInputs(inputs: { query: Tensor; key: Tensor; value: Tensor }): void {
    const { query } = inputs;
    for (const [name, t] of Object.entries(inputs)) {
      requireTensor(t, 'MultiheadAttention', name);
      if ((t.ndim !== 2 && t.ndim !== 3) || t.ndim !== query.ndim)
        throw new ShapeError(
          'MultiheadAttention: expected query, key and value of 3 dims, or of 2 without a ' +
            `batch, got ${name} of shape ${formatShape(t.sizes)}`,
          {
            argument: name,
          },
        );
    }
    if (query.sizes[query.ndim - 1] !== this.embedDim) {
      throw new ShapeError(
        `MultiheadAttention: expected a query of ${this.embedDim} features, got shape ` +
          `${formatShape(query.sizes)}`,
        { shape: query.sizes },
      );
    }
    this.checkLengths(inputs);
  }

  /**
   * @throws ShapeError unless keys and values are equally many, and all batches have one size
   */
  private checkLengths({ query, key, value }: { query: Tensor; key: Tensor; value: Tensor }): void {
    const at = this.batchFirst ? 0 : 1;
    const alone = query.ndim === 2;
    if (
      sameShape(key.sizes.slice(0, -1), value.sizes.slice(0, -1)) &&
      (alone || key.sizes[at] === query.sizes[at])
    )
      return;
    const shapes = [query, key, value].map((t) => formatShape(t.sizes)).join(', ');
    throw new ShapeError(
      'MultiheadAttention: expected as many values as ' +
        `keys${alone ? '' : ', and batches of one size'}, got query, key and value of shapes ` +
        `${shapes}`,
    );
  }

  /** Projects the inputs; one product does it if all three are the same tensor. */
  private project(q: Tensor, k: Tensor, v: Tensor): Tensor[] {
    const joint = this.in_proj_weight;
    if (joint !== null && q === k && k === v)
      return linear(q, joint, this.in_proj_bias).chunk(3, -1);
    const weights = joint?.chunk(3, 0) ?? [
      this.q_proj_weight,
      this.k_proj_weight,
      this.v_proj_weight,
    ];
    const biases = this.in_proj_bias?.chunk(3, 0);
    return [q, k, v].map((t, i) => linear(t, weights[i] as Tensor, biases?.[i] ?? null));
  }

  private splitHeads(t: Tensor): Tensor {
    const [n, s] = t.sizes as [number, number];
    return t.reshape([n, s, this.numHeads, this.embedDim / this.numHeads]).transpose(1, 2);
  }

  private weights(q: Tensor, k: Tensor, mask: Tensor | null, p: number): Tensor {
    const scores = q.mul(1 / Math.sqrt(this.embedDim / this.numHeads)).matmul(k.transpose(-2, -1));
    const weights = mask === null ? scores.softmax(-1) : softmaxOfSeen(maskedScores(scores, mask));
    return dropout(weights, p, p > 0);
  }
}
