/** Schedules: the actions of steps, and the traces of profiles that have one. */
import assert from 'node:assert/strict';
import { ArgumentError, ones, profiler } from '../../lib/index.js';

const onCpu = { activities: ['cpu'] } as const;

describe('profiler.schedule', () => {
  it('gives the actions that torch.profiler.schedule gives', () => {
    const actions = (options: profiler.ScheduleOptions, steps: number): string =>
      Array.from({ length: steps }, (_, i) => profiler.schedule(options)(i)).join(' ');
    assert.equal(
      actions({ wait: 1, warmup: 1, active: 2 }, 6),
      'none warmup record recordAndSave none warmup',
    );
    assert.equal(
      actions({ wait: 0, warmup: 0, active: 1, repeat: 2, skipFirst: 1 }, 5),
      'none recordAndSave recordAndSave none none',
    );
  });

  it('refuses numbers that are not whole, and no active step', () => {
    const made = (options: object) => () => profiler.schedule(options as never);
    assert.throws(made({ wait: 0.5, warmup: 0, active: 1 }), ArgumentError);
    assert.throws(made({ wait: 0, warmup: 0, active: 0 }), ArgumentError);
    assert.throws(made({ wait: 0, warmup: -1, active: 1 }), ArgumentError);
    assert.throws(made({ wait: 0, active: 1 }), ArgumentError);
  });

  it('records the active steps of each cycle, and gives each trace once', () => {
    const a = ones([2]);
    const traces: string[][] = [];
    const schedule = profiler.schedule({ wait: 1, warmup: 1, active: 2, repeat: 2 });
    const onTraceReady = (prof: profiler.Profile): void => {
      traces.push(prof.events().map(({ name, parent }) => `${parent?.name ?? ''}/${name}`));
    };
    const prof = profiler.profile({ ...onCpu, schedule, onTraceReady }, (p) => {
      for (let i = 0; i < 10; i++) {
        a.add(1);
        p.step();
      }
      assert.equal(p.stepNumber, 10);
    });
    const cycle = (first: number): string[] =>
      [first, first + 1].flatMap((i) => [`/ProfilerStep#${i}`, `ProfilerStep#${i}/add`]);
    assert.deepEqual(traces, [cycle(2), cycle(6)]);
    assert.equal(prof.events().length, 4, 'those of the last cycle');
  });

  it('gives the trace of a cycle that the end cuts off', () => {
    const a = ones([2]);
    let ready = 0;
    const schedule = profiler.schedule({ wait: 0, warmup: 1, active: 5 });
    const prof = profiler.profile({ ...onCpu, schedule, onTraceReady: () => ready++ }, (p) => {
      for (let i = 0; i < 2; i++) {
        a.add(1);
        p.step();
      }
      a.mul(2);
    });
    assert.equal(ready, 1);
    assert.deepEqual(
      prof.events().map(({ name }) => name),
      ['ProfilerStep#1', 'add', 'ProfilerStep#2', 'mul'],
    );
  });

  it('says that no step was active, where none was', () => {
    const schedule = profiler.schedule({ wait: 5, warmup: 0, active: 1 });
    const prof = profiler.profile({ ...onCpu, schedule }, () => {});
    assert.throws(() => prof.events(), /must reach an active step/);
    assert.throws(() => prof.step(), ArgumentError);
  });

  it('names the steps of a profile without a schedule, and refuses steps after its end', () => {
    const a = ones([2]);
    const prof = profiler.profile(onCpu, (p) => {
      a.add(1);
      p.step();
      a.mul(2);
    });
    assert.deepEqual(
      prof.events().map(({ name, parent }) => [name, parent?.name]),
      [
        ['ProfilerStep#0', undefined],
        ['add', 'ProfilerStep#0'],
        ['ProfilerStep#1', undefined],
        ['mul', 'ProfilerStep#1'],
      ],
    );
    assert.throws(() => prof.step(), ArgumentError);
  });
});
