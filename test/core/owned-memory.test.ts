/** `memory.owned`: memory that only the `dispose()` of its tensor frees. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../lib/compile/index.js';
import {
  ArgumentError,
  autograd,
  empty,
  FreedError,
  keep,
  memory,
  nn,
  ones,
  scope,
  type Tensor,
} from '../../lib/index.js';

const allocated = (): number => memory.stats().allocatedBytes;

describe('memory with one owner', () => {
  it('outlives scopes and collections, without a token', () => {
    memory.collect();
    const { allocatedBytes, tokens } = memory.stats();
    let buffer!: Tensor;
    scope(() => {
      scope(() => {
        buffer = memory.owned(() => ones([1000]));
      });
    });
    memory.collect();
    assert.equal(memory.stats().tokens, tokens);
    assert.equal(allocated() - allocatedBytes, 4032);
    assert.equal(buffer.sum().item(), 1000);
    buffer.dispose();
    buffer.dispose();
    memory.collect();
    assert.equal(allocated(), allocatedBytes);
  });

  it('is freed by its owner while views of it and saved tensors are alive', () => {
    const buffer = memory.owned(() => ones([1000]));
    const view = buffer.view(10, 100);
    const weight = new nn.Parameter(ones([1000]));
    const loss = weight.mul(buffer).sum();
    const before = allocated();
    buffer.dispose();
    assert.equal(before - allocated(), 4032);
    assert.throws(
      () => view.add(1),
      (error: FreedError) => error instanceof FreedError && /that owns it/.test(error.message),
    );
    assert.throws(() => loss.backward(), FreedError);
  });

  it('is not freed by the tensors that view it', () => {
    const buffer = memory.owned(() => ones([4]));
    scope(() => {
      buffer.view(2, 2).dispose();
      buffer.detach().dispose();
      keep(buffer.view(2, 2)).dispose();
    });
    assert.deepEqual(buffer.tolist(), [1, 1, 1, 1]);
    buffer.dispose();
  });

  it('comes and goes by resize_, and views of it see what it is filled with', () => {
    const before = allocated();
    const buffer = memory.owned(() => ones([1000]));
    const view = buffer.narrow(0, 2, 2);
    const storage = buffer.untypedStorage();
    storage.resize_(0);
    assert.equal(allocated(), before);
    storage.resize_(4000);
    buffer.fill_(3);
    assert.deepEqual(view.tolist(), [3, 3]);
    buffer.dispose();
    assert.equal(allocated(), before);
  });

  it('is that of the tensors that fn returns, and what else it made is freed', () => {
    const before = allocated();
    const { list } = memory.owned(() => ({ list: [ones([1000]).mul(2), scope(() => ones([4]))] }));
    const [large, small] = list as [Tensor, Tensor];
    assert.equal(allocated() - before, 4032 + 64);
    large.dispose();
    assert.equal(allocated() - before, 64);
    small.dispose();
    assert.equal(allocated(), before);
  });

  it('belongs to the first of two returned tensors that show it', () => {
    const [first, second] = memory.owned(() => {
      const t = ones([4]);
      return [t, t.view(2, 2)] as const;
    });
    second.dispose();
    assert.deepEqual(first.tolist(), [1, 1, 1, 1]);
    first.dispose();
    assert.throws(() => first.tolist(), FreedError);
  });

  it('is freed when its owner is given other memory', () => {
    const other = ones([2]);
    const before = allocated();
    const buffer = memory.owned(() => ones([1000]));
    buffer.data = other;
    assert.deepEqual(buffer.tolist(), [1, 1]);
    buffer.dispose();
    assert.equal(allocated(), before);
  });

  it('stays the same memory where it becomes a .grad that is cleared', () => {
    const x = ones([3], { requiresGrad: true });
    const buffer = memory.owned(() => ones([3]));
    x.grad = buffer;
    x.grad = null;
    assert.deepEqual(buffer.tolist(), [1, 1, 1]);
    buffer.dispose();
  });

  it('is never what a gradient rule writes into', () => {
    const x = ones([2, 3], { requiresGrad: true });
    const buffer = memory.owned(() => x.softmax(1));
    buffer.square().sum().backward();
    assert.ok(buffer.sum().sub(2).abs().item() < 1e-5);
    buffer.dispose();
  });

  it('is counted until it is freed where tensors are fake', () => {
    const mode = new FakeTensorMode();
    mode.run(() => {
      const buffer = memory.owned(() => empty([1000]));
      const before = mode.memory.stats().current.total;
      assert.equal(before, 4000);
      buffer.dispose();
    });
    assert.equal(mode.memory.stats().current.total, 0);
  });

  it('leaves alone what fn has not made, with allowOthers', () => {
    const there = ones([2]);
    const [own, other] = memory.owned(() => [ones([3]), there.detach()], { allowOthers: true });
    const view = (own as Tensor).view(3, 1);
    own?.dispose();
    other?.dispose();
    assert.throws(() => view.tolist(), FreedError);
    assert.deepEqual(there.tolist(), [1, 1]);
  });

  it('stays for the collector where a function of the program has returned it as a gradient', () => {
    const buffer = memory.owned(() => ones([2]));
    class Given extends autograd.Function {
      static forward(_ctx: autograd.FunctionContext, x: Tensor): Tensor {
        return x.mul(2);
      }
      static backward(): Tensor {
        return buffer.detach();
      }
    }
    const x = ones([2], { requiresGrad: true });
    const [grad] = autograd.grad(Given.apply(x).sum(), [x]);
    buffer.dispose();
    assert.deepEqual(grad?.tolist(), [1, 1]);
  });

  it('is refused for what fn has not made, for no tensor, and for promises', () => {
    const there = ones([2]);
    const before = allocated();
    assert.throws(() => memory.owned(() => [ones([1000]), there]), ArgumentError);
    assert.throws(() => memory.owned(() => keep(ones([1000]))).dispose(), /keep\(\)/);
    assert.throws(() => memory.owned(() => {}), ArgumentError);
    assert.throws(() => memory.owned(async () => ones([1000])), ArgumentError);
    assert.throws(() => memory.owned(1 as never), ArgumentError);
    assert.deepEqual(there.tolist(), [1, 1]);
    memory.collect();
    assert.ok(allocated() <= before);
  });
});
