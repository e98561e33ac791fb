/** Profiles of the CPU: events of the host, kernels of streams, memory, and their ends. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  amp,
  cuda,
  DeviceError,
  matmul,
  memory,
  nn,
  ones,
  profiler,
  type Tensor,
} from '../../lib/index.js';
import { trainingStep } from './support/training-step.js';

const onCpu = { activities: ['cpu'] } as const;
type Event = profiler.ProfilerEvent;

const named = (events: readonly Event[], name: string): Event =>
  events.find((event) => event.name === name) ?? assert.fail(`no event ${name}`);

const ancestors = ({ parent }: Event): string[] =>
  parent === null ? [] : [parent.name, ...ancestors(parent)];

describe('profiler.profile', () => {
  it('records each op with its kernels, in the order of the calls', () => {
    const a = ones([4, 4]);
    const prof = profiler.profile(onCpu, () => {
      matmul(a, a).add(1).mul_(2);
    });
    const events = prof.events();
    assert.deepEqual(
      events.map(({ name, kind }) => [name, kind]),
      [
        ['matmul', 'op'],
        ['add', 'op'],
        ['mul_', 'op'],
      ],
    );
    assert.deepEqual(
      events.map(({ kernels }) => kernels.map(({ name }) => name)),
      [['matmul'], ['add'], ['mul']],
    );
    assert.deepEqual(
      prof.kernels().map(({ kind, device, op }) => [kind, device, op?.name]),
      [
        ['kernel', 'cpu', 'matmul'],
        ['kernel', 'cpu', 'add'],
        ['kernel', 'cpu', 'mul_'],
      ],
    );
    assert.equal(prof.deviceTimer, null);
  });

  it('gives host and streams one clock: a kernel starts after its op and ends after its start', () => {
    const large = ones([512, 512]);
    const prof = profiler.profile(onCpu, () => {
      for (let i = 0; i < 4; i++) matmul(large, large);
    });
    for (const { start, end, op } of prof.kernels()) {
      assert.ok(start >= (op as Event).start - 50, `${start} ${op?.start}`);
      assert.ok(end >= start);
    }
    const times = prof.kernels().map(({ start }) => start);
    assert.deepEqual(
      times,
      [...times].sort((a, b) => a - b),
    );
    const total = prof.kernels().reduce((sum, { duration }) => sum + duration, 0);
    const [row] = prof.keyAverages().rows;
    assert.equal(row?.count, 4);
    assert.ok(Math.abs((row?.deviceTimeTotal ?? 0) - total) < 1e-6);
  });

  it('records shapes and dtypes of inputs only when asked', () => {
    const run = (recordShapes: boolean): Event =>
      profiler
        .profile({ ...onCpu, recordShapes }, () => matmul(ones([2, 3]), ones([3, 5])))
        .events()
        .find(({ name }) => name === 'matmul') as Event;
    assert.deepEqual(run(true).inputShapes, [
      [2, 3],
      [3, 5],
    ]);
    assert.deepEqual(run(true).inputDtypes, ['float32', 'float32']);
    assert.equal(run(false).inputShapes, null);
  });

  it('nests forward, backward and optimizer of a training step, with module paths', () => {
    const { step } = trainingStep();
    const prof = profiler.profile({ ...onCpu, withModules: true }, () =>
      profiler.recordFunction('a step', step),
    );
    const events = prof.events();
    assert.ok(events.every(({ name, parent }) => parent !== null || name === 'a step'));
    const forward = events.find(
      ({ kind, name, isBackward }) => kind === 'op' && name === 'matmul' && !isBackward,
    ) as Event;
    assert.deepEqual(ancestors(forward), ['0', 'Sequential', 'a step']);
    assert.deepEqual(forward.modulePaths, ['Sequential', '0']);
    assert.equal(forward.modulePath, '0');
    const node = named(events, 'MatmulBackward');
    assert.equal(node.kind, 'node');
    assert.deepEqual(ancestors(node), ['backward', 'a step']);
    assert.equal(node.modulePath, '2', 'the gradient of the last layer comes first');
    const step_ = named(events, 'AdamW.step');
    assert.equal(step_.kind, 'optimizer');
    assert.deepEqual(
      step_.children.map(({ name }) => name),
      ['adamStep'],
    );
    const gradients = events.filter(
      ({ kind, name }) => kind === 'node' && name === 'AccumulateGrad',
    );
    assert.equal(gradients.length, 4);
    for (const { parent, start, end } of events)
      if (parent !== null) assert.ok(start >= parent.start && end <= parent.end);
  });

  it('leaves out modules unless asked, and still has nodes', () => {
    const { step } = trainingStep();
    const events = profiler.profile(onCpu, step).events();
    assert.ok(events.every(({ kind, modulePath }) => kind !== 'module' && modulePath === null));
    assert.ok(events.some(({ kind }) => kind === 'node'));
  });

  it('records ops of mixed precision, and casts inside of them', () => {
    const a = ones([4, 4]);
    const prof = profiler.profile(onCpu, () =>
      amp.autocast({ deviceType: 'cpu', dtype: 'bfloat16' }, () => matmul(a, a)),
    );
    assert.ok(prof.events().some(({ name }) => name === 'matmul'));
    assert.equal(amp.autocast({ deviceType: 'cpu' }, () => matmul(a, a)).dtype.name, 'bfloat16');
  });

  it('records memory that ops allocate and free', () => {
    memory.collect();
    const prof = profiler.profile({ ...onCpu, profileMemory: true }, () => {
      const made = profiler.recordFunction('make', () => ones([256, 1024]));
      profiler.recordFunction('free', () => made.dispose());
    });
    const mib = 2 ** 20;
    const own = (name: string): number[] =>
      prof
        .memory()
        .filter(({ op }) => op !== null && [op.name, ...ancestors(op)].includes(name))
        .map(({ bytes }) => bytes);
    assert.deepEqual(own('make'), [mib]);
    assert.deepEqual(own('free'), [-mib]);
    const averages = prof.keyAverages();
    assert.equal(averages.get('make')?.cpuMemoryUsage, mib);
    assert.equal(averages.get('make')?.selfCpuMemoryUsage, 0, 'the op inside did it');
    assert.equal(averages.get('free')?.selfCpuMemoryUsage, -mib);
    assert.match(averages.table(), /1\.00 MiB/);
    for (const { allocated, reserved, device } of prof.memory()) {
      assert.equal(device, 'cpu');
      assert.ok(allocated >= 0 && reserved >= allocated);
    }
    assert.deepEqual(profiler.profile(onCpu, () => ones([4])).memory(), []);
  });

  it('records an asynchronous function until its promise settles', async () => {
    const a = ones([4]);
    const prof = await profiler.profile(onCpu, async () => {
      a.add(1);
      await profiler.recordFunction('later', async () => {
        await new Promise((resolve) => setTimeout(resolve, 2));
        a.mul(2);
      });
      a.sub(1);
    });
    const events = prof.events();
    assert.deepEqual(
      events.map(({ name }) => name),
      ['add', 'later', 'mul', 'sub'],
    );
    assert.deepEqual(ancestors(named(events, 'mul')), ['later']);
    assert.deepEqual(ancestors(named(events, 'sub')), []);
    const { cpuTimeTotal, selfCpuTimeTotal } = named(events, 'later');
    assert.ok(cpuTimeTotal >= 1000 && selfCpuTimeTotal < cpuTimeTotal);
  });

  it('records the call site of ops with withStack', () => {
    const prof = profiler.profile({ ...onCpu, withStack: true }, () => ones([2]).add(1));
    assert.match(named(prof.events(), 'add').stack as string, /profile\.test\.[jt]s/);
  });

  it('records copies between streams and the program', async () => {
    const large = ones([256, 256]);
    const prof = await profiler.profile(onCpu, async () => {
      await matmul(large, large).read();
    });
    assert.ok(prof.kernels().some(({ kind, name }) => kind === 'memcpy' && name === 'Memcpy HtoH'));
  });

  it('records nothing after its end', () => {
    const a = ones([4]);
    const prof = profiler.profile(onCpu, () => a.add(1));
    a.mul(2);
    new nn.Linear(4, 4)(a);
    assert.equal(prof.events().length, 1);
    assert.equal(prof.kernels().length, 1);
    assert.equal(profiler.profile(onCpu, () => {}).events().length, 0);
  });

  it('ends when fn throws or rejects', async () => {
    const failure = new Error('of the program');
    const fail = (): never => {
      throw failure;
    };
    assert.throws(() => profiler.profile(onCpu, fail), failure);
    await assert.rejects(
      profiler.profile(onCpu, async () => fail()),
      failure,
    );
    assert.throws(
      () => profiler.profile(onCpu, () => profiler.recordFunction('inner', fail)),
      failure,
    );
    const a = ones([2]);
    const dropped = (): never => {
      a.mul(2).dispose();
      throw failure;
    };
    assert.throws(() => profiler.profile(onCpu, dropped), failure);
    const prof = profiler.profile({ ...onCpu, profileMemory: true }, () => a.add(1));
    assert.deepEqual(
      [prof.events().length, prof.kernels().length, prof.memory().length],
      [1, 1, 1],
    );
  });

  it('keeps kernels of commands that run after fn has returned', () => {
    const large = ones([300, 300]);
    let last: Tensor = large;
    const prof = profiler.profile(onCpu, () => {
      for (let i = 0; i < 10; i++) last = matmul(last, large);
    });
    assert.equal(prof.kernels().length, 10);
  });

  it('refuses unknown activities, GPUs where there are none, and other options', () => {
    const run = (options: object) => () => profiler.profile(options as never, () => {});
    assert.throws(run({ activities: ['gpu'] }), ArgumentError);
    assert.throws(run({ activities: [] }), ArgumentError);
    assert.throws(run({ activities: 'cpu' }), ArgumentError);
    assert.throws(run({ withShapes: true }), /there is no option "withShapes"/);
    assert.throws(run({ recordShapes: 1 }), ArgumentError);
    assert.throws(run({ deviceTimer: 'clock' }), ArgumentError);
    assert.throws(() => profiler.profile(onCpu, null as never), ArgumentError);
    assert.throws(() => profiler.recordFunction('', () => 1), ArgumentError);
    if (cuda.isAvailable()) return;
    assert.throws(
      run({ activities: ['cuda'] }),
      (error) => error instanceof DeviceError && /activities: \['cpu'\]/.test(error.message),
    );
  });

  it('says which options it takes where it gets a function alone', () => {
    assert.throws(
      () => (profiler.profile as unknown as (fn: () => void) => void)(() => {}),
      /expected options to be an object such as \{ activities: … \}, got a function/,
    );
  });

  it('refuses a profile inside of another, and goes on with the outer one', () => {
    const a = ones([2]);
    const prof = profiler.profile(onCpu, () => {
      assert.throws(
        () => profiler.profile(onCpu, () => {}),
        (error) => error instanceof ArgumentError && /recordFunction/.test(error.message),
      );
      a.add(1);
    });
    assert.deepEqual(
      prof.events().map(({ name }) => name),
      ['add'],
    );
  });

  it('refuses results before its end', () => {
    profiler.profile(onCpu, (prof) => {
      for (const use of [
        () => prof.exportChromeTrace('never.json'),
        () => prof.events(),
        () => prof.kernels(),
        () => prof.keyAverages(),
      ])
        assert.throws(
          use,
          (error) => error instanceof ArgumentError && /has ended/.test(error.message),
        );
    });
  });

  it('runs recordFunction as it is without a profile', () => {
    assert.equal(
      profiler.recordFunction('alone', () => 3),
      3,
    );
  });
});
