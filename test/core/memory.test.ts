/** Memory looks after itself: scopes to the byte, the collector in time, the event loop untouched. */
import assert from 'node:assert/strict';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { FreedError, keep, memory, ones, rand, scope } from '../../lib/index.js';
import { runProgram } from '../run-program.js';
import { assertFlat } from './flat-memory.js';

const allocated = (): number => memory.stats().allocatedBytes;

describe('scope', () => {
  it('frees what was made inside, to the byte, and keeps what is returned', () => {
    memory.collect();
    const before = allocated();
    const kept = scope(() => ones([1000]).add(1).mul(2));
    assert.equal(allocated() - before, 4032);
    kept.dispose();
    assert.equal(allocated(), before);
  });

  it('says so when a tensor is used after its scope ended', () => {
    let leaked = ones([1]);
    scope(() => {
      leaked = ones([3]);
    });
    assert.throws(
      () => leaked.add(1),
      (error: FreedError) => error instanceof FreedError && /scope/.test(error.message),
    );
  });

  it('lets dispose() free what was read before', async () => {
    memory.collect();
    const before = allocated();
    const t = ones([2, 3]);
    const columns = t.t();
    t.tolist();
    columns.tolist();
    await columns.read();
    t.dispose();
    columns.dispose();
    assert.equal(allocated(), before);
  });

  it('lets keep() take a tensor out', () => {
    let kept = ones([1]);
    scope(() => {
      kept = keep(ones([3]).add(1));
    });
    assert.deepEqual(kept.tolist(), [2, 2, 2]);
  });
});

describe('the garbage collector', () => {
  it('keeps a synchronous loop that frees nothing by hand flat', () => {
    memory.collect();
    memory.resetPeak();
    for (let i = 0; i < 2000; i++) ones([262144]).add(1);
    assert.ok(memory.stats().peakAllocatedBytes < 500 * 2 ** 20, `peak ${memory.stats().peakAllocatedBytes}`);
  });

  it('gives 200 MiB of dropped results back to the system', async function () {
    this.timeout(60000);
    const { keptMiB } = await runProgram<{ keptMiB: number }>('core/programs/dropped-tensors');
    assert.ok(keptMiB <= 15, `${keptMiB.toFixed(1)} MiB kept`);
  });

  it('keeps an eager training loop of 20,000 steps without scopes flat', async function () {
    this.timeout(120000);
    assertFlat(await runProgram('core/programs/training-loop', 'cpu', '20000'));
  });
});

describe('awaiting a large product', () => {
  it('does not stall the event loop', async function () {
    this.timeout(60000);
    this.retries(3); // other processes of the machine may stall it
    const a = rand([2048, 2048]);
    await a.mm(a).read();
    const delay = monitorEventLoopDelay({ resolution: 1 });
    await sleep(20);
    delay.enable();
    for (let i = 0; i < 10; i++) await a.mm(a).narrow(0, 0, 1).read();
    delay.disable();
    // The histogram includes its own resolution of 1 ms. The longest few belong to the scheduler, whose slices are 3 to 4 ms, as soon
    // as more threads want to run than there are processors.
    assert.ok(delay.percentile(90) / 1e6 - 1 < 2, `90 of 100 stalls are at most ${delay.percentile(90) / 1e6 - 1} ms`);
    assert.ok(delay.percentile(50) / 1e6 - 1 < 0.5, `median stall ${delay.percentile(50) / 1e6 - 1} ms`);
  });
});
