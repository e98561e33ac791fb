/** Sums of events and their tables. */
import assert from 'node:assert/strict';
import { compile } from '../../lib/compile/index.js';
import { ArgumentError, matmul, nn, ones, profiler, type Tensor } from '../../lib/index.js';
import { trainingStep } from './support/training-step.js';

const onCpu = { activities: ['cpu'] } as const;
const close = (a: number, b: number): void =>
  assert.ok(Math.abs(a - b) <= 1e-6 * Math.max(1, Math.abs(b)), `${a} and ${b}`);
const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);

describe('Profile.keyAverages', () => {
  it('adds up calls by name: self times are all of the time, totals have those below', () => {
    const { step } = trainingStep();
    const prof = profiler.profile(onCpu, () => profiler.recordFunction('all', step));
    const averages = prof.keyAverages();
    const all = averages.get('all') ?? assert.fail();
    const rows = [...averages];
    close(sum(rows.map((row) => row.selfCpuTimeTotal)), all.cpuTimeTotal);
    close(averages.selfCpuTimeTotal, all.cpuTimeTotal);
    close(sum(rows.map((row) => row.selfDeviceTimeTotal)), all.deviceTimeTotal);
    close(averages.selfDeviceTimeTotal, sum(prof.kernels().map(({ duration }) => duration)));
    const count = prof.events().filter(({ name }) => name === 'matmul').length;
    assert.equal(averages.get('matmul')?.count, count);
  });

  it('groups by input shapes', () => {
    const run = (n: number) => matmul(ones([n, n]), ones([n, n]));
    const prof = profiler.profile({ ...onCpu, recordShapes: true }, () => {
      for (const n of [2, 3, 2]) run(n);
    });
    const rows = prof
      .keyAverages({ groupByInputShape: true })
      .rows.filter(({ key }) => key === 'matmul');
    assert.deepEqual(
      rows.map(({ inputShapes, count }) => [inputShapes, count]),
      [
        ['[[2, 2], [2, 2]]', 2],
        ['[[3, 3], [3, 3]]', 1],
      ],
    );
  });

  it('groups by module path: forward and backward count for a module and those around it', () => {
    const { step } = trainingStep();
    const prof = profiler.profile({ ...onCpu, withModules: true }, step);
    const averages = prof.keyAverages({ groupByModule: true });
    assert.deepEqual([...averages].map(({ key }) => key).sort(), ['0', '1', '2', 'Sequential']);
    assert.ok([...averages].every(({ count }) => count === 1));
    const whole = averages.get('Sequential') ?? assert.fail();
    const layers = ['0', '1', '2'].map((key) => averages.get(key) ?? assert.fail());
    close(whole.deviceTimeTotal, sum(layers.map((row) => row.deviceTimeTotal)));
    const inBackward = prof
      .events()
      .filter(({ isBackward, modulePath }) => isBackward && modulePath === '0');
    assert.ok(sum(inBackward.map(({ selfDeviceTimeTotal }) => selfDeviceTimeTotal)) > 0);
    assert.match(averages.table(), /^-+.*\nModule /);
  });

  it('groups the kernels of a compiled module by the modules that they come from', () => {
    const block = () => new nn.Sequential(new nn.Linear(4, 4), new nn.ReLU());
    const model = new nn.Sequential(block(), block(), new nn.Linear(4, 1));
    const compiled = compile(model);
    const step = (run: (x: Tensor) => unknown): void => {
      (run(ones([8, 4])) as Tensor).sum().backward();
    };
    for (let i = 0; i < 2; i++) step(compiled);
    const settings = { ...onCpu, withModules: true };
    const expected = profiler.profile(settings, () => step((x) => model(x)));
    const actual = profiler.profile(settings, () => {
      for (let i = 0; i < 3; i++) step(compiled);
    });
    const rows = actual.keyAverages({ groupByModule: true });
    const keys = (averages: Iterable<{ key: string }>): string[] =>
      [...averages].map(({ key }) => key).sort();
    assert.deepEqual(keys(rows), keys(expected.keyAverages({ groupByModule: true })));
    for (const { key, count } of rows) assert.equal(count, 3, key);
    const whole = rows.get('Sequential') ?? assert.fail();
    const children = ['0', '1', '2'].map((key) => rows.get(key) ?? assert.fail());
    const inside = sum(children.map((row) => row.deviceTimeTotal));
    close(whole.deviceTimeTotal, inside + whole.selfDeviceTimeTotal);
    close(whole.deviceTimeTotal, sum([...rows].map((row) => row.selfDeviceTimeTotal)));
    assert.ok(inside > 0 && whole.cpuTimeTotal > 0);
    const inLayer = actual.kernels().filter(({ modulePath }) => modulePath === '0.0');
    assert.ok(inLayer.some(({ op }) => op?.name.endsWith('backward')));
    assert.ok(inLayer.some(({ name }) => name === 'matmul'));
  });

  it('groups by kernel', () => {
    const a = ones([4, 4]);
    const prof = profiler.profile(onCpu, () => {
      matmul(a, a);
      matmul(a, a).add(1);
    });
    const averages = prof.keyAverages({ groupByKernel: true });
    assert.deepEqual(
      [...averages].map(({ key, count }) => [key, count]),
      [
        ['matmul', 2],
        ['add', 1],
      ],
    );
    assert.equal(averages.get('add')?.cpuTimeTotal, 0);
  });

  it('prints a table: sorted, limited, with shares of the whole', () => {
    const { step } = trainingStep();
    const prof = profiler.profile({ ...onCpu, profileMemory: true }, step);
    const averages = prof.keyAverages();
    const table = averages.table({ sortBy: 'count', rowLimit: 3, maxNameColumnWidth: 10 });
    const lines = table.split('\n');
    assert.match(
      lines[1] as string,
      /^Name +Self CPU % +Self CPU +CPU total % .*CPU Mem.* # of Calls$/,
    );
    assert.equal(lines.length, 3 + 3 + 3);
    const counts = lines.slice(3, 6).map((line) => Number(/(\d+)$/.exec(line)?.[1]));
    assert.deepEqual(
      counts,
      [...counts].sort((a, b) => b - a),
    );
    assert.match(table, /Self CPU time total: [\d.]+[mu]s/);
    assert.equal(String(averages), averages.table());
    assert.ok(averages.table({ rowLimit: -1 }).split('\n').length === averages.rows.length + 6);
  });

  it('refuses groups that were not recorded, several groups and unknown columns', () => {
    const prof = profiler.profile(onCpu, () => ones([2]).add(1));
    assert.throws(() => prof.keyAverages({ groupByInputShape: true }), /recordShapes: true/);
    assert.throws(() => prof.keyAverages({ groupByModule: true }), /withModules: true/);
    assert.throws(
      () => prof.keyAverages({ groupByModule: true, groupByKernel: true }),
      ArgumentError,
    );
    assert.throws(() => prof.keyAverages().table({ sortBy: 'time' as never }), ArgumentError);
    assert.throws(() => prof.keyAverages().table({ rowLimit: 1.5 }), ArgumentError);
  });
});
