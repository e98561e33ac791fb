/** Memory is freed by scopes, to the byte, and by the garbage collector. */
import assert from 'node:assert/strict';
import {
  autograd,
  FreedError,
  keep,
  memory,
  nn,
  ones,
  scope,
  type Tensor,
  zeros,
} from '../../lib/index.js';
import { runProgram } from '../run-program.js';
import { assertFlat } from './flat-memory.js';

const allocated = (): number => memory.stats().allocatedBytes;

describe('a scope', () => {
  it('frees the tensors created inside, to the byte, and keeps returned ones', () => {
    memory.collect();
    const before = allocated();
    const kept = scope(() => ones([1000]).add(1).mul(2));
    assert.equal(allocated() - before, 4032);
    kept.dispose();
    assert.equal(allocated(), before);
  });

  it('keeps the tensors of a returned object of any kind', () => {
    class Output {
      values: Tensor;
      readonly others: Set<Tensor>;
      constructor() {
        this.values = ones([1000]);
        this.others = new Set([ones([10])]);
        ones([5]);
      }
    }
    const outer = scope(() => [scope(() => new Output())]);
    const bare = scope(() => Object.assign(Object.create(null), { values: ones([2]) }));
    assert.equal(outer[0]?.values.sum().item(), 1000);
    assert.equal([...(outer[0]?.others ?? [])][0]?.sum().item(), 10);
    assert.equal(bare.values.sum().item(), 2);
  });

  it('ends with its `using` block, and ends inner scopes that are still open', () => {
    memory.collect();
    const before = allocated();
    const outer = scope();
    ones([1000]);
    const kept = keep(ones([1000]));
    scope();
    ones([1000]);
    outer[Symbol.dispose]();
    outer.dispose();
    assert.equal(allocated() - before, 4032);
    kept.dispose();
    assert.equal(allocated(), before);
  });

  it('stays open behind `leave`, while tensors belong to the scope around it', () => {
    const left = scope();
    const held = ones([1000]);
    const inside = scope();
    const outer = scope(() => {
      left.leave();
      return ones([1000]);
    });
    inside.dispose();
    assert.throws(() => outer.add(1), { code: 'ERR_FREED' });
    const after = ones([1000]);
    assert.equal(held.add(after).sum().item(), 2000);
    left.dispose();
    assert.throws(() => held.add(1), { code: 'ERR_FREED' });
    assert.equal(after.sum().item(), 1000);
  });

  it('gives what it holds to the open scope by `join`', () => {
    const left = scope();
    const held = ones([1000]);
    left.leave();
    scope(() => {
      left.join();
      left.dispose();
      assert.equal(held.sum().item(), 1000);
    });
    assert.throws(() => held.add(1), { code: 'ERR_FREED' });
  });

  it('names the ended scope when one of its tensors is used', () => {
    let leaked = ones([1]);
    scope(() => {
      leaked = ones([3]);
    });
    assert.throws(
      () => leaked.add(1),
      (error: FreedError) => error instanceof FreedError && /scope/.test(error.message),
    );
  });

  it('lets dispose() free a tensor that was read before', async () => {
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

  it('lets dispose() free a view that it returned', () => {
    const before = memory.stats().allocatedBytes;
    const loss = scope(() => {
      const x = ones([1000]).requiresGrad_();
      const sum = x.mul(2).sum();
      sum.backward();
      return sum.detach();
    });
    loss.dispose();
    assert.equal(memory.stats().allocatedBytes, before);
  });

  it('frees the gradients of leaves that it frees, also those from inner scopes', () => {
    const before = memory.stats().allocatedBytes;
    scope(() => {
      const x = ones([1000]).requiresGrad_();
      for (let i = 0; i < 3; i++) scope(() => x.mul(2).sum().backward());
      assert.equal(x.grad?.sum().item(), 6000);
      x.grad = null;
      x.mul(3).sum().backward();
    });
    assert.equal(memory.stats().allocatedBytes, before);
  });

  it('keeps the gradients of leaves that outlive it, and the buffers of modules', () => {
    const weight = ones([3]).requiresGrad_();
    for (let i = 0; i < 2; i++) scope(() => weight.mul(2).sum().backward());
    assert.deepEqual(weight.grad?.tolist(), [4, 4, 4]);
    const returned = scope(() => {
      const x = ones([2]).requiresGrad_();
      x.mul(3).sum().backward();
      return x;
    });
    assert.deepEqual(returned.grad?.tolist(), [3, 3]);
    const module = new nn.Identity();
    scope(() => module.registerBuffer('steps', zeros([2])));
    assert.deepEqual(module.getBuffer('steps').tolist(), [0, 0]);
  });

  it('frees the gradients that autograd.grad returned inside, and keeps those that it returns', () => {
    const x = ones([1000]).requiresGrad_();
    const gradientOf = (): Tensor => autograd.grad(x.mul(x).sum(), [x])[0] as Tensor;
    memory.collect();
    const before = allocated();
    scope(() => void gradientOf());
    assert.equal(allocated(), before);
    const kept = scope(() => scope(gradientOf));
    assert.deepEqual(kept.tolist(), Array(1000).fill(2));
    assert.equal(allocated() - before, 4032);
    kept.dispose();
    assert.equal(allocated(), before);
  });

  it('moves tensors that a graph needs to the outer scope, which frees them after backward', () => {
    const x = zeros([1000]).requiresGrad_();
    memory.collect();
    const { allocatedBytes, tokens } = memory.stats();
    scope(() => {
      const loss = scope(() => x.mul(2).exp().sin().sum());
      assert.equal(allocated() - allocatedBytes, 4032 + 64); // the result of exp, and the loss
      assert.equal(memory.stats().tokens, tokens);
      loss.backward();
      assert.equal(allocated() - allocatedBytes, 4032 + 64); // .grad, and the loss
      x.grad = null;
      const exp = scope(() => scope(() => x.exp()));
      exp.sum().backward();
      assert.equal(exp.sum().item(), 1000);
    });
    x.grad = null;
    assert.deepEqual([allocated(), memory.stats().tokens], [allocatedBytes, tokens]);
  });

  it('keeps a tensor that the graph needs if a view of it was returned', () => {
    const x = ones([2]).requiresGrad_();
    const view = scope(() => x.sub(1).softmax(0).view(2, 1));
    view.sum().backward();
    assert.deepEqual(view.tolist(), [[0.5], [0.5]]);
  });

  it('keeps no records of freed storages, however many inner scopes end', () => {
    const x = ones([2]).requiresGrad_();
    scope(() => {
      const before = process.memoryUsage().heapUsed;
      for (let i = 0; i < 20_000; i++) {
        scope(() => x.mul(2).sum().backward());
        x.grad = null;
      }
      memory.collect();
      const grown = process.memoryUsage().heapUsed - before;
      assert.ok(grown < 2 ** 20, `${grown} bytes more`);
    });
  });

  it('lets dispose() free a tensor of an ended scope, also if a graph needs its memory', () => {
    const x = zeros([2]).requiresGrad_();
    let inner = x;
    const loss = scope(() => {
      inner = x.exp();
      return inner.mul(inner).sum();
    });
    inner.dispose();
    loss.backward();
    assert.deepEqual(x.grad?.tolist(), [2, 2]);
  });

  it('releases a tensor that is passed to keep()', () => {
    let kept = ones([1]);
    scope(() => {
      kept = keep(ones([3]).add(1));
    });
    assert.deepEqual(kept.tolist(), [2, 2, 2]);
  });
});

describe('the garbage collector', () => {
  it('keeps the memory of a synchronous loop without dispose() flat', () => {
    memory.collect();
    memory.resetPeak();
    for (let i = 0; i < 2000; i++) ones([262144]).add(1);
    assert.ok(
      memory.stats().peakAllocatedBytes < 500 * 2 ** 20,
      `peak ${memory.stats().peakAllocatedBytes}`,
    );
  });

  it('returns 200 MiB of dropped results to the system', async function () {
    this.timeout(60000);
    const { keptMiB } = await runProgram<{ keptMiB: number }>('core/programs/dropped-tensors');
    assert.ok(keptMiB <= 15, `${keptMiB.toFixed(1)} MiB kept`);
  });

  it('keeps the memory of 20,000 eager training steps without scopes flat', async function () {
    this.timeout(120000);
    assertFlat(await runProgram('core/programs/training-loop', 'cpu', '20000'));
  });
});
