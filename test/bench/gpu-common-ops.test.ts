/** The common ops of the GPU benchmark run repeatedly and match their rows. */
import assert from 'node:assert/strict';
import { commonOps, commonRows } from '../../bench/gpu/common-ops.js';
import { type Job, rows } from '../../bench/gpu/rows.js';
import { prepare } from '../../bench/gpu/work.js';
import { scope, Tensor } from '../../lib/index.js';

/** Shapes that are fast on the CPU; top_50_of_rows needs rows of 50. */
const small = { 1: [96], 2: [6, 64], 3: [4, 6, 8] } as const;
const smaller = ({ shape, ...job }: Job): Job => ({
  ...job,
  shape: small[shape.length as keyof typeof small],
});
const call = (job: Job): unknown => prepare(smaller(job), 'cpu').call(0);
const jobOf = (op: string): Job => (rows.find(({ job }) => job.op === op) as (typeof rows)[0]).job;

/** Shapes and dtypes of the results of one call. */
const results: Readonly<Record<string, readonly [shape: readonly number[], dtype: string]>> = {
  norm_of_all: [[], 'float32'],
  norm_of_rows: [[6], 'float32'],
  softmax_of_rows: [[6, 64], 'bfloat16'],
  cumulative_sums_of_columns: [[6, 64], 'float32'],
  cumulative_sums_of_a_list: [[96], 'float32'],
  normal_numbers: [[6, 64], 'float32'],
  whole_numbers: [[6, 64], 'int64'],
  gathered_elements: [[6, 1024], 'float32'],
  scattered_elements: [[6, 64], 'float32'],
  elements_put: [[6, 64], 'float32'],
  sums_put: [[6, 64], 'float32'],
  matmul_in_float64: [[4, 6], 'float64'],
};

describe('the common ops of the benchmark', () => {
  for (const { name, job } of commonRows)
    it(`can run repeatedly: ${name}`, () => {
      const work = prepare(smaller(job), 'cpu');
      for (let i = 0; i < 3; i++) scope(() => void work.call(i)); // as worker.ts does
    });

  it('have one row each', () =>
    assert.deepEqual(
      [...new Set(commonRows.map(({ job }) => job.op))].sort(),
      Object.keys(commonOps).sort(),
    ));

  for (const [op, [shape, dtype]] of Object.entries(results))
    it(`compute what their rows say: ${op}`, () => {
      const result = call(jobOf(op));
      assert.ok(result instanceof Tensor);
      assert.deepEqual([result.shape, result.dtype.name], [shape, dtype]);
    });

  it('name their dtype if it differs from that of the operands', () => {
    const named = (op: string): string => commonRows.find(({ job }) => job.op === op)?.name ?? '';
    assert.match(named('places_of_nonzero'), /, bool, /);
    assert.match(named('whole_numbers'), /, int64, /);
    assert.match(named('matmul_in_float64'), /, float64, /);
  });
});
