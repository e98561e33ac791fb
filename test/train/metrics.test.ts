/** `TrainMetrics`: what an event of a step has, and when it comes. */
import assert from 'node:assert/strict';
import diagnostics from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import { allReduce, launch } from '../../lib/distributed.js';
import { memory, ones, profiler, randn, scope, tensor } from '../../lib/index.js';
import {
  exposedCommunication,
  type MetricsWriter,
  peakFlops,
  type StepMetrics,
  TrainMetrics,
  transformerFlops,
} from '../../lib/train/index.js';

/** A writer that keeps the events. */
class Kept implements MetricsWriter {
  readonly events: StepMetrics[] = [];
  isClosed = false;
  write(metrics: StepMetrics): void {
    this.events.push(metrics);
  }
  close(): void {
    this.isClosed = true;
  }
}

describe('TrainMetrics', () => {
  it('reports values, rates and memory of a step at once where they are numbers', async () => {
    const kept = new Kept();
    const run = new TrainMetrics({
      tokens: 100,
      flopsPerToken: 6,
      peakFlops: 1e6,
      rank: 2,
      writers: [kept],
    });
    const held = ones([1000]);
    const before = Date.now();
    await sleep(20);
    run.step(1, {
      loss: 2,
      gradNorm: 0.5,
      lr: 0.1,
      exposedCommunicationSeconds: 0.01,
      values: { a: 1 },
    });
    const [event] = kept.events as [StepMetrics];
    const { time, secondsPerStep, tokensPerSecond, mfu, ...rest } = event;
    const { allocatedBytes, peakAllocatedBytes } = memory.stats('cpu');
    assert.deepEqual(rest, {
      step: 1,
      rank: 2,
      loss: 2,
      gradNorm: 0.5,
      lr: 0.1,
      exposedCommunicationSeconds: 0.01,
      allocatedBytes,
      peakAllocatedBytes,
      values: { a: 1 },
    });
    assert.ok(time >= before + 19 && time <= Date.now());
    assert.ok(secondsPerStep >= 0.019 && secondsPerStep < 10);
    assert.equal(tokensPerSecond, 100 / secondsPerStep);
    assert.equal(mfu, ((tokensPerSecond as number) * 6) / 1e6);
    held.dispose();
    await run.close();
    assert.ok(kept.isClosed);
  });

  it('has no fields for what is not known', () => {
    const kept = new Kept();
    new TrainMetrics({ flopsPerToken: 6, writers: [kept] }).step(1);
    const fields = 'step time rank secondsPerStep allocatedBytes peakAllocatedBytes values';
    assert.deepEqual(Object.keys(kept.events[0] as object), fields.split(' '));
    new TrainMetrics({ tokens: 5, flopsPerToken: 6, writers: [kept] }).step(1);
    assert.ok(!('mfu' in (kept.events[1] as object))); // nobody knows the peak of a CPU
  });

  it('makes an event of every tenth step, with the mean of the time of ten', async () => {
    const kept = new Kept();
    await using run = new TrainMetrics({ every: 10, writers: [kept] });
    for (let step = 1; step <= 25; step++) {
      await sleep(1);
      run.step(step, { tokens: 2 });
    }
    assert.deepEqual(
      kept.events.map(({ step }) => step),
      [10, 20],
    );
    for (const { secondsPerStep, tokensPerSecond } of kept.events) {
      assert.ok(secondsPerStep >= 0.0009);
      assert.ok(Math.abs((tokensPerSecond as number) * secondsPerStep - 2) < 1e-9);
    }
  });

  it('leaves out the time before a restart', async () => {
    const kept = new Kept();
    const run = new TrainMetrics({ writers: [kept] });
    await sleep(50);
    run.restart();
    run.step(1);
    assert.ok((kept.events[0] as StepMetrics).secondsPerStep < 0.045);
  });

  it('reads tensors in the background, also of a scope that ends, in the order of steps', async () => {
    const kept = new Kept();
    const run = new TrainMetrics({ writers: [kept] });
    for (let step = 1; step <= 3; step++)
      scope(() => {
        const loss = tensor(step).mul(2);
        const isNumber = step === 2;
        run.step(step, { loss: isNumber ? 4 : loss, values: { size: tensor([step]) } });
      });
    assert.deepEqual(kept.events, []);
    await run.flush();
    assert.deepEqual(
      kept.events.map(({ step, loss, values }) => [step, loss, values]),
      [1, 2, 3].map((step) => [step, 2 * step, { size: step }]),
    );
    run.step(4, { loss: 8 });
    assert.equal(kept.events.length, 4); // nothing is read any more
  });

  it('reports each rank of a process, whose losses are sums of all', async () => {
    const kept = new Kept();
    await launch(2, async (rank) => {
      await using run = new TrainMetrics({ rank, writers: [kept] });
      const loss = tensor(rank + 1);
      allReduce(loss);
      run.step(1, { loss });
    });
    assert.deepEqual(kept.events.map(({ rank, loss }) => [rank, loss]).sort(), [
      [0, 3],
      [1, 3],
    ]);
  });

  it('is a channel of node:diagnostics_channel, and reads nothing where nobody subscribes', async () => {
    const found: StepMetrics[] = [];
    const subscriber = (message: unknown): void => {
      found.push(message as StepMetrics);
    };
    const run = new TrainMetrics();
    const freed = ones([]);
    freed.dispose();
    run.step(1, { loss: freed });
    diagnostics.subscribe('shardwise:train:step', subscriber);
    run.step(2, { loss: 5 });
    diagnostics.unsubscribe('shardwise:train:step', subscriber);
    run.step(3, { loss: 6 });
    await run.close();
    assert.deepEqual(
      found.map(({ step, loss }) => [step, loss]),
      [[2, 5]],
    );
  });

  it('throws at a later call what a read or a writer threw', async () => {
    const failing = new TrainMetrics({
      writers: [{ write: () => assert.fail('disk full'), close: () => {} }],
    });
    assert.throws(() => failing.step(1, { loss: 1 }), /disk full/);
    failing.step(2, { loss: ones([]) });
    await assert.rejects(failing.flush(), /disk full/);
    failing.step(3, { loss: ones([]) });
    await sleep(20);
    assert.throws(() => failing.step(4), /disk full/);
    await failing.close(); // reported before
  });

  it('refuses bad options and values', () => {
    assert.throws(() => new TrainMetrics({ every: 0 }), /every to be a whole number from 1/);
    assert.throws(
      () => new TrainMetrics({ peakFlops: 0 }),
      /peakFlops to be a finite number above/,
    );
    assert.throws(() => new TrainMetrics({ writers: [{}] as never }), /writers to be a list/);
    const run = new TrainMetrics({ writers: [new Kept()] });
    assert.throws(() => run.step(1, { loss: ones([2]) }), /loss to be a number or a tensor of one/);
    assert.throws(() => run.step(0.5), /step to be a whole number/);
    assert.throws(() => run.step(1, { los: 1 } as never), /there is no option "los"/);
  });
});

