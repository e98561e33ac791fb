/**
 * What is between the linear layers of the models that bench:steps trains: forward and backward
 * under autocast in one call, with operands and gradients as training makes them.
 */
import { SIZES, type Size } from '../gpt.js';
import type { ModelSize } from '../gpus/job.js';
import { LLAMA_1B } from '../gpus/rows.js';
import type { Row } from './rows.js';

const [BF16, FLOAT] = [2, 4];
const BOTH = 'forward and backward';

/** A model and its batch. */
interface Trained extends ModelSize {
  readonly name: string;
  readonly batch: number;
  /** Operand sets in turn, so that those of a small model are not in the L2 cache. */
  readonly rotate: number;
}

const gpt = (name: string, size: Size, batch: number): Trained => ({
  ...{ name, batch, rotate: 2, kind: 'gpt', kvHeads: size.heads },
  ...size,
});
const GPTS = [gpt('GPT 124M', SIZES['124m'], 16), gpt('GPT 1.5B', SIZES['1.5b'], 8)];
const LLAMA: Trained = { name: 'Llama 1B', batch: 4, rotate: 1, ...LLAMA_1B };

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

/** Each pass reads or writes an operand in bfloat16. */
const pointwise = (
  name: string,
  op: string,
  [rows, columns]: readonly [number, number],
  passes: number,
  rotate: number,
): Row =>
  row(`${name}, ${rows} x ${columns}`, op, [rows, columns], rotate, {
    bytes: passes * BF16 * rows * columns,
  });

const normed = (name: string, op: string, rows: number, width: number): Row =>
  // In float32 twice the input and its gradient; in bfloat16 the result, what the product and its
  // weight's gradient read of it, and its gradient twice.
  row(`${name} before a small product, ${BOTH}, ${rows} x ${width}`, op, [rows, width], 2, {
    bytes: (3 * FLOAT + 5 * BF16) * rows * width,
  });

/** Two products of the scores forward and five backward, each over half of all scores. */
function attention({ name, batch, context, width, heads, kvHeads, rotate }: Trained): Row {
  const isGrouped = kvHeads !== heads;
  const shape = [batch, context, heads, width / heads];
  return row(
    `${name} attention with its views, ${BOTH}, ${batch} x ${context} x ${heads}${isGrouped ? ` over ${kvHeads}` : ''}`,
    isGrouped ? 'training_grouped_attention' : 'training_attention',
    isGrouped ? [...shape, kvHeads] : shape,
    rotate,
    { flops: 7 * batch * context ** 2 * width },
  );
}

const crossEntropy = ({ name, batch, context, vocabulary }: Trained): Row => {
  const shape = [batch * context, vocabulary] as const;
  return pointwise(`${name} cross entropy and gradient`, 'training_cross_entropy', shape, 2, 1);
};

function adamw({ name, width, heads, hidden, vocabulary, context, layers }: Trained): Row {
  const layer = 4 * width ** 2 + 2 * width * hidden + 4 * width;
  const parameters = (2 * vocabulary + context) * width + layers * layer + 2 * width;
  return row(
    `${name} AdamW, gradients of a backward pass`,
    'training_adamw',
    [vocabulary, width, heads, hidden, layers, context],
    1,
    { bytes: 7 * FLOAT * parameters },
  );
}

function gptRows(model: Trained): Row[] {
  const { name, batch, context, width, hidden, rotate } = model;
  const tokens = batch * context;
  return [
    pointwise(`${name} GELU, ${BOTH}`, 'training_gelu', [tokens, hidden], 5, rotate),
    normed(`${name} layer norm`, 'training_layer_norm', tokens, width),
    attention(model),
    crossEntropy(model),
    adamw(model),
  ];
}

function llamaRows(model: Trained): Row[] {
  const { name, batch, context, width, hidden, rotate } = model;
  const tokens = batch * context;
  const shape = [tokens, hidden] as const;
  return [
    pointwise(`${name} SiLU and its product, ${BOTH}`, 'training_swiglu', shape, 8, rotate),
    normed(`${name} RMS norm`, 'training_rms_norm', tokens, width),
    attention(model),
    crossEntropy(model),
  ];
}

export const trainingRows: readonly Row[] = [...GPTS.flatMap(gptRows), ...llamaRows(LLAMA)];
