/**
 * The rows of the kernel benchmark on one GPU: the computation, the bytes or operations that it
 * needs, and the goal.
 */
import { commonRows } from './common-ops.js';
import { linearRows } from './linear-rows.js';
import { trainingRows } from './training-rows.js';

/**
 * A computation that both processes know by its `op`. `rotate` is the number of operand sets that
 * are used in turn, so that none is in the L2 cache.
 */
export interface Job {
  readonly op: string;
  readonly shape: readonly number[];
  readonly dtype: 'bfloat16' | 'float32';
  /**
   * Precision of float32 matmul. PyTorch has 'high' for TF32; it has no 'tf32x3', and runs float32
   * instead.
   */
  readonly precision?: 'high' | 'tf32x3';
  readonly rotate?: number;
  /**
   * Of attention: the scores that count, all by default, and the number of key heads, equal to the
   * query heads by default.
   */
  readonly scores?: 'causal' | 'masked' | 'causal with dropout';
  readonly keyHeads?: number;
  /** Measure host time of small calls instead of device time. */
  readonly host?: true;
  /** Device of small calls; the GPU by default. */
  readonly device?: 'cpu';
}

export interface Goal {
  /** Maximal ratio to PyTorch's best time. */
  readonly ratio?: number;
  /** Minimal share of the machine's limit. */
  readonly limit?: number;
  readonly us?: number;
  /** Maximal microseconds above a loop of raw launches in the same run. */
  readonly aboveRaw?: number;
  /** Maximal geometric mean of the ratios of all rows that have this goal. */
  readonly mean?: number;
}

export interface Row {
  /** The group that selects the row by name. */
  readonly group: string;
  readonly name: string;
  readonly job: Job;
  readonly goal: Goal;
  /** Minimal bytes to and from device memory. */
  readonly bytes?: number;
  readonly flops?: number;
  /** Peak of the H200 in TFLOP/s; left out if the limit is the fastest matmul of the run. */
  readonly peak?: number;
}

const BF16 = 2;
const FLOAT = 4;
const LONG = 8;

/**
 * Peaks of the H200 in TFLOP/s: float32 units, TF32 tensor cores, and TF32 with three products for
 * one.
 */
const FLOAT32_PEAKS = { highest: 67, high: 494, tf32x3: 494 / 3 };

type Layout = 'nt' | 'nn' | 'tn';

/** y[m, n] = x[m, k] w: `w` lies as [n, k] (nt), [k, n] (nn); of tn also `x` as [k, m]. */
function matmul(
  group: string,
  [m, n, k]: readonly [number, number, number],
  goal: Goal,
  options: {
    layout?: Layout;
    dtype?: Job['dtype'];
    rotate?: number;
    precision?: Job['precision'];
  } = {},
): Row {
  const { layout = 'nt', dtype = 'bfloat16', rotate, precision } = options;
  const item = dtype === 'bfloat16' ? BF16 : FLOAT;
  const size = m === n && n === k ? `${m} cubed` : `${m} x ${n} x ${k}`;
  return {
    group,
    name: `matmul ${layout}, ${dtype}${precision === undefined ? '' : ` as '${precision}'`}, ${size}`,
    job: {
      op: `matmul_${layout}`,
      shape: [m, n, k],
      dtype,
      ...(rotate === undefined ? {} : { rotate }),
      ...(precision === undefined ? {} : { precision }),
    },
    goal,
    flops: 2 * m * n * k,
    bytes: item * (m * k + n * k + m * n),
    ...(dtype === 'float32' ? { peak: FLOAT32_PEAKS[precision ?? 'highest'] } : {}),
  };
}

/** `passes`: the minimal number of reads and writes of the operand. */
function rowwise(
  group: string,
  op: string,
  [rows, columns]: readonly [number, number],
  passes: number,
  goal: Goal,
  { dtype = 'bfloat16', rotate }: { dtype?: Job['dtype']; rotate?: number } = {},
): Row {
  const item = dtype === 'bfloat16' ? BF16 : FLOAT;
  return {
    group,
    name: `${op.replaceAll('_', ' ')}, ${dtype}, ${rows} x ${columns}`,
    job: { op, shape: [rows, columns], dtype, ...(rotate === undefined ? {} : { rotate }) },
    goal,
    bytes: passes * rows * columns * item,
  };
}

