/** Ops that have no goal of their own beside PyTorch: reductions, scans, sorts, indexing, random numbers. */
import { nn, noGrad, rand, randint, type Tensor } from '../../lib/index.js';
import type { Row } from './rows.js';

const device = 'cuda';
const [FLOAT, BF16, LONG, BOOL] = [4, 2, 8, 1];
const SIDE = 16_384;
const SIDES: readonly [number, number] = [SIDE, SIDE];
const K = 50;
/** Indices of a row, and rows that are taken. */
const [INDICES, TAKEN] = [1024, 16_384];

/** What a call does, with its operands made once. */
type Everyday = (shape: readonly number[], make: (shape: readonly number[]) => Tensor) => () => unknown;

const of =
  (fn: (x: Tensor) => unknown): Everyday =>
  (shape, make) => {
    const x = make(shape);
    return () => noGrad(() => fn(x));
  };

/** By the name that rows have, as in peer_torch.py. */
export const everyday: Readonly<Record<string, Everyday>> = {
  fill: of((x) => x.fill_(3)),
  sum_of_all: of((x) => x.sum()),
  sum_of_rows: of((x) => x.sum(-1)),
  sum_of_columns: of((x) => x.sum(0)),
  variance_of_rows: of((x) => x.var(-1)),
  log_sum_exp_of_rows: of((x) => x.logsumexp(-1)),
  largest_of_rows: of((x) => x.argmax(-1)),
  cumulative_sums_of_rows: of((x) => x.cumsum(-1)),
  sorted_rows: of((x) => x.sort()),
  sorted_list: of((x) => x.sort()),
  top_50_of_rows: of((x) => x.topk(K)),
  uniform_numbers: (shape) => () => rand([...shape], { device }),
  dropout: of((x) => nn.functional.dropout(x, 0.1)),
  selected_rows: (shape, make) => {
    const [table, ids] = [make(shape), randint(0, shape[0] as number, [TAKEN], { device })];
    return () => table.indexSelect(0, ids);
  },
  scattered_sums: (shape, make) => {
    const [rows, columns] = shape as [number, number];
    const [x, ids, source] = [make(shape), randint(0, columns, [rows, INDICES], { device }), make([rows, INDICES])];
    return () => noGrad(() => x.scatterAdd_(-1, ids, source));
  },
  places_of_nonzero: (shape, make) => {
    const mask = make(shape).gt(0);
    return () => mask.nonzero();
  },
};

/** `bytes`: read and written at least. */
const row = (op: string, shape: readonly number[], bytes: number, dtype: 'bfloat16' | 'float32' = 'float32'): Row => ({
  group: 'everyday',
  name: `${op.replaceAll('_', ' ')}, ${op === 'places_of_nonzero' ? 'bool' : dtype}, ${shape.join(' x ')}`,
  job: { op, shape, dtype },
  goal: {},
  bytes,
});

const ALL = SIDE * SIDE;
const [ROWS, ROW] = [4096, 16_384];
const [LISTS, VOCABULARY, WIDTH] = [1024, 128_256, 4096];
const LIST = 2 ** 24;

export const everydayRows: readonly Row[] = [
  row('fill', SIDES, FLOAT * ALL),
  row('sum_of_all', SIDES, FLOAT * ALL),
  row('sum_of_rows', SIDES, FLOAT * ALL),
  row('sum_of_columns', SIDES, FLOAT * ALL),
  row('variance_of_rows', SIDES, FLOAT * ALL),
  row('log_sum_exp_of_rows', SIDES, FLOAT * ALL),
  row('largest_of_rows', SIDES, FLOAT * ALL),
  row('cumulative_sums_of_rows', SIDES, 2 * FLOAT * ALL),
  row('sorted_rows', [ROWS, ROW], (2 * FLOAT + LONG) * ROWS * ROW),
  row('sorted_list', [LIST], (2 * FLOAT + LONG) * LIST),
  row('top_50_of_rows', [LISTS, VOCABULARY], FLOAT * LISTS * VOCABULARY + (FLOAT + LONG) * LISTS * K),
  row('uniform_numbers', SIDES, FLOAT * ALL),
  row('dropout', SIDES, (2 * BF16 + BOOL) * ALL, 'bfloat16'),
  row('selected_rows', [VOCABULARY, WIDTH], 2 * BF16 * TAKEN * WIDTH + LONG * TAKEN, 'bfloat16'),
  row('scattered_sums', [ROWS, 2 * ROW], (3 * FLOAT + LONG) * ROWS * INDICES),
  row('places_of_nonzero', [LIST], LIST * (BOOL + LONG / 2)),
];
