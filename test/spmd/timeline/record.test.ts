/** Recorded timelines: what ranks have run, against the graph and the simulated timeline. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../../lib/compile/index.js';
import { ArgumentError, compile as compileFunction, ones } from '../../../lib/index.js';
import { recordTimeline, Timeline, type TimelineEntry, timeline } from '../../../lib/spmd/index.js';
import { slowCollectives, withRanks } from '../../../lib/testing/index.js';
import { inFakeWorld } from '../support/fake-step.js';
import {
  checkNodes,
  checkTimes,
  fused,
  none,
  scheduled,
  stepWith,
} from '../support/recorded-step.js';

const entryOf = ({ entries }: Timeline, name: string): TimelineEntry =>
  entries.find((entry) => entry.name === name) ?? assert.fail(`no entry ${name}`);

describe('recordTimeline', () => {
  it(
    'records every node once, in order, before and after passes',
    withRanks(2, async () => {
      for (const passes of [none, scheduled]) {
        const { take, graph } = stepWith(passes);
        const seen = await recordTimeline(take, { title: 'a step' });
        checkTimes(seen);
        checkNodes(seen, graph);
        take();
      }
    }),
  );

  it(
    'shows that late waits let kernels run while ranks communicate, and other waits do not',
    withRanks(
      2,
      async () => {
        const latency = 0.5; // longer than a loaded machine stops a rank between call and wait
        const restore = slowCollectives({ latency, bandwidth: 1e9 });
        try {
          const seen: Timeline[] = [];
          for (const passes of [fused, scheduled]) {
            const { take, graph } = stepWith(passes);
            seen.push(await recordTimeline(take));
            checkTimes(seen.at(-1)!);
            checkNodes(seen.at(-1)!, graph);
          }
          const [before, after] = seen as [Timeline, Timeline];
          for (const each of seen) {
            const { start, end } = entryOf(each, 'allReduceFused');
            assert.ok(end - start >= latency);
            const wait = each.entries.find(({ name }) => name.startsWith('waitTensor'))!;
            assert.ok(wait.end >= end, `the wait returns at ${wait.end}, before the end at ${end}`);
            assert.ok(
              wait.waited > 0,
              `the wait, called at ${wait.called}, found the end at ${end}`,
            );
            assert.ok(entryOf(each, 'adamStepCapturable').start >= end);
          }
          // The first kernel of the optimizer needs no gradients.
          const first = 'foreachAddScalar';
          assert.ok(entryOf(before, first).start >= entryOf(before, 'allReduceFused').end);
          assert.ok(entryOf(after, first).start < entryOf(after, 'allReduceFused').end);
          assert.ok(after.exposed < after.communication);
        } finally {
          restore();
        }
      },
      { mode: 'process' },
    ),
  );

  it('records encoded commands as one entry, between collectives', async () => {
    const { take } = stepWith(none, { enableInductor: true });
    const seen = await recordTimeline(take);
    checkTimes(seen);
    assert.equal(seen.entries.length, 1);
    assert.match(seen.entries[0]!.name, /^\w+ … adamStepCapturable$/);
    assert.ok(seen.entries[0]!.flops > 0);
  });

  it('records compiled functions, also several in one run', async () => {
    const double = compileFunction((x: ReturnType<typeof ones>) => x.mul(2), { backend: 'eager' });
    double(ones([8]));
    const seen = await recordTimeline(() => {
      double(ones([8]));
      double(ones([8]));
    });
    assert.deepEqual(
      seen.entries.map(({ name }) => name),
      ['mul', 'mul'],
    );
    checkTimes(seen);
  });

  it('shows what a rank has seen as a table, and as a picture', async () => {
    const { take } = stepWith(none);
    const seen = await recordTimeline(take, { title: 'a step' });
    assert.match(String(seen), /^a step as a rank has seen it: [\d.]+ \w+, of which kernels/);
    assert.match(String(seen), /called +start +end +waited +stream/);
    assert.match(seen.toSvg(), /a step: [\d.]+ \w+, of which/);
  });

  it('gives kernels of simulated timelines the times that were recorded', () => {
    const at = (seconds: number): Timeline =>
      new Timeline('', null, [
        {
          name: 'matmul',
          lane: 'compute',
          called: 0,
          start: 1,
          end: 1 + seconds,
          waited: 0,
          flops: 0,
          bytes: 0,
        },
      ]);
    const { graph } = stepWith(none);
    const { entries } = timeline(graph, { measured: [at(2), at(4)] });
    const { start, end } = entries.find(({ name }) => name === 'matmul')!;
    assert.ok(Math.abs(end - start - 3) < 1e-9);
    assert.ok(
      entries.every(({ name, start: from, end: to }) => name === 'matmul' || to - from < 1),
    );
  });

  it('refuses what runs no graph, returns a promise, or has no values', async () => {
    const refused = (run: () => Promise<unknown>, message: RegExp): Promise<void> =>
      assert.rejects(
        run(),
        (error: Error) => error instanceof ArgumentError && message.test(error.message),
      );
    await refused(() => recordTimeline(3 as never), /expected fn to be a function/);
    await refused(() => recordTimeline(() => ones([2]).add(1)), /fn ran no graph/);
    await refused(() => recordTimeline(async () => {}), /expected a synchronous function/);
    await refused(() => recordTimeline(() => {}, { name: 'x' } as never), /no option "name"/);
    await refused(() => recordTimeline(() => {}, { title: 3 as never }), /title to be a string/);
    const fake: Promise<unknown>[] = [];
    await inFakeWorld(2, () => {
      fake.push(recordTimeline(stepWith(none).take));
    });
    await refused(() => fake[0]!, /tensors without values take no time/);
    const { take } = stepWith(none);
    await refused(
      () => recordTimeline(() => new FakeTensorMode().run(take)),
      /tensors without values take no time/,
    );
    await assert.rejects(
      recordTimeline(() => {
        throw new Error('of the program');
      }),
      /of the program/,
    );
    await refused(() => recordTimeline(() => ones([2]).add(1)), /fn ran no graph/);
  });
});

describe('slowCollectives', () => {
  it(
    'refuses local ranks and connections that are none',
    withRanks(2, async () => {
      const refused = (connection: object, message: RegExp): void =>
        assert.throws(() => slowCollectives(connection as never), message);
      refused({ latency: -1, bandwidth: 1 }, /expected latency/);
      refused({ latency: 0, bandwidth: 0 }, /expected bandwidth/);
      refused({ latency: 0, bandwidth: 1, speed: 1 }, /no option "speed"/);
      refused({ latency: 0, bandwidth: 1 }, /ranks that share a process must not block/);
    }),
  );
});
