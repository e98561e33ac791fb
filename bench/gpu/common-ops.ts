/**
 * Common ops without a goal of their own: reductions, scans, sorts, indexing, random numbers,
 * softmax of other shapes, SGD, matmul in float64.
 */
import {
  autograd,
  float64,
  nn,
  noGrad,
  optim,
  rand,
  randint,
  randn,
  type Tensor,
} from '../../lib/index.js';
import type { Row } from './rows.js';

const [DOUBLE, FLOAT, BF16, LONG, BOOL] = [8, 4, 2, 8, 1];
const SIDE = 16_384;
const SIDES: readonly [number, number] = [SIDE, SIDE];
const K = 50;
/** Indices in a row, and rows that are looked up. */
const [INDICES, TAKEN] = [1024, 16_384];
/** Elements of a tensor that are written by index. */
const PLACES = 2 ** 20;
/** Upper bound of whole numbers. */
const BELOW = 1000;

type Make = (shape: readonly number[]) => Tensor;

/** Creates the operands of an op once and returns the call. */
type CommonOp = (shape: readonly number[], make: Make) => () => unknown;

const of =
  (fn: (x: Tensor) => unknown): CommonOp =>
  (shape, make) => {
    const x = make(shape);
    return () => noGrad(() => fn(x));
  };

/** Random numbers on the device of the operands. */
const drawn =
  (fn: (shape: number[], options: { device: Tensor['device'] }) => Tensor): CommonOp =>
  (shape, make) => {
    const { device } = make([1]);
    return () => fn([...shape], { device });
  };

/** Some indices for each row, and equally many elements. */
const perRow =
  (fn: (x: Tensor, ids: Tensor, source: Tensor) => unknown): CommonOp =>
  (shape, make) => {
    const [rows, columns] = shape as [number, number];
    const x = make(shape);
    const [ids, source] = [
      randint(0, columns, [rows, INDICES], { device: x.device }),
      make([rows, INDICES]),
    ];
    return () => noGrad(() => fn(x, ids, source));
  };

const put =
  (accumulate: boolean): CommonOp =>
  (shape, make) => {
    const x = make(shape);
    const [at, values] = [
      shape.map((size) => randint(0, size, [PLACES], { device: x.device })),
      make([PLACES]),
    ];
    return () => noGrad(() => x.indexPut_(at, values, { accumulate }));
  };

/** The ops by the names in the rows, as in peer_torch.py. */
export const commonOps: Readonly<Record<string, CommonOp>> = {
  fill: of((x) => x.fill_(3)),
  sum_of_all: of((x) => x.sum()),
  sum_of_rows: of((x) => x.sum(-1)),
  sum_of_columns: of((x) => x.sum(0)),
  variance_of_rows: of((x) => x.var(-1)),
  log_sum_exp_of_rows: of((x) => x.logsumexp(-1)),
  largest_of_rows: of((x) => x.argmax(-1)),
  norm_of_all: of((x) => x.norm()),
  norm_of_rows: of((x) => x.norm(2, -1)),
  softmax_of_rows: of((x) => x.softmax(-1)),
  softmax_of_rows_backward: (shape, make) => {
    const x = make(shape).requiresGrad_();
    const [y, gradient] = [x.softmax(-1), make(shape)];
    return () => autograd.grad([y], [x], { gradOutputs: [gradient], retainGraph: true });
  },
  cumulative_sums_of_rows: of((x) => x.cumsum(-1)),
  cumulative_sums_of_columns: of((x) => x.cumsum(0)),
  cumulative_sums_of_a_list: of((x) => x.cumsum(0)),
  sorted_rows: of((x) => x.sort()),
  sorted_list: of((x) => x.sort()),
  top_50_of_rows: of((x) => x.topk(K)),
  uniform_numbers: drawn(rand),
  normal_numbers: drawn(randn),
  whole_numbers: drawn((shape, options) => randint(BELOW, shape, options)),
  dropout: of((x) => nn.functional.dropout(x, 0.1)),
  selected_rows: (shape, make) => {
    const table = make(shape);
    const ids = randint(0, shape[0] as number, [TAKEN], { device: table.device });
    return () => table.indexSelect(0, ids);
  },
  gathered_elements: perRow((x, ids) => x.gather(-1, ids)),
  scattered_elements: perRow((x, ids, source) => x.scatter_(-1, ids, source)),
  scattered_sums: perRow((x, ids, source) => x.scatterAdd_(-1, ids, source)),
  elements_put: put(false),
  sums_put: put(true),
  places_of_nonzero: (shape, make) => {
    const mask = make(shape).gt(0);
    return () => mask.nonzero();
  },
  sgd_with_momentum: ([count = 1, ...shape], make) => {
    const params = Array.from({ length: count }, () => new nn.Parameter(make(shape)));
    for (const p of params) p.grad = make(shape);
    const optimizer = new optim.SGD(params, { lr: 1e-3, momentum: 0.9 });
    return () => optimizer.step();
  },
  matmul_in_float64: (shape, make) => {
    const [m, n, k] = shape as [number, number, number];
    const [x, w] = [make([m, k]).to(float64), make([k, n]).to(float64)];
    return () => x.matmul(w);
  },
};