/**
 * Attention of q[batch, heads, length, depth] over equally many keys, or its gradient, which
 * recomputes the scores.
 */
function attention(
  scores: NonNullable<Job['scores']>,
  shape: readonly [number, number, number, number],
  keyHeads?: number,
): Row[] {
  const [batch, heads, length, depth] = shape;
  const size = `${batch} x ${heads}${keyHeads === undefined ? '' : ` over ${keyHeads}`} x ${length}`;
  const product = 2 * batch * heads * length ** 2 * depth * (scores === 'masked' ? 1 : 0.5);
  return (['attention', 'attention_backward'] as const).map((op) => ({
    group: 'attention',
    name: `${op.replaceAll('_', ' ')}, ${scores}, bfloat16, d ${depth}, ${size}`,
    job: { op, shape, dtype: 'bfloat16', scores, ...(keyHeads === undefined ? {} : { keyHeads }) },
    goal: { ratio: 2 },
    flops: (op === 'attention' ? 2 : 5) * product,
  }));
}

const host = (op: string, goal: Goal, device?: 'cpu'): Row => ({
  group: 'host',
  name: `host time of ${op.replaceAll('_', ' ')}${device === undefined ? '' : ' on the CPU'}`,
  job: {
    op,
    shape: [8, 8],
    dtype: 'float32',
    host: true,
    ...(device === undefined ? {} : { device }),
  },
  goal,
});

const [ADAMW_TENSORS, ADAMW_SIDE] = [32, 4096];
const GPT2_PARAMETERS = 124_439_808;
const [TOKENS, EMBEDDING] = [16_384, 4096];
const GIB = 2 ** 30;

const SMALL_OR_ODD = { ratio: 1.02, mean: 0.95 };

