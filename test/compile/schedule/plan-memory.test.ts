/** The memory of plans: who owns results, and what is freed when. */
import assert from 'node:assert/strict';
import { setImmediate } from 'node:timers/promises';
import { destroyProcessGroup, functional, initProcessGroup } from '../../../lib/distributed.js';
import { library, memory, nn, ones, randn, scope, type Tensor, zeros } from '../../../lib/index.js';
import { allocatedBytes, assertNotGrown, planOf } from './lowered.js';

describe('the memory of a plan', () => {
  it('is as before after 10,000 runs', async function () {
    this.timeout(60_000);
    const model = new nn.Sequential(new nn.Linear(8, 32), new nn.GELU(), new nn.Linear(32, 8));
    const plan = planOf((x) => [model(x), x.add(1), x.softmax(0).narrow(0, 0, 1)], [randn([4, 8])]);
    const x = randn([4, 8]);
    for (let i = 0; i < 100; i++) plan.run([x]);
    await setImmediate();
    const before = allocatedBytes();
    for (let i = 0; i < 5000; i++) plan.run([x]);
    for (let i = 0; i < 5000; i++) scope(() => void plan.run([x]));
    await setImmediate();
    assertNotGrown(before);
  });

  it('has intermediate results during a run only', () => {
    const plan = planOf(
      (x) => {
        let y = x;
        for (let i = 0; i < 10; i++) y = y.add(1);
        return [y];
      },
      [zeros([1000])],
    );
    const x = zeros([1000]);
    const before = allocatedBytes();
    memory.resetPeak();
    const [y] = plan.run([x]) as [Tensor];
    assert.equal(memory.stats().allocatedBytes - before, 4032);
    assert.equal(memory.stats().peakAllocatedBytes - before, 4032 + 2 * 4096);
    assert.deepEqual(y.narrow(0, 0, 1).tolist(), [10]);
  });

  it('frees operands and results of collectives after their last use', async () => {
    await initProcessGroup('fake', { rank: 0, worldSize: 4 });
    try {
      const x = zeros([1000]);
      const peakOf = (collectives: number): number => {
        const plan = planOf(
          (input) => {
            let y = input;
            for (let i = 0; i < collectives; i++) y = functional.allReduce(y.add(1), 'sum');
            return [y.add(1)];
          },
          [x],
        );
        const before = allocatedBytes();
        memory.resetPeak();
        scope(() => void plan.run([x]));
        return memory.stats().peakAllocatedBytes - before;
      };
      assert.equal(peakOf(10), peakOf(3));
    } finally {
      destroyProcessGroup();
    }
  });

  it('gives results to the open scope', () => {
    const plan = planOf((x) => [x.add(1), x.mul(2)], [ones([8])]);
    const x = ones([8]);
    const before = allocatedBytes();
    const [kept, freed] = scope(() => {
      const [a, b] = plan.run([x]) as [Tensor, Tensor];
      return [{ a }, [b.untypedStorage()]] as const;
    });
    assert.deepEqual(kept.a.tolist(), new Array(8).fill(2));
    assert.equal(freed[0]?.handle, 0);
    assert.equal(memory.stats().allocatedBytes - before, 64);
    kept.a.dispose();
    assert.equal(memory.stats().allocatedBytes, before);
  });

  it('frees what one segment passes to the next after its last use', () => {
    const copied = library.customOp('plan::copied', {}, (x: Tensor): Tensor => x.mul(1));
    copied.registerFake((x: Tensor) => x);
    const plan = planOf(
      (x) => {
        const large = x.add(1);
        const small = copied(x);
        return [large.sum(), small.add(1)];
      },
      [zeros([1000])],
    );
    const x = zeros([1000]);
    const before = allocatedBytes();
    const [sum] = scope(() => {
      const [total, y] = plan.run([x]) as [Tensor, Tensor];
      assert.equal(memory.stats().allocatedBytes - before, 64 + 4032 + 4032);
      y.dispose();
      return [total];
    });
    assert.equal(sum?.item(), 1000);
  });

  it('belongs to several results that show the same', () => {
    const plan = planOf(
      (x) => {
        const y = x.add(1);
        return [y.narrow(0, 0, 2), y.narrow(0, 2, 2)];
      },
      [ones([4])],
    );
    const [a, b] = plan.run([ones([4])]) as [Tensor, Tensor];
    a.dispose();
    assert.deepEqual(b.tolist(), [2, 2]);
  });

  it('has the op that made each result in its history', () => {
    const plan = planOf((x) => [x.add(1).exp()], [ones([4])]);
    memory.recordHistory(true);
    try {
      const [y] = plan.run([ones([4])]) as [Tensor];
      const origins = memory.snapshot().storages.map(({ origin }) => origin?.op);
      assert.ok(origins.includes('exp') && !origins.includes('add'), `${origins} ${y.shape}`);
    } finally {
      memory.recordHistory(false);
    }
  });
});
