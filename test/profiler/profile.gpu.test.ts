/** Profiles of GPUs, timed by CUPTI where it is found and by events. */
import assert from 'node:assert/strict';
import { allReduce, getRank } from '../../lib/distributed.js';
import { cuda, matmul, ones, profiler, randn } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { skipBecause, skipWithoutCuda } from '../skip.js';
import { checkTrace, flowsOf, slicesOf, threadNames } from './support/check-trace.js';
import { trainingStep } from './support/training-step.js';

// What was sent before a profile may run in it, without an op: tests wait for it.

/** How far the clocks of GPU and host may be apart, in microseconds. */
const CLOCKS_APART = 200;

for (const deviceTimer of ['cupti', 'events'] as const) {
  describe(`Profiles of GPUs, timed by ${deviceTimer}`, function () {
    this.timeout(120_000);
    before(function () {
      skipWithoutCuda(this);
      if (deviceTimer === 'events') return;
      const { whyNoCupti } = profiler.profile({ activities: ['cuda'] }, () =>
        ones([4], { device: 'cuda' }),
      );
      if (whyNoCupti !== '') skipBecause(this, `CUPTI cannot be used: ${whyNoCupti}`);
    });
    const options = { activities: ['cpu', 'cuda'], deviceTimer } as const;

    it('have kernels of a GPU with the ops that called them, on the clock of the host', () => {
      const a = randn([2048, 2048], { device: 'cuda' });
      cuda.synchronize();
      const prof = profiler.profile(options, () => {
        for (let i = 0; i < 5; i++) matmul(a, a);
        a.add(1);
      });
      assert.equal(prof.deviceTimer, deviceTimer);
      const kernels = prof.kernels().filter(({ device, op }) => device === 'cuda:0' && op !== null);
      const ofOp = (name: string) => kernels.filter(({ op }) => op?.name === name);
      assert.ok(ofOp('matmul').length >= 5 && ofOp('add').length === 1);
      const end = Math.max(...prof.events().map((event) => event.end));
      for (const { start, duration, op, stream } of kernels) {
        assert.ok(duration > 0);
        assert.ok(start >= (op?.start ?? 0) - CLOCKS_APART, `${start} after ${op?.start}`);
        assert.ok(start <= end + 1e6);
        assert.notEqual(stream, null);
      }
      const row = prof.keyAverages().get('matmul') ?? assert.fail();
      const total = ofOp('matmul').reduce((sum, { duration }) => sum + duration, 0);
      assert.ok(Math.abs(row.deviceTimeTotal - total) < 1e-3);
    });

    it('give a product the time that events of the program see, within a half', () => {
      const a = randn([4096, 4096], { device: 'cuda' });
      matmul(a, a);
      cuda.synchronize();
      const [from, to] = [0, 1].map(() => new cuda.Event({ enableTiming: true }));
      const prof = profiler.profile(options, () => {
        matmul(a, a); // the first launch of a profile takes longer
        cuda.synchronize();
        from?.record();
        for (let i = 0; i < 4; i++) matmul(a, a);
        to?.record();
        cuda.synchronize();
      });
      const seen = ((from?.elapsedTime(to as cuda.Event) ?? 0) * 1e3) / 4;
      const deviceTimeTotal = (prof.keyAverages().get('matmul')?.deviceTimeTotal ?? 0) / 5;
      assert.ok(
        deviceTimeTotal > seen / 2 && deviceTimeTotal < seen * 1.5,
        `${deviceTimeTotal} ${seen}`,
      );
    });

    it('have a whole training step: nodes, optimizer, memory counters, flows', () => {
      const { step } = trainingStep('cuda');
      const prof = profiler.profile(
        { ...options, recordShapes: true, withModules: true, profileMemory: true },
        () => profiler.recordFunction('a step', step),
      );
      const trace = prof.chromeTrace();
      checkTrace(trace);
      assert.equal(trace.deviceTimer, deviceTimer);
      assert.ok(flowsOf(trace).length > 10);
      const names = [...threadNames(trace).values()].join();
      assert.match(names, /cuda:0 stream \d+/);
      assert.match(names, /launches of cuda:0 stream \d+/);
      const counters = trace.traceEvents.filter(({ ph }) => ph === 'C');
      assert.ok(counters.some(({ name }) => name === 'memory cuda:0'));
      const rows = prof.keyAverages();
      assert.ok((rows.get('AdamW.step')?.deviceTimeTotal ?? 0) > 0);
      assert.ok((rows.get('backward')?.deviceTimeTotal ?? 0) > 0);
      assert.match(rows.table(), /Device Mem/);
      const modules = prof.keyAverages({ groupByModule: true });
      assert.ok((modules.get('0')?.selfDeviceTimeTotal ?? 0) > 0);
    });

    it('have copies between host and GPU', () => {
      const host = ones([1 << 16]);
      const prof = profiler.profile(options, () => {
        host.to('cuda').add(1).toTypedArray();
      });
      const copies = prof.kernels().filter(({ kind }) => kind === 'memcpy');
      const names = copies.map(({ name }) => name).join();
      assert.match(names, /HtoD/);
      assert.match(names, /DtoH/);
      if (deviceTimer === 'cupti') assert.ok(copies.some(({ bytes }) => bytes === 1 << 18));
    });

    it('show kernels as the driver calls them, or each command as one kernel', () => {
      const a = randn([64, 64], { device: 'cuda' });
      cuda.synchronize();
      const prof = profiler.profile(options, () => a.softmax(1));
      const kernel = prof.kernels().find(({ op }) => op?.name === 'softmax');
      if (deviceTimer === 'events') assert.equal(kernel?.name, 'softmax');
      else assert.match(kernel?.name ?? '', /softmax.*\(/);
    });

    it('can follow one another', () => {
      const a = randn([64, 64], { device: 'cuda' });
      cuda.synchronize();
      for (let i = 0; i < 3; i++) {
        const prof = profiler.profile(options, () => a.add(i));
        const ofAdd = prof.kernels().filter(({ op }) => op?.name === 'add');
        assert.equal(ofAdd.length, 1);
      }
    });

    it('have GPUs alone, without events of the host', () => {
      const a = randn([64, 64], { device: 'cuda' });
      cuda.synchronize();
      const prof = profiler.profile({ activities: ['cuda'], deviceTimer }, () => a.add(1));
      assert.deepEqual(prof.events(), []);
      assert.equal(prof.kernels().filter(({ kind }) => kind === 'kernel').length, 1);
      checkTrace(prof.chromeTrace());
      assert.match(prof.keyAverages({ groupByKernel: true }).table(), /Self device time total/);
    });

    it(
      'have collectives on the streams of their groups, with bytes',
      withRanks(2, async () => {
        const t = ones([1 << 20], { device: `cuda:${getRank() % cuda.deviceCount()}` });
        const prof = await profiler.profile(options, async () => {
          allReduce(t);
          await t.read();
        });
        const trace = prof.chromeTrace();
        checkTrace(trace);
        if (cuda.deviceCount() < 2) return; // a shared GPU goes through the host
        const slices = slicesOf(trace, 'collective');
        assert.ok(slices.some(({ args }) => args?.['bytes'] === 1 << 22));
      }),
    );
  });
}

describe('Profiles of GPUs without CUPTI', function () {
  this.timeout(120_000);
  before(function () {
    skipWithoutCuda(this);
  });

  it('fall back to events and say why', () => {
    const before = process.env['SHARDWISE_CUPTI_PATH'];
    process.env['SHARDWISE_CUPTI_PATH'] = 'off';
    try {
      const a = ones([4], { device: 'cuda' });
      const prof = profiler.profile({}, () => a.add(1));
      assert.equal(prof.deviceTimer, 'events');
      assert.match(prof.whyNoCupti, /SHARDWISE_CUPTI_PATH/);
      assert.equal(prof.kernels().filter(({ device }) => device === 'cuda:0').length, 1);
    } finally {
      if (before === undefined) delete process.env['SHARDWISE_CUPTI_PATH'];
      else process.env['SHARDWISE_CUPTI_PATH'] = before;
    }
  });
});