describe('the operations of models and devices', () => {
  it('are those of the appendix of PaLM', () => {
    const model = { parameters: 8e9, numLayers: 32, dModel: 4096, contextLength: 8192 };
    assert.equal(transformerFlops(model), 6 * 8e9 + 12 * 32 * 4096 * 8192);
  });

  it('are those of the data sheet of a GPU', () => {
    assert.equal(peakFlops('NVIDIA H200'), 989e12);
    assert.equal(peakFlops('NVIDIA H100 80GB HBM3'), 989e12);
    assert.equal(peakFlops('NVIDIA H100 PCIe'), 756e12);
    assert.equal(peakFlops('NVIDIA A100-SXM4-80GB'), 312e12);
    assert.equal(peakFlops('NVIDIA GeForce GTX 1080'), null);
  });
});

describe('exposedCommunication', () => {
  it('is the time of collectives beside which no kernel runs, of all ranks or of one', async () => {
    const prof = await profiler.profile({ activities: ['cpu'] }, () =>
      launch(2, async () => {
        const t = ones([100_000]);
        allReduce(t);
        await t.read();
      }),
    );
    const kernels = prof.kernels();
    const timeOf = (rank: number): number => {
      const own = kernels.filter((event) => event.rank === rank);
      const others = own.filter(({ kind }) => kind !== 'collective' && kind !== 'wait');
      // A rank has one collective here, whose time is shared out by its moments.
      const [collective] = own.filter(({ kind }) => kind === 'collective') as [
        profiler.KernelEvent,
      ];
      const moments = [collective.start, collective.end, ...others.flatMap((e) => [e.start, e.end])]
        .filter((at) => at >= collective.start && at <= collective.end)
        .sort((a, b) => a - b);
      return moments.slice(1).reduce((sum, end, i) => {
        const start = moments[i] as number;
        const isCovered = others.some((each) => each.start <= start && each.end >= end);
        return isCovered ? sum : sum + (end - start) / 1e6;
      }, 0);
    };
    const near = (actual: number, expected: number): void =>
      assert.ok(Math.abs(actual - expected) < 1e-9, `${actual}, ${expected}`);
    assert.ok(timeOf(0) > 0);
    near(exposedCommunication(prof, { rank: 0 }), timeOf(0));
    near(exposedCommunication(prof), timeOf(0) + timeOf(1));
  });

  it('is nothing where nothing is communicated', () => {
    const prof = profiler.profile({ activities: ['cpu'] }, () => randn([64]).square().sum());
    assert.equal(exposedCommunication(prof), 0);
    assert.throws(() => exposedCommunication({} as never), /expected profile to be what profiler/);
  });
});
