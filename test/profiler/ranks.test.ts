/** Profiles of ranks that share a process: each its own, or all of them by the program around. */
import assert from 'node:assert/strict';
import { allReduce, barrier, getRank, launch } from '../../lib/distributed.js';
import { ArgumentError, ones, profiler } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { checkTrace, slicesOf, threadNames } from './support/check-trace.js';

const onCpu = { activities: ['cpu'] } as const;

describe('Profiles of ranks', () => {
  it(
    'record their own ops, and collectives with bytes and group on their streams',
    withRanks(2, async () => {
      const t = ones([100]);
      const prof = await profiler.profile(onCpu, async () => {
        allReduce(t);
        for (let i = 0; i <= getRank(); i++) t.add(i);
        await t.read();
      });
      const collectives = prof.kernels().filter(({ kind }) => kind === 'collective');
      assert.equal(collectives.length, 1);
      const [{ name, collective, stream, rank, duration }] = collectives as [profiler.KernelEvent];
      assert.deepEqual([name, rank], ['allReduce', getRank()]);
      assert.equal(collective?.bytes, 400);
      assert.equal(collective?.sentBytes, 400);
      assert.deepEqual(collective?.ranks, [0, 1]);
      assert.match(collective?.where ?? '', /ranks\.test/);
      assert.ok(duration > 0);
      const adds = prof.events().filter((event) => event.name === 'add');
      assert.equal(adds.length, getRank() + 1);
      const kernels = prof.kernels().filter(({ kind }) => kind === 'kernel');
      assert.equal(kernels.length, getRank() + 1);
      assert.ok(kernels.every((kernel) => kernel.rank === getRank()));
      const trace = prof.chromeTrace();
      checkTrace(trace);
      assert.deepEqual(trace.distributedInfo, { rank: getRank(), worldSize: 2 });
      assert.ok(trace.traceEvents.every(({ pid }) => pid === getRank()));
      const [slice] = slicesOf(trace, 'collective') as [profiler.TraceEvent];
      assert.equal(slice.args?.['bytes'], 400);
      assert.equal(
        threadNames(trace).get(`${slice.pid} ${slice.tid}`),
        `cpu stream ${stream}: ${collective?.group}`,
      );
      const rows = prof.keyAverages({ groupByKernel: true });
      assert.equal(rows.get(`allReduce (${collective?.group})`)?.count, 1);
    }),
  );

  it(
    'can start and end at different times while other ranks go on',
    withRanks(2, async () => {
      const t = ones([10]);
      if (getRank() === 1) await new Promise((resolve) => setTimeout(resolve, 3));
      const prof = await profiler.profile(onCpu, async () => {
        t.mul(2);
        await new Promise((resolve) => setTimeout(resolve, 1 + 4 * getRank()));
        t.add(1);
      });
      allReduce(t);
      await t.read();
      assert.deepEqual(
        prof.events().map(({ name }) => name),
        ['mul', 'add'],
      );
      assert.equal(prof.kernels().length, 2);
    }),
  );

  it(
    'refuse a synchronous function that has waited for other ranks at its end',
    withRanks(2, async () => {
      const t = ones([4]);
      let refused = false;
      try {
        profiler.profile(onCpu, () => allReduce(t));
      } catch {
        refused = true;
      }
      await t.read();
      await barrier();
      assert.equal(refused, getRank() === 0, 'the other ranks have called nothing yet');
      const prof = profiler.profile(onCpu, () => t.add(1));
      assert.equal(prof.events().length, 1);
    }),
  );

  it('show each rank as a process, if the program around them is recorded', async () => {
    const prof = await profiler.profile(onCpu, async () => {
      ones([3]).add(1);
      await launch(2, async () => {
        const t = ones([50]);
        allReduce(t);
        await t.read();
        assert.throws(
          () => profiler.profile(onCpu, () => {}),
          (error) => error instanceof ArgumentError,
        );
      });
    });
    const ranks = (list: readonly { readonly rank: number | null }[]): unknown[] =>
      [...new Set(list.map(({ rank }) => rank))].sort();
    assert.deepEqual(ranks(prof.events()), [0, 1, null]);
    const collectives = prof.kernels().filter(({ kind }) => kind === 'collective');
    assert.ok(collectives.length >= 2);
    assert.deepEqual(ranks(collectives), [0, 1]);
    const trace = prof.chromeTrace();
    checkTrace(trace);
    assert.deepEqual(
      trace.traceEvents
        .filter(({ name }) => name === 'process_name')
        .map(({ pid, args }) => [pid, args?.['name']])
        .sort(),
      [
        [0, 'rank 0'],
        [1, 'rank 1'],
        [2, 'shardwise'],
      ],
    );
  });
});
