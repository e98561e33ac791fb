/** Memory looks after itself: scopes to the byte, the collector in time, the event loop untouched. */
import assert from 'node:assert/strict';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { FreedError, keep, memory, nn, ones, optim, rand, scope } from '../../lib/index.js';

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
    assert.ok(memory.stats().peakAllocatedBytes < 600 * 2 ** 20, `peak ${memory.stats().peakAllocatedBytes}`);
  });

  it('gives 200 MiB of dropped results back to the system', async () => {
    const a = ones([262144]);
    // Work of earlier tests is done and its memory given back before the count starts, and the engine's own heap has grown to what
    // such a loop needs.
    for (let i = 0; i < 60; i++) await a.add(1).read();
    memory.collect();
    await sleep(100);
    const before = process.memoryUsage().rss;
    for (let i = 0; i < 200; i++) {
      await a.add(1).read();
      if (i % 20 === 0) await sleep(1);
    }
    memory.collect();
    await sleep(50);
    memory.collect();
    await sleep(50);
    const keptMiB = (process.memoryUsage().rss - before) / 2 ** 20;
    assert.ok(keptMiB <= 15, `${keptMiB.toFixed(1)} MiB kept`);
  });

  it('keeps an eager training loop without scopes flat', function () {
    this.timeout(120000);
    const model = new nn.Sequential(new nn.Linear(32, 64), new nn.ReLU(), new nn.Linear(64, 1));
    const optimizer = new optim.Adam(model.parameters(), { lr: 1e-3 });
    const x = rand([16, 32]);
    let early = 0;
    for (let step = 0; step < 3000; step++) {
      const loss = model(x).square().mean();
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      if (step === 200) {
        early = Math.max(memory.stats().peakAllocatedBytes, 2 ** 20);
        memory.resetPeak();
      }
    }
    assert.ok(memory.stats().peakAllocatedBytes <= 1.3 * early, `peak ${memory.stats().peakAllocatedBytes}, at step 200 ${early}`);
  });
});

describe('awaiting a large product', () => {
  it('does not stall the event loop', async function () {
    this.timeout(60000);
    const a = rand([1536, 1536]);
    await a.mm(a).read();
    const delay = monitorEventLoopDelay({ resolution: 1 });
    await sleep(20);
    delay.enable();
    for (let i = 0; i < 3; i++) await a.mm(a).narrow(0, 0, 1).read();
    delay.disable();
    // The histogram includes its own resolution of 1 ms and what the operating system takes from a shared machine.
    assert.ok(delay.percentile(50) / 1e6 < 3.5, `median stall ${delay.percentile(50) / 1e6} ms`);
  });
});
