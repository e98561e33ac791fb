/** The samples of the GPU benchmark detect wrong results. */
import assert from 'node:assert/strict';
import {
  atPlace,
  attentionInExact,
  type Operands,
  type Place,
  placesOf,
} from '../../bench/gpu/attention-sample.js';
import { commonOps } from '../../bench/gpu/common-ops.js';
import { copyRow, type Job, rows } from '../../bench/gpu/rows.js';
import { sampleError } from '../../bench/gpu/sample.js';
import { type Pair, prepare, type Work } from '../../bench/gpu/work.js';
import {
  autograd,
  float64,
  full,
  ones,
  randn,
  scaledDotProductAttention,
  type Tensor,
} from '../../lib/index.js';

/** Shapes that are fast on the CPU, for every op that has a sample. */
const shapes: Readonly<Record<string, readonly number[]>> = {
  matmul_nt: [6, 5, 7],
  matmul_nn: [6, 5, 7],
  matmul_tn: [6, 5, 7],
  linear: [6, 5, 7],
  linear_input_gradient: [6, 5, 7],
  linear_weight_gradient: [6, 5, 7],
  layer_norm: [8, 16],
  layer_norm_backward: [8, 16],
  rms_norm_of_a_sum: [8, 16],
  rms_norm_of_a_sum_backward: [8, 16],
  softmax: [8, 16],
  cross_entropy_and_gradient: [8, 16],
  adamw: [2, 16, 8],
  adamw_gpt2: [1, 4],
  transpose: [16, 8],
  embedding_backward: [9, 4, 12],
  cast: [1024],
  attention: [2, 4, 70, 8],
  attention_backward: [2, 4, 70, 8],
  training_gelu: [8, 16],
  training_swiglu: [8, 16],
  training_layer_norm: [8, 16],
  training_rms_norm: [8, 16],
  training_cross_entropy: [8, 16],
  training_attention: [2, 70, 4, 8],
  training_grouped_attention: [2, 70, 4, 8, 2],
  training_adamw: [32, 16, 2, 32, 2, 8],
};

const smaller = ({ job }: { job: Job }): Job => ({
  ...job,
  shape: shapes[job.op] ?? [4, 4],
  ...(job.keyHeads === undefined ? {} : { keyHeads: 2 }),
});

const float32Of = (op: string, scores: NonNullable<Job['scores']>, keyHeads?: number): Job => ({
  op,
  shape: [2, 4, 70, 8],
  dtype: 'float32',
  scores,
  ...(keyHeads === undefined ? {} : { keyHeads }),
});

const workWith = (...pairs: Pair[]): Work => ({ call: () => null, sample: () => pairs });
const some: Job = { op: 'some', shape: [1], dtype: 'float32' };

/** One row for each kind of job; rows that differ only in shape are equal here. */
const sampled = rows
  .map(smaller)
  .filter(
    (job) =>
      job.host !== true && shapes[job.op] !== undefined && job.scores !== 'causal with dropout',
  );
const kinds = new Map(
  sampled.map(({ rotate: _, ...job }) => [
    [job.op, job.dtype, job.precision, job.scores, job.keyHeads].filter(Boolean).join(', '),
    job,
  ]),
);

describe('samples of kernel results', () => {
  for (const [name, job] of kinds)
    it(`agree with float64 on the CPU: ${name}`, async () => {
      const error = await sampleError(prepare(job, 'cpu'), job);
      assert.ok(error !== undefined && error <= 1, String(error));
    });

  it('exist for all rows except the copy, common ops, attention with dropout and the host', () => {
    const unsampled = [copyRow, ...rows].filter(
      (row) =>
        commonOps[row.job.op] !== undefined || prepare(smaller(row), 'cpu').sample === undefined,
    );
    const sampled = [copyRow, ...rows].filter(
      ({ group, job }) =>
        ['copy', 'everyday', 'host'].includes(group) || job.scores === 'causal with dropout',
    );
    assert.deepEqual(
      unsampled.map(({ name }) => name),
      sampled.map(({ name }) => name),
    );
  });

  it('have no error if there are no samples, which differs from an error of 0', async () => {
    assert.equal(await sampleError({ call: () => null }, some), undefined);
    assert.equal(await sampleError(workWith([ones([2]), ones([2], { dtype: float64 })]), some), 0);
  });

  it('have the error of the worst sample, on either side of a good one', async () => {
    const good: Pair = [ones([2]), ones([2], { dtype: float64 })];
    const bad: Pair = [full([2], 1.5), ones([2], { dtype: float64 })];
    for (const pairs of [
      [good, bad],
      [bad, good],
    ])
      assert.ok(((await sampleError(workWith(...pairs), some)) as number) > 4000);
  });

  it('count as wrong if a result is NaN, which JSON writes as null', async () => {
    const none: Pair = [full([2], NaN), ones([2], { dtype: float64 })];
    await assert.rejects(
      sampleError(workWith(none), some),
      /a sample is wrong: its distance from float64 is NaN/,
    );
  });
});

