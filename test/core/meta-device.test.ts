/** Tensors on the device `meta`: shapes, dtypes and gradients without memory. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../lib/compile/index.js';
import { dispatch } from '../../lib/core/dispatch.js';
import type { Sample } from '../../lib/core/op.js';
import {
  ArgumentError,
  bfloat16,
  compile,
  DeviceError,
  device,
  empty,
  float64,
  getDefaultDevice,
  getRngState,
  int64,
  library,
  memory,
  nn,
  noGrad,
  ones,
  optim,
  rand,
  randn,
  scope,
  setDefaultDevice,
  type Tensor,
  tensor,
  withDevice,
  zeros,
} from '../../lib/index.js';
import { isVariable, ownOps } from '../every-op/differentiable.js';

const onMeta = (shape: readonly number[]): Tensor => empty(shape, { device: 'meta' });
const toMeta = (t: Tensor): Tensor => (t.storage === null ? t : t.to('meta'));
const layoutOf = (t: Tensor): unknown => [t.dtype.name, t.shape, t.strides];

describe('a tensor on meta', () => {
  it('comes from every factory, has no memory and prints its size', () => {
    const before = memory.stats().allocatedBytes;
    const made = [
      onMeta([2, 3]),
      zeros([2, 3], { device: 'meta', dtype: bfloat16 }),
      tensor([1, 2], { device: device('meta') }),
      rand([4], { device: 'meta' }),
      ones([1e6]).to('meta'),
      onMeta([1e9, 1e3]),
    ];
    for (const t of made)
      assert.deepEqual([t.device.type, t.isMeta, t.isCpu], ['meta', true, false]);
    assert.deepEqual(
      made.map((t) => t.numel()),
      [6, 6, 2, 4, 1e6, 1e12],
    );
    assert.equal(String(made[1]), "tensor(..., size=[2, 3], dtype=bfloat16, device='meta')");
    assert.ok(memory.stats().allocatedBytes - before < 8e6);
    assert.equal(device('meta'), (made[0] as Tensor).device);
  });

  it('is what factories make inside withDevice, and after setDefaultDevice', () => {
    assert.equal(withDevice('meta', () => ones([2])).device.type, 'meta');
    assert.throws(() =>
      withDevice('meta', () => {
        throw new Error('inside');
      }),
    );
    assert.equal(getDefaultDevice().type, 'cpu');
    setDefaultDevice('meta');
    try {
      assert.ok(ones([2]).add(zeros([2])).isMeta);
    } finally {
      setDefaultDevice('cpu');
    }
    assert.throws(() => withDevice('meta', async () => 1), ArgumentError);
    assert.throws(() => withDevice('nowhere' as 'cpu', () => 1), DeviceError);
  });

  it('has no values to read: the errors say what to do', async () => {
    const [t, one] = [onMeta([2, 2]), onMeta([])];
    for (const read of [
      () => one.item(),
      () => Number(one),
      () => t.tolist(),
      () => t.t().toTypedArray(),
      () => t.nonzero(),
      () => t.to('cpu'),
      () => ones([2, 2]).copy_(t),
      () => new nn.Linear(2, 2, { device: 'meta' }).to('cpu'),
    ])
      assert.throws(
        read,
        (error: Error) => error instanceof DeviceError && /toEmpty/.test(error.message),
      );
    await assert.rejects(t.read(), DeviceError);
    await assert.rejects(one.itemAsync(), DeviceError);
    assert.throws(() => memory.stats('meta'), DeviceError);
    assert.throws(() => t.pinMemory(), DeviceError);
  });

  it('is refused beside real tensors with dims, by the name of the op', () => {
    const [meta, real] = [onMeta([2, 2]), ones([2, 2])];
    for (const [name, mix] of Object.entries({
      add: () => meta.add(real),
      mul: () => real.mul(meta),
      add_: () => real.add_(meta),
      matmul: () => real.matmul(meta),
      where: () => real.where(meta.gt(0), real),
      layerNorm: () => nn.functional.layerNorm(meta, [2], { weight: ones([2]) }),
      embedding: () => nn.functional.embedding(zeros([2], { dtype: int64 }), meta),
    }))
      assert.throws(
        mix,
        (error: Error) => error instanceof DeviceError && /meta/.test(error.message),
        name,
      );
    assert.throws(
      () => meta.sub(real),
      /sub: expected tensors on one device, .*on meta and .*on cpu/,
    );
  });

  it('goes with numbers, and with real tensors without dims', () => {
    const t = onMeta([3]);
    for (const result of [t.add(1), t.mul(tensor(2)), tensor(2).mul(t), t.mul_(tensor(2))])
      assert.deepEqual([result.isMeta, result.shape], [true, [3]]);
  });

  it('takes copies of real tensors, which do nothing', () => {
    const t = onMeta([2, 3]);
    assert.equal(t.copy_(ones([2, 3])), t);
    assert.equal(t.copy_(ones([3])), t);
    assert.ok(t.isMeta);
  });

  it('has views on one storage, and versions', () => {
    const t = onMeta([4, 6]);
    const view = t.view([2, 12]).select(0, 1);
    assert.equal(view.untypedStorage(), t.untypedStorage());
    view.zero_();
    assert.equal(t._version, 1);
    t.dispose();
    assert.throws(() => t.add(1), /freed/);
  });

  it('takes no numbers from the generator', () => {
    const before = getRngState();
    randn([3], { device: 'meta' });
    onMeta([3]).normal_().bernoulli_();
    nn.functional.dropout(onMeta([3]), 0.5);
    nn.init.truncNormal_(onMeta([3, 3]));
    nn.init.orthogonal_(onMeta([3, 3]));
    assert.deepEqual(getRngState(), before);
  });
});

describe('ops on meta', () => {
  for (const op of ownOps()) {
    const samples = op.samples() as Sample<object>[];
    if (samples.length === 0 || op.traits.includes('placement')) continue;
    it(`give the shapes, dtypes and strides of ${op.name} on the CPU`, () => {
      for (const { inputs, params } of samples) {
        const real = noGrad(() => dispatch(op, inputs, params));
        const meta = noGrad(() => dispatch(op, inputs.map(toMeta), params));
        assert.deepEqual(meta.map(layoutOf), real.map(layoutOf));
        for (const t of meta) assert.ok(t.isMeta);
      }
    });
  }

  it('of users give what registerFake says', () => {
    const op = library.customOp('metatest::double', { mutatesArgs: [] }, (t: Tensor) => t.mul(2));
    op.registerFake((t: Tensor) => ({ shape: t.shape, dtype: float64 }));
    assert.deepEqual(layoutOf(op(onMeta([3]))), ['float64', [3], [1]]);
  });
});

describe('autograd on meta', () => {
  it('gives gradients of the shapes and dtypes of their parameters', () => {
    const model = withDevice(
      'meta',
      () => new nn.TransformerEncoderLayer(8, 2, { dimFeedforward: 16 }),
    );
    for (let step = 0; step < 2; step++)
      model(onMeta([5, 3, 8]))
        .pow(2)
        .mean()
        .backward();
    for (const p of model.parameters()) assert.deepEqual(layoutOf(p.grad as Tensor), layoutOf(p));
    nn.utils.clipGradNorm_(model.parameters(), 1);
    for (const optimizer of [
      new optim.AdamW(model.parameters()),
      new optim.SGD(model.parameters(), { lr: 0.1, momentum: 0.9 }),
    ]) {
      optimizer.step();
      optimizer.zeroGrad();
    }
  });

  it('works for every op with a gradient rule', () => {
    for (const op of ownOps()) {
      if (op.vjp === null || op.traits.includes('placement')) continue;
      for (const { inputs, params } of op.samples() as Sample<object>[]) {
        const given = inputs.map((t) =>
          isVariable(t) ? toMeta(t.detach()).requiresGrad_() : toMeta(t),
        );
        const outputs = dispatch(op, given, params).filter((t) => t.requiresGrad);
        for (const t of outputs) t.backward(onMeta(t.shape).to(t.dtype), { retainGraph: true });
        for (const t of given)
          if (isVariable(t) && t.grad !== null) assert.deepEqual(t.grad.shape, t.shape, op.name);
      }
    }
  });

  it('frees nothing that a scope would keep', () => {
    const w = onMeta([3, 3]).requiresGrad_();
    scope(() => w.matmul(w).sum().backward());
    assert.deepEqual(w.grad?.shape, [3, 3]);
  });
});

describe('meta beside modes', () => {
  it('is captured by compile, as an argument and from outside', () => {
    const outside = onMeta([3]);
    const fn = compile((t: Tensor) => t.mul(outside).sum(), { fullgraph: true });
    for (let i = 0; i < 2; i++)
      assert.deepEqual([fn(onMeta([3])).isMeta, fn(onMeta([3])).shape], [true, []]);
  });

  it('counts no memory under FakeTensorMode', () => {
    const mode = new FakeTensorMode();
    const model = mode.run(() => withDevice('meta', () => new nn.Linear(1000, 1000)));
    assert.equal(mode.memory.stats().peak.total, 0);
    mode.run(() => model.toEmpty('cpu'));
    assert.equal(mode.memory.stats().current.parameters, 4 * 1001000);
  });
});
