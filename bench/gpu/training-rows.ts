/**
 * What is between the linear layers of the models that bench:steps trains: forward and backward
 * under autocast in one call, with operands and gradients as training makes them.
 */
import type { Row } from './rows.js';

const [BF16, FLOAT] = [2, 4];

interface Model {
  readonly name: string;
  readonly batch: number;
  readonly context: number;
  readonly width: number;
  readonly heads: number;
  readonly hidden: number;
  readonly classes: number;
  readonly layers: number;
  /** Operand sets in turn, so that those of a small model are not in the L2 cache. */
  readonly rotate: number;
}

const GPT_124M: Model = {
  name: 'GPT 124M',
  batch: 16,
  context: 1024,
  width: 768,
  heads: 12,
  hidden: 3072,
  classes: 50_304,
  layers: 12,
  rotate: 2,
};
const GPT_1_5B: Model = {
  name: 'GPT 1.5B',
  batch: 8,
  context: 1024,
  width: 1600,
  heads: 25,
  hidden: 6400,
  classes: 50_304,
  layers: 48,
  rotate: 2,
};
const LLAMA_1B = {
  name: 'Llama 1B',
  batch: 4,
  context: 2048,
  width: 2048,
  heads: 32,
  keyHeads: 8,
  hidden: 8192,
  classes: 128_256,
  rotate: 1,
};

const row = (
  name: string,
  op: string,
  shape: readonly number[],
  rotate: number,
  limit: Pick<Row, 'bytes' | 'flops'>,
): Row => ({
  group: 'training',
  name,
  job: { op, shape, dtype: 'bfloat16', rotate },
  goal: { ratio: 1 },
  ...limit,
});

/** Two products of the scores forward and five backward, each over half of all scores. */
const flopsOf = ({ batch, context, width }: Pick<Model, 'batch' | 'context' | 'width'>): number =>
  7 * batch * context ** 2 * width;

/** Each reads the operand and the gradient in bfloat16 and writes both results in it. */
const pointwise = (
  name: string,
  op: string,
  [rows, columns]: readonly [number, number],
  passes: number,
  rotate: number,
): Row => row(name, op, [rows, columns], rotate, { bytes: passes * BF16 * rows * columns });

const normed = (name: string, op: string, rows: number, width: number): Row =>
  // In float32 twice the input and its gradient; in bfloat16 the result, what the product and its
  // weight's gradient read of it, and its gradient twice.
  row(
    `${name} before a small product, forward and backward, ${rows} x ${width}`,
    op,
    [rows, width],
    2,
    {
      bytes: (3 * FLOAT + 5 * BF16) * rows * width,
    },
  );

function parametersOf({ width, hidden, classes, context, layers }: Model): number {
  const layer = 4 * width ** 2 + 2 * width * hidden + 4 * width;
  return (2 * classes + context) * width + layers * layer + 2 * width;
}

function gptRows(model: Model): Row[] {
  const { name, batch, context, width, heads, hidden, classes, layers, rotate } = model;
  const tokens = batch * context;
  return [
    pointwise(
      `${name} GELU, forward and backward, ${tokens} x ${hidden}`,
      'training_gelu',
      [tokens, hidden],
      5,
      rotate,
    ),
    normed(`${name} layer norm`, 'training_layer_norm', tokens, width),
    row(
      `${name} attention with its views, forward and backward, ${batch} x ${context} x ${heads}`,
      'training_attention',
      [batch, context, heads, width / heads],
      rotate,
      { flops: flopsOf(model) },
    ),
    pointwise(
      `${name} cross entropy and gradient, ${tokens} x ${classes}`,
      'training_cross_entropy',
      [tokens, classes],
      2,
      1,
    ),
    row(
      `${name} AdamW, gradients of a backward pass`,
      'training_adamw',
      [classes, width, heads, hidden, layers, context],
      1,
      { bytes: 7 * FLOAT * parametersOf(model) },
    ),
  ];
}

function llamaRows(): Row[] {
  const { name, batch, context, width, heads, keyHeads, hidden, classes, rotate } = LLAMA_1B;
  const tokens = batch * context;
  return [
    pointwise(
      `${name} SiLU and its product, forward and backward, ${tokens} x ${hidden}`,
      'training_swiglu',
      [tokens, hidden],
      8,
      rotate,
    ),
    normed(`${name} RMS norm`, 'training_rms_norm', tokens, width),
    row(
      `${name} attention with its views, forward and backward, ${batch} x ${context} x ${heads} over ${keyHeads}`,
      'training_grouped_attention',
      [batch, context, heads, width / heads, keyHeads],
      rotate,
      { flops: flopsOf(LLAMA_1B) },
    ),
    pointwise(
      `${name} cross entropy and gradient, ${tokens} x ${classes}`,
      'training_cross_entropy',
      [tokens, classes],
      2,
      1,
    ),
  ];
}

export const trainingRows: readonly Row[] = [
  ...gptRows(GPT_124M),
  ...gptRows(GPT_1_5B),
  ...llamaRows(),
];
