/** Traces in Chrome's form: what viewers need of them. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { ArgumentError, compile, ones, profiler } from '../../lib/index.js';
import { checkTrace, flowsOf, slicesOf, threadNames } from './support/check-trace.js';
import { trainingStep } from './support/training-step.js';

const everything = {
  activities: ['cpu'],
  recordShapes: true,
  withModules: true,
  profileMemory: true,
} as const;

describe('Profile.chromeTrace', () => {
  it('has nested slices of the host and slices of streams, with flows from op to kernel', () => {
    const { step } = trainingStep();
    const prof = profiler.profile(everything, () => profiler.recordFunction('a step', step));
    const trace = prof.chromeTrace();
    checkTrace(trace);
    assert.equal(slicesOf(trace, 'user_annotation')[0]?.name, 'a step');
    const categories = new Set(slicesOf(trace).map(({ cat }) => cat));
    for (const cat of ['cpu_op', 'autograd', 'module', 'optimizer', 'kernel'])
      assert.ok(categories.has(cat), cat);
    assert.equal(slicesOf(trace, 'kernel').length, prof.kernels().length);
    assert.deepEqual([...threadNames(trace).values()].sort(), ['JavaScript', 'cpu stream 0']);
    const withFlow = prof.kernels().filter(({ op }) => op !== null);
    assert.equal(flowsOf(trace).length, withFlow.length);
    for (const { from, to } of flowsOf(trace)) assert.equal(to.args?.['op'], from.name);
    const add = slicesOf(trace, 'cpu_op').find(({ name }) => name === 'matmul');
    assert.deepEqual(add?.args?.['Input Dims'], [[4, 8], [8, 16], [16]]);
    assert.equal(add?.args?.['module'], '0');
  });

  it('has counters of the memory of each device', () => {
    const prof = profiler.profile(everything, () => ones([64, 64]));
    const counters = prof.chromeTrace().traceEvents.filter(({ ph }) => ph === 'C');
    assert.ok(counters.length > 0);
    for (const { name, args } of counters) {
      assert.equal(name, 'memory cpu');
      assert.ok((args?.['reserved'] as number) >= (args?.['allocated'] as number));
    }
  });

  it('puts functions that overlap on threads of their own', async () => {
    const a = ones([2]);
    const part = (name: string, ms: number) =>
      profiler.recordFunction(name, async () => {
        a.add(1);
        await new Promise((resolve) => setTimeout(resolve, ms));
        a.mul(2);
      });
    const prof = await profiler.profile({ activities: ['cpu'] }, async () => {
      await Promise.all([part('one', 2), part('other', 6)]);
    });
    checkTrace(prof.chromeTrace());
    assert.ok([...threadNames(prof.chromeTrace()).values()].includes('JavaScript, overlapping 1'));
  });

  it('shows a run of a compiled function around its kernels', () => {
    function fused(x: ReturnType<typeof ones>) {
      return x.mul(2).sin().sum();
    }
    const compiled = compile(fused);
    const x = ones([100, 100]);
    compiled(x);
    compiled(x);
    const prof = profiler.profile({ activities: ['cpu'] }, () => compiled(x));
    const [event] = prof.events();
    assert.deepEqual([event?.kind, event?.name, event?.kernels.length], ['compiled', 'fused', 2]);
    const trace = prof.chromeTrace();
    checkTrace(trace);
    const plan = slicesOf(trace, 'compiled').find(({ args }) => args?.['kernels'] === 2);
    const kernels = slicesOf(trace, 'kernel');
    assert.equal(kernels.length, 2);
    for (const { ts, dur = 0, tid } of kernels) {
      assert.equal(tid, plan?.tid);
      assert.ok(plan && ts >= plan.ts && ts + dur <= plan.ts + (plan.dur ?? 0) + 1e-3);
    }
  });

  it('shows the capture of a compiled function, and its backward', () => {
    function layer(x: ReturnType<typeof ones>) {
      return x.mul(x).sum();
    }
    const compiled = compile(layer);
    const prof = profiler.profile({ activities: ['cpu'] }, () =>
      compiled(ones([4], { requiresGrad: true })).backward(),
    );
    const kinds = prof.events().map(({ kind, name }) => `${kind} ${name}`);
    for (const kind of ['compile layer', 'compiled layer', 'compiled layer backward'])
      assert.ok(kinds.includes(kind), `${kind} in ${kinds.join(', ')}`);
    checkTrace(prof.chromeTrace());
  });

  it('shows regions inside of a compiled function only while it is captured', () => {
    function named(x: ReturnType<typeof ones>) {
      return profiler.recordFunction('inside', () => x.mul(3));
    }
    const compiled = compile(named, { fullgraph: true });
    const x = ones([4]);
    const run = (): string[] => {
      const prof = profiler.profile({ activities: ['cpu'] }, () => compiled(x));
      checkTrace(prof.chromeTrace());
      return prof.events().map(({ kind, name }) => `${kind} ${name}`);
    };
    assert.ok(run().includes('user inside'));
    assert.deepEqual(run(), ['compiled named']);
    assert.deepEqual(compiled(x).tolist(), [3, 3, 3, 3]);
  });

  it('is refused inside of a compiled function, which could not repeat it', () => {
    const inner = (x: ReturnType<typeof ones>) => {
      profiler.profile({ activities: ['cpu'] }, () => x.add(1));
      return x.mul(2);
    };
    assert.throws(() => compile(inner, { fullgraph: true })(ones([2])), /profiler\.profile/);
  });

  it('is written to a file at once', () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-trace-'));
    try {
      const file = path.join(folder, 'trace.json');
      const prof = profiler.profile(everything, () => ones([2]).add(1));
      prof.exportChromeTrace(file);
      assert.deepEqual(
        JSON.parse(readFileSync(file, 'utf8')),
        JSON.parse(JSON.stringify(prof.chromeTrace())),
      );
      assert.deepEqual(readdirSync(folder), ['trace.json']);
      prof.exportChromeTrace(`${file}.gz`);
      assert.deepEqual(gunzipSync(readFileSync(`${file}.gz`)), readFileSync(file));
      assert.throws(() => prof.exportChromeTrace(''), ArgumentError);
      for (const [place, code] of [
        ['none/trace.json', 'ENOENT'],
        ['trace.json/trace.json', 'ENOTDIR'],
        ['', 'EISDIR'],
      ])
        assert.throws(
          () => prof.exportChromeTrace(path.join(folder, place as string)),
          (error: Error) =>
            error instanceof ArgumentError && error.message.includes(`(${code}): make the folder`),
        );
      assert.equal(readdirSync(folder).length, 2);
      const other = `${file}.${process.pid}.tmp`;
      writeFileSync(other, 'of another program');
      prof.exportChromeTrace(file);
      assert.equal(readFileSync(other, 'utf8'), 'of another program');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
