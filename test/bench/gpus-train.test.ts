/** The training of bench:gpus is the same however it is sharded, and its figures are compared. */
import assert from 'node:assert/strict';
import { communicationOf } from '../../bench/gpus/exposed.js';
import type { Job, Mode, Trained } from '../../bench/gpus/job.js';
import { plain, ROWS, rowsOf } from '../../bench/gpus/rows.js';
import { training } from '../../bench/gpus/sharded.js';
import { run } from '../../bench/gpus/side.js';
import { added, newReport, printedReport } from '../../bench/gpus/table.js';
import { DTensor, launch } from '../../lib/distributed.js';
import { optim, type Tensor } from '../../lib/index.js';

const size = {
  vocabulary: 64,
  width: 32,
  heads: 4,
  kvHeads: 2,
  hidden: 48,
  layers: 2,
  context: 8,
};
const jobOf = (job: Partial<Job>): Job => ({
  ...{ name: 'small', model: { kind: 'llama', ...size }, dataRanks: 1, tensorRanks: 1 },
  ...{ parallel: 'fsdp', batch: 4, checkpoint: true, lr: 1e-2, warm: 1, steps: 1 },
  ...{ device: 'cpu', dtype: 'float32', trace: null, modes: [plain] },
  ...job,
});

/** The losses of each rank in three steps. */
async function losses(job: Job, how: Mode = plain): Promise<number[][]> {
  const perRank = await launch(job.dataRanks * job.tensorRanks, async () => {
    const { loss, parameters } = training(job, how);
    const optimizer = new optim.AdamW(parameters, { lr: job.lr });
    const seen: Tensor[] = [];
    for (let step = 0; step < 3; step++) {
      const value = loss();
      value.backward();
      optimizer.step();
      optimizer.zeroGrad();
      seen.push(value instanceof DTensor ? value.toLocal() : value);
    }
    return Promise.all(seen.map(async (each) => Number(await each.itemAsync())));
  });
  return perRank;
}

/** The mean over the ranks of data; tensor parallel ranks have equal losses. */
const means = (all: number[][]): number[] =>
  (all[0] ?? []).map((_, step) => all.reduce((sum, one) => sum + (one[step] ?? 0), 0) / all.length);

function assertNear(actual: number[], expected: number[]): void {
  for (const [i, value] of actual.entries())
    assert.ok(Math.abs(value - (expected[i] ?? 0)) < 1e-4, `${actual} is not near ${expected}`);
}

describe('a job of bench:gpus', () => {
  let alone: number[];
  before(async () => {
    [alone = []] = await losses(jobOf({ parallel: 'ddp', checkpoint: false }));
  });

  it('trains', () => {
    const [first = 0, , last = 0] = alone;
    assert.ok(Math.abs(first - Math.log(size.vocabulary)) < 0.2 && last < first - 0.2, `${alone}`);
  });

  const layouts: Record<string, Partial<Job>> = {
    'fully sharded': { dataRanks: 2, batch: 2 },
    'tensor parallel and fully sharded': { dataRanks: 2, tensorRanks: 2, batch: 2 },
    'data parallel': { parallel: 'ddp', dataRanks: 2, batch: 2 },
  };
  for (const [name, layout] of Object.entries(layouts))
    it(`has the losses of one rank: ${name}`, async () => {
      assertNear(means(await losses(jobOf(layout))), alone);
    });

  it('has the same losses if whole parameters stay and layers are gathered ahead', async () => {
    const job = jobOf({ dataRanks: 2, batch: 2, checkpoint: false });
    assertNear(means(await losses(job, { ...plain, reshard: false, prefetch: 1 })), alone);
  });
});

describe('a whole model of bench:gpus', () => {
  for (const kind of ['gpt', 'llama'] as const)
    it(`has the same losses without scopes, and compiled: ${kind}`, async () => {
      const model = { ...size, kind, tied: kind === 'llama' };
      const job = jobOf({ model, parallel: 'ddp', checkpoint: false });
      const [expected = []] = await losses(job);
      for (const change of [{ scopes: false }, { compile: true }]) {
        const [found = []] = await losses(job, { ...plain, ...change });
        assertNear(found, expected);
      }
    });
});

