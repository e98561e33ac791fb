/** Recorded timelines: what ranks have run, against the graph and the simulated timeline. */
import assert from 'node:assert/strict';
import { FakeTensorMode, type Graph } from '../../../lib/compile/index.js';
import { getRank } from '../../../lib/distributed.js';
import { ArgumentError, compile as compileFunction, ones, randn } from '../../../lib/index.js';
import {
  commFusionWithConcat,
  compile,
  IterGraphModule,
  type IterGraphModuleOptions,
  recordTimeline,
  type StepTransformation,
  scheduleCommWait,
  Timeline,
  type TimelineEntry,
  timeline,
} from '../../../lib/spmd/index.js';
import { slowCollectives, withRanks } from '../../../lib/testing/index.js';
import { adamOf, inFakeWorld, type Model, modelOf, trainStep } from '../support/fake-step.js';

const DIM = 16;

type Passes = (gm: IterGraphModule) => void;

const none: Passes = () => {};
const fused: Passes = (gm) => commFusionWithConcat(gm, 1);
const scheduled: Passes = (gm) => {
  fused(gm);
  scheduleCommWait(gm);
};

/** A step that has been taken once, and its graph. */
function stepWith(
  passes: Passes,
  options: IterGraphModuleOptions = {},
): { readonly take: () => void; readonly graph: Graph } {
  let made: IterGraphModule | undefined;
  const gmTransformation: StepTransformation = (module) => {
    made = new IterGraphModule(module, options);
    passes(made);
    made.finalizeSetup();
    return made;
  };
  const model: Model = modelOf(2, DIM);
  const step = compile({ gmTransformation })(trainStep);
  const [adam, batch] = [adamOf(model), randn([4, DIM])];
  const take = (): void => step(model, adam, batch);
  take();
  return { take, graph: made!.main };
}

const isKernel = ({ lane, start, end }: TimelineEntry): boolean =>
  lane === 'communication' || end > start;

function checkTimes(seen: Timeline): void {
  const ends = { compute: 0, communication: 0 };
  for (const { name, lane, start, end, waited, called } of seen.entries) {
    assert.ok(start <= end, `${name} starts at ${start} and ends at ${end}`);
    assert.ok(start >= ends[lane], `${name} starts before what is before it in its stream ends`);
    assert.ok(waited >= 0 && waited <= start, `${name} waits ${waited}`);
    assert.ok((called as number) >= 0 && Number.isFinite(end), name);
    ends[lane] = end;
  }
  assert.equal(seen.rates, null);
  assert.equal(seen.total, Math.max(...Object.values(ends)));
  assert.ok(seen.exposed >= 0 && seen.exposed <= seen.communication + 1e-12);
  assert.ok(Math.abs(seen.total - seen.compute - seen.exposed - seen.idle) < 1e-9);
}

/** Every node that a simulated timeline has is there once, and every wait. */
function checkNodes(seen: Timeline, graph: Graph): void {
  const { entries } = timeline(graph);
  const waits = graph.nodes.filter(({ op }) => op?.name === 'waitTensor').map(({ name }) => name);
  const names = (list: readonly TimelineEntry[]): string[] =>
    list.map(({ name }) => name).filter((name) => !waits.includes(name));
  assert.deepEqual(names(seen.entries), names(entries.filter(isKernel)));
  assert.deepEqual(
    seen.entries.map(({ name }) => name).filter((name) => waits.includes(name)),
    waits,
  );
  for (const { name, flops, bytes } of entries.filter(isKernel)) {
    const same = seen.entries.find((entry) => entry.name === name)!;
    assert.deepEqual([same.flops, same.bytes], [flops, bytes], name);
  }
}

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
        const restore = slowCollectives({ latency: 0.15, bandwidth: 1e9 });
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
            assert.ok(end - start >= 0.15);
            const wait = each.entries.find(({ name }) => name.startsWith('waitTensor'))!;
            assert.ok(wait.end >= end && wait.waited > 0, 'the wait returns after the end');
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
      assert.ok(getRank() >= 0);
    }),
  );
});
