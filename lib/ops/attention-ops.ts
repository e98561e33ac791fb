/**
 * The ops of attention: forward, backward, and backward whose gradients lie in memory as queries,
 * keys and values do.
 */
import type { CommandWriter } from '../core/command.js';
import { reduced } from '../core/decompose.js';
import { dispatch } from '../core/dispatch.js';
import { bool, int64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import type { VjpContext } from '../core/gradient-rules.js';
import { layers } from '../core/hooks.js';
import { defineOp, type Op, type OutputMeta } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { broadcastStrides, type Shape } from '../core/shape.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import { asStrided } from './as-strided.js';
import { accumulatedIn, attentionWeights, shareHeads, sumHeads } from './attention-weights.js';
import { type BlockWindow, type BlockWindows, blockSize, blockWindows } from './dense-block.js';
import { cat } from './join.js';
import { sampleTensor } from './samples.js';
import { attentionBackwardRule, attentionRule } from './sharding/attention.js';

const attentionParams = {
  scale: param.kernel(),
  causal: param.kernel(),
  dropout: param.kernel(),
  seedLow: param.random(),
  seedHigh: param.random(),
  offset: param.random(),
};
/** @internal */
export type Attention = ParamsOf<typeof attentionParams>;

const dropsWeights = ({ dropout }: Pick<Attention, 'dropout'>): boolean => dropout > 0;

function writeMask(command: CommandWriter, mask: Tensor, scores: Shape): void {
  const strides = mask.storage === null ? [] : broadcastStrides(mask.sizes, mask.strides, scores);
  command.view(mask, scores, strides);
}

/**
 * Strides of `[b, h, l, e]` in memory of `[b, l, h, e]`, so that the heads of a position are one
 * row of the next layer; rows are `pitch` apart, or without gaps.
 */
function stridesByPosition([, heads, rows, depth]: Shape, pitch?: number): number[] {
  const [h, l, e] = [heads, rows, depth] as [number, number, number];
  const row = pitch ?? h * e;
  return [l * row, e, row, 1];
}

/** Whether a tensor `[b, h, l, e]` has the heads of a position side by side. */
const headsAreInner = ({ strides }: Tensor): boolean =>
  (strides[1] as number) < (strides[2] as number);

const scoresOf = (q: Tensor, k: Tensor): Shape => [...q.sizes.slice(0, 3), k.sizes[2] as number];

const gradientMeta = (t: Tensor): OutputMeta => ({
  shape: t.sizes,
  strides: headsAreInner(t) ? stridesByPosition(t.sizes) : null,
  dtype: t.dtype,
  device: t.device,
});

type BackwardInputs = readonly [
  g: Tensor,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  mask: Tensor,
  out: Tensor,
  lse: Tensor,
];

const backwardNames = ['g', 'q', 'k', 'v', 'mask?', 'out', 'lse'] as const;
const backwardOperands =
  '(grad: float [b, h, l, e], q: float T[b, h, l, d], k: T[b, g, s, d], v: T[b, g, s, e], ' +
  'mask?: float|bool [b, h, l, s], y: float [b, h, l, e], lse: dense acc(T) [b, h, l])' +
  ' -> (gradQ: float [b, h, l, d], gradK: float [b, g, s, d], gradV: float [b, g, s, e])' +
  ' where divides(g, h)';

function writeBackward(
  command: CommandWriter,
  [g, q, k, v, mask, out, lse]: BackwardInputs,
  writeResults: () => void,
): void {
  for (const t of [g, q, k, v]) command.tensor(t);
  writeMask(command, mask, scoresOf(q, k));
  command.tensor(out);
  command.tensor(lse);
  writeResults();
  command.cost(q.numel() * (k.sizes[2] as number));
}

type BackwardSample = { inputs: BackwardInputs; params: Attention };

const backwardSamples = (): [BackwardSample, BackwardSample, BackwardSample] =>
  attentionOp.samples().map(({ inputs, params }) => {
    const [out, lse] = dispatch(attentionOp, inputs, params) as [Tensor, Tensor];
    const g = sampleTensor(out.sizes, { seed: 9 });
    return { inputs: [g, ...inputs, out, lse] as const, params };
  }) as [BackwardSample, BackwardSample, BackwardSample];

const attentionBackward: Op<Attention, BackwardInputs> = defineOp({
  name: 'attentionBackward',
  traits: ['compute-bound'],
  doc: 'Gradients of attention: of queries, keys and values.',
  inputs: backwardNames,
  outputs: ['gq', 'gk', 'gv'],
  operands: backwardOperands,
  params: attentionParams,
  isRandom: dropsWeights,
  sharding: attentionBackwardRule<Attention>(),
  meta: ([, q, k, v]) => [q, k, v].map(gradientMeta),
  lower: (command, inputs, outputs) =>
    writeBackward(command, inputs, () => {
      for (const output of outputs) command.output(output);
    }),
  vjp: 'not-differentiable',
  decompose: (inputs, params) => {
    if (params.dropout > 0)
      throw new ArgumentError(
        'scaledDotProductAttention: a second derivative with dropout is not supported',
        { op: 'scaledDotProductAttention' },
      );
    const { dtype } = inputs[1];
    const wide = inputs.map((t) => (t.storage === null ? t : t.to(accumulatedIn(dtype))));
    const [g, q, k, v] = wide as [Tensor, Tensor, Tensor, Tensor];
    const [heads, keyHeads] = [q.sizes[1] as number, k.sizes[1] as number];
    const [keys, values] = [shareHeads(k, heads), shareHeads(v, heads)];
    const weights = attentionWeights(q, keys, inputs[4], params.scale, params.causal === 1);
    const gradWeights = g.matmul(values.transpose(-2, -1));
    const inner = gradWeights
      .sub(gradWeights.mul(weights).sum(-1, { keepdim: true }))
      .mul(weights)
      .mul(params.scale);
    const grads = [
      inner.matmul(keys),
      sumHeads(inner.transpose(-2, -1).matmul(q), keyHeads),
      sumHeads(weights.transpose(-2, -1).matmul(g), keyHeads),
    ];
    return grads.map((t) => t.to(dtype));
  },
  samples: backwardSamples,
});

const joinedParams = {
  ...attentionParams,
  /** Of the gradients of queries, keys and values: where they are in the block; null beside it. */
  windows: param.value<BlockWindows>(),
};
type Joined = ParamsOf<typeof joinedParams>;

const attentionBackwardJoined: Op<Joined, BackwardInputs> = defineOp({
  name: 'attentionBackwardJoined',
  kernel: 'attention_backward',
  traits: ['compute-bound', 'windowed-output'],
  doc: 'The same with gradients in one block of memory, the first output; the others follow.',
  inputs: backwardNames,
  operands: backwardOperands,
  params: joinedParams,
  isRandom: dropsWeights,
  meta: ([, q, k, v], { windows }) => {
    const { dtype, device } = q;
    const block = { shape: [blockSize([q, k, v], windows)], strides: null, dtype, device };
    return [block, ...[q, k, v].filter((_, i) => windows[i] === null).map(gradientMeta)];
  },
  lower: (command, inputs, [block, ...others], { windows }) =>
    writeBackward(command, inputs, () => {
      let next = 0;
      windows.forEach((window, i) => {
        if (window === null) command.output(others[next++] as Tensor);
        else {
          const { sizes: shape } = inputs[i + 1] as Tensor;
          command.outputView(block as Tensor, shape, window.strides, window.offset);
        }
      });
    }),
  vjp: 'not-differentiable',
  decompose: (inputs, { windows, ...params }) => {
    // each gradient reads what the others read, and all of them make one tensor
    const whole = inputs.map((t) => (t.storage === null ? t : reduced(t)));
    const grads = dispatch(attentionBackward, whole, params);
    const parts = grads.filter((_, i) => windows[i] !== null).map((g) => g.flatten());
    // Where the elements of the block are in the parts one after the other.
    const size = blockSize(inputs.slice(1, 4), windows);
    const numbers = inputs[1].newOnes([size], { dtype: int64 }).cumsum(0).sub(1);
    const places = windows.flatMap((window, i) =>
      window === null ? [] : [windowOf(numbers, (grads[i] as Tensor).sizes, window).flatten()],
    );
    const block = cat(parts).indexSelect(0, cat(places).argsort());
    return [block, ...grads.filter((_, i) => windows[i] === null)];
  },
  samples: () => {
    const [, together, grouped] = backwardSamples();
    const windows = (
      pitch: number,
      offsets: readonly (number | null)[],
      { inputs }: BackwardSample,
    ) =>
      offsets.map((offset, i) => {
        const { sizes: shape } = inputs[i + 1] as Tensor;
        return offset === null ? null : { strides: stridesByPosition(shape, pitch), offset };
      });
    return [
      { ...together, params: { ...together.params, windows: windows(36, [0, 12, 24], together) } },
      { ...grouped, params: { ...grouped.params, windows: windows(6, [null, 0, 4], grouped) } },
    ];
  },
});

const windowOf = (block: Tensor, shape: Shape, { strides, offset }: BlockWindow): Tensor =>
  asStrided(block, shape, strides, offset);

/** The gradients of queries, keys and values: parts of one tensor where their operands are. */
function gradientsOf(ctx: VjpContext<Attention>, inputs: BackwardInputs): readonly Tensor[] {
  const [, q, k, v] = inputs;
  const windows = windowsOfParts(ctx, [q, k, v]);
  if (windows === null) return dispatch(attentionBackward, inputs, ctx.params);
  const [block, ...others] = dispatch(attentionBackwardJoined, inputs, { ...ctx.params, windows });
  return windows.map((window, i) =>
    window === null
      ? (others.shift() as Tensor)
      : windowOf(block as Tensor, (inputs[i + 1] as Tensor).sizes, window),
  );
}

/**
 * The windows of operands that are parts of a tensor. A captured backward pass has none: it gets
 * its operands from outside, next time perhaps from other memory.
 */
function windowsOfParts(ctx: VjpContext<Attention>, operands: Tensor[]): BlockWindows | null {
  const { capture } = layers.backend;
  const isBackwardAlone = capture !== null && !capture.keepsSaved;
  if (isBackwardAlone || operands.some((t) => t.sharding !== null)) return null;
  // the kernels write features side by side
  const fits = ({ sizes: shape, strides }: Tensor): boolean => shape[3] === 1 || strides[3] === 1;
  return blockWindows(operands.map((t, i) => (ctx.isPart(i) && fits(t) ? t : null)));
}

/** @internal */
export const attentionOp: Op<Attention, readonly [Tensor, Tensor, Tensor, Tensor]> = defineOp({
  name: 'attention',
  traits: ['compute-bound'],
  inputs: ['q', 'k', 'v', 'mask?'],
  outputs: ['out', 'lse'],
  operands:
    '(q: float T[b, h, l, d], k: T[b, g, s, d], v: T[b, g, s, e], ' +
    'mask?: float|bool [b, h, l, s]) -> (y: T[b, h, l, e], lse: [b, h, l]) where divides(g, h)',
  params: attentionParams,
  isRandom: dropsWeights,
  autocast: 'low precision',
  differentiable: [0],
  doc: 'softmax(scale q k^T + mask) v, by blocks.',
  sharding: attentionRule<Attention>(),
  meta: ([q, , v]) => {
    const { dtype, device } = q;
    const rows = q.sizes.slice(0, 3);
    const shape = [...rows, v.sizes[3] as number];
    return [
      { shape, strides: stridesByPosition(shape), dtype, device },
      { shape: rows, strides: null, dtype: accumulatedIn(dtype), device },
    ];
  },
  lower: (command, [q, k, v, mask], [out, lse]) => {
    for (const t of [q, k, v]) command.tensor(t);
    writeMask(command, mask, scoresOf(q, k));
    command.output(out);
    command.output(lse);
    command.cost((q.numel() * (k.sizes[2] as number)) / 4);
  },
  saves: { inputs: [0, 1, 2, 3], outputs: [0, 1] },
  vjp: (ctx, g) => {
    const inputs = [0, 1, 2, 3].map((i) => ctx.input(i)) as [Tensor, Tensor, Tensor, Tensor];
    const out = ctx.output(0);
    const lse = ctx.output(1).contiguous(); // saved tensor hooks may have changed the layout
    return [...gradientsOf(ctx, [g, ...inputs, out, lse]), null];
  },
  samples: () => {
    const make = (seed: number, s: number): Tensor => sampleTensor([2, 3, s, 4], { seed });
    const q = make(1, 5);
    const shared = (seed: number, d: number): Tensor => sampleTensor([2, 1, 6, d], { seed });
    const mask = sampleTensor([5, 6], { seed: 4, low: 0, high: 2, dtype: bool });
    return [
      {
        inputs: [q, make(2, 6), make(3, 6), wrapNumber(0, q.dtype, q.device)],
        params: { scale: 0.5, causal: 0, dropout: 0, seedLow: 0, seedHigh: 0, offset: 0 },
      },
      {
        inputs: [q, make(2, 5), make(3, 5), wrapNumber(0, q.dtype, q.device)],
        params: { scale: 0.5, causal: 1, dropout: 0, seedLow: 0, seedHigh: 0, offset: 0 },
      },
      // One key head for three query heads, values of another size, and a mask that broadcasts.
      {
        inputs: [q, shared(2, 4), shared(3, 2), mask],
        params: { scale: 0.3, causal: 0, dropout: 0, seedLow: 0, seedHigh: 0, offset: 0 },
      },
    ];
  },
});