/** Dtypes of ops whose operand or result has another dtype than the row. */
const operandDtypes: Readonly<Record<string, string>> = {
  places_of_nonzero: 'bool',
  whole_numbers: 'int64',
};

/** `bytes`: the minimum that is read and written. */
const row = (
  op: string,
  shape: readonly number[],
  bytes: number,
  dtype: 'bfloat16' | 'float32' = 'float32',
): Row => ({
  group: 'everyday',
  name: `${op.replaceAll('_', ' ')}, ${operandDtypes[op] ?? dtype}, ${shape.join(' x ')}`,
  job: { op, shape, dtype },
  goal: {},
  bytes,
});

const ALL = SIDE * SIDE;
const [ROWS, ROW] = [4096, 16_384];
const [LISTS, VOCABULARY, WIDTH] = [1024, 128_256, 4096];
const LIST = 2 ** 24;
const [SHORT, SHORT_ROWS, LONG_ROW, LONG_ROWS, MIDDLE, MIDDLE_ROWS] = [
  256,
  131_072,
  2 ** 20,
  64,
  4096,
  8192,
];
const [SGD_TENSORS, SGD_SIDE] = [32, 4096];
const PRODUCT = 4096;
/** Peak of the H200's tensor cores in float64, in TFLOP/s. */
const FLOAT64_PEAK = 67;

export const commonRows: readonly Row[] = [
  row('fill', SIDES, FLOAT * ALL),
  row('sum_of_all', SIDES, FLOAT * ALL),
  row('sum_of_rows', SIDES, FLOAT * ALL),
  row('sum_of_columns', SIDES, FLOAT * ALL),
  row('variance_of_rows', SIDES, FLOAT * ALL),
  row('log_sum_exp_of_rows', SIDES, FLOAT * ALL),
  row('largest_of_rows', SIDES, FLOAT * ALL),
  row('norm_of_all', SIDES, FLOAT * ALL),
  row('norm_of_rows', SIDES, FLOAT * ALL),
  row('softmax_of_rows', [SHORT_ROWS, SHORT], 2 * BF16 * SHORT_ROWS * SHORT, 'bfloat16'),
  row('softmax_of_rows', [LONG_ROWS, LONG_ROW], 2 * BF16 * LONG_ROWS * LONG_ROW, 'bfloat16'),
  row(
    'softmax_of_rows_backward',
    [MIDDLE_ROWS, MIDDLE],
    3 * BF16 * MIDDLE_ROWS * MIDDLE,
    'bfloat16',
  ),
  row('cumulative_sums_of_rows', SIDES, 2 * FLOAT * ALL),
  row('cumulative_sums_of_columns', SIDES, 2 * FLOAT * ALL),
  row('cumulative_sums_of_a_list', [4 * LIST], 2 * FLOAT * 4 * LIST),
  row('sorted_rows', [ROWS, ROW], (2 * FLOAT + LONG) * ROWS * ROW),
  row('sorted_list', [LIST], (2 * FLOAT + LONG) * LIST),
  row(
    'top_50_of_rows',
    [LISTS, VOCABULARY],
    FLOAT * LISTS * VOCABULARY + (FLOAT + LONG) * LISTS * K,
  ),
  row('uniform_numbers', SIDES, FLOAT * ALL),
  row('normal_numbers', SIDES, FLOAT * ALL),
  row('whole_numbers', [SIDE, SIDE / 2], (LONG * ALL) / 2),
  row('dropout', SIDES, (2 * BF16 + BOOL) * ALL, 'bfloat16'),
  row('selected_rows', [VOCABULARY, WIDTH], 2 * BF16 * TAKEN * WIDTH + LONG * TAKEN, 'bfloat16'),
  row('gathered_elements', [ROWS, 2 * ROW], (2 * FLOAT + LONG) * ROWS * INDICES),
  row('scattered_elements', [ROWS, 2 * ROW], (2 * FLOAT + LONG) * ROWS * INDICES),
  row('scattered_sums', [ROWS, 2 * ROW], (3 * FLOAT + LONG) * ROWS * INDICES),
  row('elements_put', SIDES, (2 * FLOAT + 2 * LONG) * PLACES),
  row('sums_put', SIDES, (3 * FLOAT + 2 * LONG) * PLACES),
  row('places_of_nonzero', [LIST], LIST * (BOOL + LONG / 2)),
  {
    ...row(
      'sgd_with_momentum',
      [SGD_TENSORS, SGD_SIDE, SGD_SIDE],
      5 * FLOAT * SGD_TENSORS * SGD_SIDE ** 2,
    ),
    name: `SGD with momentum, ${SGD_TENSORS} tensors of ${SGD_SIDE} x ${SGD_SIDE}, float32`,
  },
  {
    ...row('matmul_in_float64', [PRODUCT, PRODUCT, PRODUCT], 3 * DOUBLE * PRODUCT ** 2),
    name: `matmul nn, float64, ${PRODUCT} cubed`,
    flops: 2 * PRODUCT ** 3,
    peak: FLOAT64_PEAK,
  },
];
