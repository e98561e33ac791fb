/**
 * Owners of memory around `set_` and `data`: version counters, saved tensors, and the lifetime of
 * the old and the new memory.
 */
import assert from 'node:assert/strict';
import {
  AutogradError,
  autograd,
  DtypeError,
  FreedError,
  float64,
  InPlaceError,
  int64,
  keep,
  memory,
  nn,
  noGrad,
  ones,
  ops,
  scope,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

const values = (t: Tensor | null): number[] =>
  Array.from((t as Tensor).toTypedArray() as Float32Array);
const allocated = (): number => memory.stats().allocatedBytes;

describe('a tensor after set_', () => {
  it('shares the storage and has the shape, strides and offset of the source', () => {
    const x = zeros([3]);
    const source = tensor([
      [1, 2, 3],
      [4, 5, 6],
    ])
      .t()
      .narrow(0, 1, 2);
    assert.equal(x.set_(source), x);
    assert.equal(x.untypedStorage(), source.untypedStorage());
    assert.deepEqual([x.shape, x.stride(), x.storageOffset], [[2, 2], [1, 3], 1]);
    source.add_(10);
    assert.deepEqual(x.tolist(), [
      [12, 15],
      [13, 16],
    ]);
    x.zero_();
    assert.deepEqual(source.tolist(), [
      [0, 0],
      [0, 0],
    ]);
  });

  it('has a version one higher, while that of the source stays, and counts later changes separately', () => {
    const [x, source] = [zeros([2]).add_(1), ones([2])];
    x.set_(source);
    assert.deepEqual([x._version, source._version], [2, 0]);
    x.add_(1);
    assert.deepEqual([x._version, source._version], [3, 0]);
  });

  it('can keep its version', () => {
    const x = zeros([2]).add_(1);
    autograd.unsafePreserveVersionCounter(x, () => x.set_(ones([2])));
    assert.equal(x._version, 1);
    autograd.unsafeSetVersionCounter(x, 7);
    assert.equal(x._version, 7);
  });

  it('has earlier views with the old memory and an unchanged version', () => {
    const x = tensor([1, 2, 3, 4]);
    const v = x.narrow(0, 1, 2);
    x.set_(zeros([2]));
    assert.deepEqual([v.tolist(), x.tolist(), v._version], [[2, 3], [0, 0], 0]);
    v.add_(1);
    assert.deepEqual([v.tolist(), x.tolist(), x._version], [[3, 4], [0, 0], 1]);
  });

  it('is no longer a view', () => {
    const base = tensor([1, 2, 3, 4]);
    const v = base.narrow(0, 0, 2);
    v.set_(tensor([7, 8]));
    v.add_(1);
    assert.equal(v._base, null);
    assert.deepEqual([base.tolist(), base._version, v.tolist()], [[1, 2, 3, 4], 0, [8, 9]]);
  });

  it('can be a leaf that requires a gradient only under noGrad', () => {
    const w = tensor([1, 2], { requiresGrad: true });
    assert.throws(
      () => w.set_(zeros([2])),
      (error: InPlaceError) => error instanceof InPlaceError && /noGrad/.test(error.message),
    );
    assert.throws(() => zeros([2]).set_(w), AutogradError);
    noGrad(() => w.set_(tensor([3, 4])));
    assert.ok(w.isLeaf && w.requiresGrad);
    w.mul(w).sum().backward();
    assert.deepEqual(values(w.grad), [6, 8]);
  });

  it('cannot be one that was freed, nor have the memory of one', () => {
    const [x, gone] = [zeros([2]), zeros([2])];
    gone.dispose();
    assert.throws(() => x.set_(gone), FreedError);
    assert.throws(() => gone.set_(x), FreedError);
  });

  it('makes backward throw if its old value was saved', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const y = x.mul(1);
    const z = y.mul(y);
    noGrad(() => y.set_(zeros([2])));
    assert.throws(() => z.sum().backward(), InPlaceError);
  });

  it('has earlier views with the right gradients', () => {
    const x = tensor([1, 2, 3], { requiresGrad: true });
    const y = x.mul(2);
    const v = y.narrow(0, 1, 2);
    noGrad(() => y.set_(zeros([5])));
    assert.throws(() => v.mul_(3), InPlaceError);
    v.mul(5).sum().backward();
    assert.deepEqual(values(x.grad), [0, 10, 10]);
  });
});

