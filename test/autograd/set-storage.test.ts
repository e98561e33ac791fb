/**
 * `set_` and `data` replace the memory of a tensor that keeps its identity, as FSDP does with its
 * parameters.
 */
import assert from 'node:assert/strict';
import {
  AutogradError,
  autograd,
  compile,
  DtypeError,
  float64,
  InPlaceError,
  int64,
  memory,
  nn,
  noGrad,
  ones,
  scope,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

const values = (t: Tensor | null | undefined): number[] =>
  Array.from((t as Tensor).toTypedArray() as Float32Array);
const allocated = (): number => memory.stats().allocatedBytes;

describe('set_', () => {
  it('uses the memory of the source, so that writes to the source change the tensor', () => {
    const x = tensor([0, 0]);
    const buffer = zeros([2]);
    const [view1, view2] = [buffer.view([-1]), buffer.view([-1])];
    view1.copy_(x.add(1));
    x.set_(view2);
    assert.deepEqual(values(x), [1, 1]);
    buffer.fill_(5);
    assert.deepEqual(values(x), [5, 5]);
  });

  it('takes over shape, strides and offset, and increments the version', () => {
    const x = zeros([2]);
    const source = tensor([
      [1, 2, 3],
      [4, 5, 6],
    ])
      .t()
      .narrow(0, 1, 2);
    assert.equal(x.set_(source), x);
    assert.deepEqual(x.tolist(), [
      [2, 5],
      [3, 6],
    ]);
    assert.deepEqual(x.stride(), [1, 3]);
    assert.equal(x._version, 1);
  });

  it('keeps a parameter a leaf with its gradient, its hooks and its place in the module', () => {
    const module = new nn.Linear(2, 1, { bias: false });
    const { weight } = module;
    module(ones([1, 2]))
      .sum()
      .backward();
    noGrad(() => weight.set_(tensor([[3, 4]])));
    assert.ok(weight.isLeaf && weight.requiresGrad);
    assert.deepEqual(values(weight.grad), [1, 1]);
    assert.deepEqual(values(module(ones([1, 2]))), [7]);
  });

  it('gives right gradients if a parameter is whole in forward and backward and sharded in between', () => {
    const w = tensor([0.5, 1.5], { requiresGrad: true });
    const [full, shard] = [tensor([0.5, 1.5]), tensor([0.5])];
    noGrad(() => w.set_(full));
    const loss = w.sin().sum();
    noGrad(() => {
      autograd.unsafePreserveVersionCounter(w, () => w.set_(shard));
      autograd.unsafePreserveVersionCounter(w, () => w.set_(full));
    });
    loss.backward();
    assert.deepEqual(values(w.grad), [Math.fround(Math.cos(0.5)), Math.fround(Math.cos(1.5))]);
  });

  it('gives the memory the lifetime of the target, not that of its scope', () => {
    const x = zeros([4]);
    const before = allocated();
    scope(() => {
      x.set_(ones([4]).add(1));
    });
    assert.deepEqual(values(x), [2, 2, 2, 2]);
    assert.equal(allocated(), before);
  });

  it('frees the previous memory if and only if no other tensor uses it', () => {
    const x = zeros([4]);
    const alias = x.view([2, 2]);
    const before = allocated();
    const next = ones([4]);
    x.set_(next);
    assert.deepEqual(values(alias), [0, 0, 0, 0]);
    alias.dispose();
    assert.equal(allocated(), before);
    next.dispose();
    assert.deepEqual(values(x), [1, 1, 1, 1]);
  });

  it('refuses other dtypes and devices, and tensors whose gradient would be lost', () => {
    const x = zeros([2]);
    assert.throws(() => x.set_(zeros([2], { dtype: float64 })), DtypeError);
    const w = zeros([2]).requiresGrad_();
    assert.throws(() => w.set_(x), InPlaceError);
    assert.throws(() => x.set_(w), AutogradError);
  });

  it('is replayed by a compiled function on the tensors of the caller', () => {
    const fn = compile(
      (x: Tensor) => {
        const buffer = x.newZeros([2]);
        buffer.view([-1]).copy_(x.add(1));
        x.set_(buffer.view([-1]));
        return x.mul(10);
      },
      { fullgraph: true },
    );
    noGrad(() => {
      for (const start of [0, 4]) {
        const x = tensor([start, start]);
        assert.deepEqual(values(fn(x)), [10 * (start + 1), 10 * (start + 1)]);
        assert.deepEqual(values(x), [start + 1, start + 1]);
        assert.equal(x._version, 1);
      }
    });
  });
});

describe('the data property', () => {
  it('is a tensor on the same memory without history and with a separate version counter', () => {
    const w = tensor([1, 2], { requiresGrad: true });
    w.data.mul_(3);
    assert.deepEqual(values(w), [3, 6]);
    assert.equal(w._version, 0);
    assert.equal(w.data.requiresGrad, false);
  });

  it('can be assigned, also on a leaf that requires a gradient', () => {
    const w = tensor([1, 2], { requiresGrad: true });
    w.data = tensor([5, 6, 7]);
    assert.deepEqual(w.shape, [3]);
    w.square().sum().backward();
    assert.deepEqual(values(w.grad), [10, 12, 14]);
    assert.throws(() => {
      w.data = tensor([1n], { dtype: int64 });
    }, DtypeError);
  });
});