describe('samples of attention', () => {
  for (const op of ['attention', 'attention_backward'])
    for (const [scores, keyHeads] of [
      ['causal'],
      ['causal', 2],
      ['causal', 1],
      ['masked'],
      ['masked', 2],
    ] as const)
      it(`cover the first and the last queries: ${op}, ${scores}, ${keyHeads ?? 4} key heads`, async () => {
        const job = float32Of(op, scores, keyHeads);
        const work = prepare(job, 'cpu');
        const pairs = work.sample?.() ?? [];
        assert.deepEqual(
          pairs.map(([got, wanted]) => [got.shape, wanted.shape]),
          [
            [
              [64, 8],
              [64, 8],
            ],
            [
              [64, 8],
              [64, 8],
            ],
          ],
        );
        const error = await sampleError(work, job);
        assert.ok(error !== undefined && error <= 1, String(error));
      });

  it('lie in the first head of the first batch and the last head of the last batch', () => {
    assert.deepEqual(placesOf([2, 16, 8192, 128]), [
      { batch: 0, head: 0, from: 0, count: 64 },
      { batch: 1, head: 15, from: 8128, count: 64 },
    ]);
    assert.deepEqual(placesOf([1, 1, 10, 8]), [
      { batch: 0, head: 0, from: 0, count: 10 },
      { batch: 0, head: 0, from: 0, count: 10 },
    ]);
  });

  const numbers = (shape: number[]): Tensor => randn(shape, { dtype: float64 });
  const given = { q: numbers([2, 6, 20, 8]), k: numbers([2, 3, 20, 8]), v: numbers([2, 3, 20, 8]) };
  const farOff = async (got: Tensor, wanted: Tensor): Promise<number> =>
    got.sub(wanted).abs().amax().itemAsync();

  /** A causal mask that also masks every other key in the second batch. */
  function maskOfTwo(): Tensor {
    const mask = ones([2, 1, 20, 20], { dtype: float64 }).tril();
    mask.select(0, 1).narrow(-1, 3, 5).fill_(0);
    return mask.ne(0);
  }

  const everywhere: Place[] = [0, 1].flatMap((batch) =>
    [0, 1, 2, 3, 4, 5].map((head) => ({ batch, head, from: 7, count: 9 })),
  );

  for (const [name, operands] of [
    ['causal', given],
    ['masked, batch by batch', { ...given, mask: maskOfTwo() }],
  ] as [string, Operands][])
    it(`have a correct reference for each of the grouped heads: ${name}`, async () => {
      const [q, gradient] = [operands.q.detach().clone().requiresGrad_(), numbers([2, 6, 20, 8])];
      const { mask } = operands;
      const output = scaledDotProductAttention(q, operands.k, operands.v, {
        isCausal: mask === undefined,
        ...(mask === undefined ? {} : { attnMask: mask }),
        enableGqa: true,
      });
      const [gq] = autograd.grad([output], [q], { gradOutputs: [gradient] }) as [Tensor];
      for (const place of everywhere) {
        assert.ok(
          (await farOff(attentionInExact(operands, place), atPlace(output.detach(), place))) <
            1e-12,
          JSON.stringify(place),
        );
        assert.ok(
          (await farOff(attentionInExact(operands, place, gradient), atPlace(gq, place))) < 1e-12,
          JSON.stringify(place),
        );
      }
    });
});