describe('rows of bench:gpus', () => {
  it('are listed for a name that is none', () => {
    assert.throws(() => rowsOf(['124']), /no row is called "124": there are 124m, 1\.5b, /);
  });

  it('use every GPU, or one', () => {
    for (const [name, row] of Object.entries(ROWS)) {
      const jobs = row(4);
      if (jobs === 'product') continue;
      const job = jobs.at(-1)?.job;
      const ranks = name.startsWith('one-') ? 1 : 4;
      assert.equal((job?.dataRanks ?? 0) * (job?.tensorRanks ?? 0), ranks, name);
    }
  });
});

describe('the report of bench:gpus', () => {
  const line = (modeName: string, stepMs: number, all: number[]): Trained => ({
    ...{ name: 'a', mode: modeName, stepMs, aheadMs: stepMs, hostMs: 1, tokensPerSecond: 1e6 },
    ...{ peakGiB: 1, reservedGiB: 1, trace: null, losses: all },
    ...{ forwardMs: 3, backwardMs: 6, optimizerMs: 1 },
    ...{ startSeconds: 1, firstStepSeconds: 1 },
  });

  it('compares the best modes of both sides, and their losses', () => {
    const report = newReport({ machine: 'm', date: 'd', commit: 'c', torch: 't' });
    added(report, 'a', 'ours', line('default', 10, [4, 2]));
    added(report, 'a', 'torch', line('default', 30, [4, 2]));
    added(report, 'a', 'torch', line('compile', 15, [4, 2.5]));
    added(report, 'a', 'torch', { name: 'a', mode: 'kind', error: 'OutOfMemoryError: no memory' });
    const [row] = report.rows;
    assert.equal(row?.speed, 1.5);
    assert.deepEqual([row?.firstLossDifference, row?.lossDifference], [0, 0.2]);
    assert.match(printedReport(report), /\| a \| ours default \| 10\.0 .*\| 1\.50 \| 20\.000 % \|/);
    assert.match(printedReport(report), /torch kind .*OutOfMemoryError: no memory/);
  });
});

describe('the communication in a trace', () => {
  const slice = (cat: string, name: string, ts: number, dur: number, device = 'cuda:0') => ({
    ...{ ph: 'X', cat, name, ts, dur },
    args: { device },
  });

  it('is hidden where a kernel runs at the same time on another stream', () => {
    const traceEvents = [
      slice('collective', 'allGatherIntoTensor', 0, 4_000),
      slice('kernel', 'ncclDevKernel_ReduceScatter', 10_000, 2_000),
      slice('kernel', 'gemm', 1_000, 1_000),
      slice('kernel', 'gemm', 1_500, 1_500),
      slice('gpu_memcpy', 'copy', 11_500, 3_000),
      slice('cpu_op', 'add', 0, 20_000),
      slice('kernel', 'add', 0, 20_000, 'cpu'),
    ];
    const found = communicationOf({ traceEvents });
    assert.deepEqual(found, { communicationMs: 6, exposedMs: 3.5 });
  });
});

describe('a side of bench:gpus', () => {
  const node = (code: string) => ({ command: process.execPath, args: ['-e', code] });

  it('hands on what the program prints until it fails, and its reason', async () => {
    const heard: object[] = [];
    const program = node(
      `console.log('{"name":"a"}'); console.log('x'); throw new Error('no GPU')`,
    );
    const failure = await run(program, 20, (line) => heard.push(line));
    assert.deepEqual(heard, [{ name: 'a' }]);
    assert.match(failure ?? '', /Error: no GPU/);
  });

  it('is ended at its limit of time', async () => {
    const failure = await run(node('setInterval(() => {}, 1000)'), 0.2, () => {});
    assert.equal(failure, 'ended after 0.2 s');
  });
});