describe('memory after a swap', () => {
  it('is freed immediately, to the byte, if no other tensor views it', () => {
    memory.collect();
    const before = allocated();
    const [x, source] = [zeros([1000]), zeros([10])];
    assert.equal(allocated() - before, 4032 + 64);
    x.set_(source);
    assert.equal(allocated() - before, 64);
    source.dispose();
    assert.equal(allocated() - before, 64);
    x.dispose();
    assert.equal(allocated(), before);
  });

  it('lives as long as a view uses it', () => {
    memory.collect();
    const before = allocated();
    const [x, source] = [zeros([1000]), zeros([10])];
    const v = x.narrow(0, 0, 3);
    x.set_(source);
    assert.equal(allocated() - before, 4032 + 64);
    v.dispose();
    assert.equal(allocated() - before, 64);
    for (const t of [x, source]) t.dispose();
    assert.equal(allocated(), before);
  });

  it('outlives its scope only if a tensor from outside the scope took it', () => {
    memory.collect();
    const before = allocated();
    const x = zeros([1000]);
    scope(() => {
      const source = ones([20]);
      ones([500]);
      x.set_(source);
    });
    assert.deepEqual(x.tolist(), Array(20).fill(1));
    assert.equal(allocated() - before, 128);
    x.dispose();
    memory.collect();
    assert.equal(allocated(), before);
  });

  it('moves to the scope of the tensor that took it', () => {
    memory.collect();
    const before = allocated();
    scope(() => {
      const x = zeros([1000]);
      scope(() => x.set_(ones([20])));
      assert.deepEqual(x.tolist(), Array(20).fill(1));
    });
    assert.equal(allocated(), before);
  });

  it('stays with an outer tensor if an inner tensor took it', () => {
    const source = ones([20]);
    scope(() => zeros([3]).set_(source));
    assert.deepEqual(source.tolist(), Array(20).fill(1));
  });

  it('is owned by the graph that owned the replaced memory, and freed with it', () => {
    memory.collect();
    const before = allocated();
    const w = keep(ones([1000], { requiresGrad: true }));
    const loss = scope(() => {
      const y = w.mul(w).sum();
      noGrad(() => autograd.unsafePreserveVersionCounter(w, () => w.set_(ones([1000]).mul(3))));
      return y;
    });
    loss.backward();
    assert.equal(values(w.grad)[0], 6);
    for (const t of [loss, w.grad as Tensor, w]) t.dispose();
    w.grad = null;
    memory.collect();
    // garbage of other tests may go meanwhile
    assert.ok(allocated() <= before, `${allocated()} bytes, ${before} before`);
  });

  it('lives as long as its gradient', () => {
    memory.collect();
    const before = allocated();
    const w = ones([100], { requiresGrad: true });
    scope(() => {
      w.mul(2).sum().backward();
      (w.grad as Tensor).data = ones([100]).mul(5);
    });
    assert.equal(values(w.grad)[99], 5);
    w.grad?.dispose();
    w.grad = null;
    w.dispose();
    memory.collect();
    assert.ok(allocated() <= before, `${allocated()} bytes, ${before} before`);
  });

  it('is freed when its module is converted', () => {
    memory.collect();
    const before = allocated();
    const layer = new nn.Linear(100, 10, { bias: false });
    layer.to(float64);
    memory.collect();
    assert.equal(allocated() - before, 8000);
    layer.dispose();
    assert.equal(allocated(), before);
  });
});

describe('the data property', () => {
  it('can be assigned on a leaf of a graph, whose backward then reads the new values', () => {
    const w = tensor([1, 2], { requiresGrad: true });
    const y = w.mul(w).sum();
    w.data = tensor([10, 20]);
    assert.deepEqual([w._version, w.isLeaf, w.requiresGrad], [0, true, true]);
    y.backward();
    assert.deepEqual(values(w.grad), [20, 40]);
  });

  it('takes another shape and dtype, but only floats if a gradient is required', () => {
    const x = zeros([2]);
    x.data = ones([3], { dtype: int64 });
    assert.deepEqual([x.shape, x.dtype], [[3], int64]);
    const w = tensor([1], { requiresGrad: true });
    assert.throws(() => {
      w.data = ones([1], { dtype: int64 });
    }, DtypeError);
  });

  it('makes backward throw if it replaced the memory of an output that backward needs', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const y = x.exp();
    y.data = zeros([2]);
    assert.throws(
      () => y.sum().backward(),
      (error: InPlaceError) => error instanceof InPlaceError && /other memory/.test(error.message),
    );
  });
});

describe('ops.fsdp', () => {
  it('has a set_ that takes the memory over and a copy_ that copies', () => {
    const [x, y, source] = [zeros([2]), zeros([2]), tensor([1, 2])];
    ops.fsdp.set_(x, source);
    ops.fsdp.copy_(y, source);
    source.add_(1);
    assert.deepEqual(
      [x.tolist(), y.tolist()],
      [
        [2, 3],
        [1, 2],
      ],
    );
    assert.throws(() => ops.fsdp.copy_(ones([2], { requiresGrad: true }), source), InPlaceError);
  });
});