/** All rows, by group. */
export const rows: readonly Row[] = [
  matmul('matmul', [8192, 8192, 8192], { ratio: 0.97 }),
  matmul('matmul', [4096, 4096, 4096], { ratio: 0.96 }),
  matmul('matmul', [8192, 14336, 4096], { ratio: 0.98 }),
  matmul('matmul', [8192, 4096, 14336], { ratio: 0.98 }, { layout: 'nn' }),
  matmul('matmul', [14336, 4096, 8192], { ratio: 0.98 }, { layout: 'tn' }),
  matmul('matmul', [2048, 2048, 2048], SMALL_OR_ODD, { rotate: 4 }),
  matmul('matmul', [1000, 3000, 6216], SMALL_OR_ODD, { rotate: 2 }),
  matmul('matmul', [16384, 2304, 768], SMALL_OR_ODD, { rotate: 2 }),
  matmul('matmul', [512, 4096, 14336], SMALL_OR_ODD, { rotate: 2 }),
  matmul('skinny', [1, 14336, 4096], { limit: 0.88 }, { rotate: 3 }),
  matmul('skinny', [16, 14336, 4096], { limit: 0.88 }, { rotate: 3 }),
  matmul('skinny', [1, 4096, 4096], { ratio: 0.6 }, { rotate: 8 }),
  matmul('skinny', [16, 4096, 4096], { ratio: 0.6 }, { rotate: 8 }),
  matmul('skinny', [128, 4096, 4096], { ratio: 0.6 }, { rotate: 8 }),
  matmul('float32', [4096, 4096, 4096], { ratio: 1 }, { dtype: 'float32' }),
  matmul('float32', [4096, 4096, 4096], { ratio: 1 }, { dtype: 'float32', precision: 'high' }),
  matmul('float32', [4096, 4096, 4096], { ratio: 0.5 }, { dtype: 'float32', precision: 'tf32x3' }),
  rowwise('norms', 'layer_norm', [32768, 4096], 2, { limit: 0.9, ratio: 1 }),
  rowwise('norms', 'layer_norm', [8192, 4096], 2, { us: 38, ratio: 1 }),
  rowwise('norms', 'layer_norm', [16384, 768], 2, { ratio: 1 }, { rotate: 4 }),
  rowwise('norms', 'layer_norm_backward', [32768, 4096], 3, { limit: 0.85, ratio: 1 }),
  rowwise('norms', 'layer_norm_backward', [8192, 4096], 3, { us: 60, ratio: 1 }),
  rowwise('norms', 'layer_norm_backward', [8192, 16384], 3, { limit: 0.85, ratio: 0.7 }),
  rowwise('norms', 'rms_norm_of_a_sum', [16384, 4096], 4, { limit: 0.85 }),
  rowwise('norms', 'rms_norm_of_a_sum_backward', [16384, 4096], 4, { limit: 0.85 }),
  rowwise('softmax', 'softmax', [8192, 4096], 2, { limit: 0.85 }),
  rowwise('softmax', 'softmax', [8192, 16384], 2, { limit: 0.85 }),
  rowwise('softmax', 'softmax', [2048, 131072], 2, { limit: 0.85 }, { dtype: 'float32' }),
  rowwise('softmax', 'cross_entropy_and_gradient', [8192, 128256], 2, { us: 1200, ratio: 0.5 }),
  {
    group: 'adamw',
    name: `AdamW, ${ADAMW_TENSORS} tensors of ${ADAMW_SIDE} x ${ADAMW_SIDE}, float32`,
    job: { op: 'adamw', shape: [ADAMW_TENSORS, ADAMW_SIDE, ADAMW_SIDE], dtype: 'float32' },
    goal: { limit: 0.9, ratio: 0.91 },
    bytes: 7 * FLOAT * ADAMW_TENSORS * ADAMW_SIDE ** 2,
  },
  {
    group: 'adamw',
    name: 'AdamW, the 148 tensors of GPT-2 124M, float32',
    job: { op: 'adamw_gpt2', shape: [12, 768], dtype: 'float32' },
    goal: { ratio: 0.6 },
    bytes: 7 * FLOAT * GPT2_PARAMETERS,
  },
  rowwise('moves', 'transpose', [16384, 16384], 2, { limit: 0.85 }),
  {
    group: 'moves',
    name: 'embedding backward, bfloat16, 16,384 ids into 128,256 x 4,096',
    job: { op: 'embedding_backward', shape: [128_256, EMBEDDING, TOKENS], dtype: 'bfloat16' },
    goal: { ratio: 0.8 },
    bytes: BF16 * EMBEDDING * (128_256 + TOKENS) + LONG * TOKENS,
  },
  {
    group: 'moves',
    name: 'cast of 1 GiB, float32 to bfloat16',
    job: { op: 'cast', shape: [GIB / FLOAT], dtype: 'float32' },
    goal: { limit: 0.92 },
    bytes: GIB * 1.5,
  },
  ...attention('causal', [2, 16, 8192, 128]),
  ...attention('causal', [2, 32, 8192, 64]),
  ...attention('causal', [2, 32, 8192, 128], 8),
  ...attention('masked', [2, 16, 4096, 128]),
  ...attention('causal with dropout', [2, 16, 8192, 128]),
  ...linearRows,
  ...trainingRows,
  ...commonRows,
  host('add', { us: 4, aboveRaw: 1.5 }),
  host('mm', { us: 5, aboveRaw: 1.5 }),
  host('layer_norm', { us: 5, aboveRaw: 1.5 }),
  host('backward_of_a_sum', { us: 40 }),
  host('backward_of_a_sum', { us: 15 }, 'cpu'),
];

/** The groups of the rows, each once. */
export const groups: readonly string[] = [...new Set(rows.map((row) => row.group))];

/** The name of a group selects only that group, even if names of other rows contain it. */
const isCalled = (row: Row, text: string): boolean =>
  groups.includes(text) ? row.group === text : row.name.includes(text);

/**
 * All rows, or those selected by groups and parts of names. @throws Error if a text selects no row
 */
export function chosenRows(wanted: readonly string[]): readonly Row[] {
  const unknown = wanted.find((text) => !rows.some((row) => isCalled(row, text)));
  if (unknown !== undefined)
    throw new Error(`no row is called "${unknown}", and no group: there are ${groups.join(', ')}`);
  return wanted.length === 0
    ? rows
    : rows.filter((row) => wanted.some((text) => isCalled(row, text)));
}

/** The copy row, always measured: its bandwidth is the limit of other rows. */
export const copyRow: Row = {
  group: 'copy',
  name: 'copy of 1 GiB',
  job: { op: 'copy', shape: [GIB / FLOAT], dtype: 'float32' },
  goal: {},
  bytes: 2 * GIB,
};
