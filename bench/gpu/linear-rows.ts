/**
 * Linear layers of the models that bench:steps trains, as training makes their operands: rows of
 * tokens and weights in bfloat16, the weight's gradient in float32 because the parameter is.
 */
import type { Row } from './rows.js';

/** Shapes of a weight, [outputs, inputs], by the layer's name. */
interface Model {
  readonly name: string;
  readonly tokens: number;
  /** Operand sets in turn, so that those of a small layer are not in the L2 cache. */
  readonly rotate: number;
  readonly layers: Readonly<Record<string, readonly [outputs: number, inputs: number]>>;
}

const gpt = (name: string, tokens: number, width: number, rotate: number): Model => ({
  name,
  tokens,
  rotate,
  layers: {
    qkv: [3 * width, width],
    o: [width, width],
    up: [4 * width, width],
    down: [width, 4 * width],
    head: [50_304, width],
  },
});

const MODELS: readonly Model[] = [
  gpt('GPT 124M', 16_384, 768, 4),
  gpt('GPT 1.5B', 8192, 1600, 2),
  {
    name: 'Llama 1B',
    tokens: 8192,
    rotate: 2,
    layers: {
      'q and o': [2048, 2048],
      'k and v': [512, 2048],
      'gate and up': [8192, 2048],
      down: [2048, 8192],
      head: [128_256, 2048],
    },
  },
];

const [BF16, FLOAT] = [2, 4];

/** The op of each pass, and what it writes. */
const PASSES = [
  { op: 'linear', pass: 'forward', item: BF16 },
  { op: 'linear_input_gradient', pass: 'gradient of the input', item: BF16 },
  { op: 'linear_weight_gradient', pass: 'gradient of the weight', item: FLOAT },
] as const;

/** Elements that a pass reads and writes: two of x[m, k], w[n, k], y[m, n] are read, one written. */
function bytesOf(op: string, [m, n, k]: readonly [number, number, number], item: number): number {
  const [x, w, y] = [m * k, n * k, m * n];
  const written = op === 'linear' ? y : op === 'linear_input_gradient' ? x : w;
  return BF16 * (x + w + y - written) + item * written;
}

export const linearRows: readonly Row[] = MODELS.flatMap(({ name, tokens, rotate, layers }) =>
  Object.entries(layers).flatMap(([layer, [outputs, inputs]]) =>
    PASSES.map(({ op, pass, item }): Row => {
      const shape = [tokens, outputs, inputs] as const;
      return {
        group: 'linear',
        name: `${name} ${layer}, ${pass}, ${shape.join(' x ')}`,
        job: { op, shape, dtype: 'bfloat16', rotate: layer === 'head' ? 1 : rotate },
        goal: { ratio: 1 },
        flops: 2 * tokens * outputs * inputs,
        bytes: bytesOf(op, shape, item),
      };
    }),
  ),
);
