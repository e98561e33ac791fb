/**
 * Mixed precision: which op runs in which precision, gradients, caching, nesting, captured
 * functions.
 */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  amp,
  bfloat16,
  cat,
  compile,
  crossEntropy,
  DtypeError,
  float16,
  float32,
  float64,
  int64,
  manualSeed,
  mseLoss,
  nn,
  noGrad,
  ones,
  optim,
  rand,
  randn,
  scaledDotProductAttention,
  scope,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

const values = (t: Tensor | null | undefined): number[] =>
  Array.from((t as Tensor).toTypedArray() as Float32Array);
const cpu = { deviceType: 'cpu' } as const;
const inRegion = <T>(fn: () => T): T => amp.autocast({ ...cpu, dtype: bfloat16 }, fn);

describe('autocast', () => {
  it('runs products and attention in the low precision, and leaves other ops alone', () => {
    const [a, b] = [randn([4, 4]), randn([4, 4])];
    inRegion(() => {
      assert.equal(a.mm(b).dtype, bfloat16);
      assert.equal(a.matmul(b).dtype, bfloat16);
      assert.equal(nn.functional.linear(a, b, ones([4])).dtype, bfloat16);
      assert.equal(
        scaledDotProductAttention(randn([1, 2, 3, 4]), randn([1, 2, 3, 4]), randn([1, 2, 3, 4]))
          .dtype,
        bfloat16,
      );
      assert.equal(a.add(b).dtype, float32);
      assert.equal(a.relu().dtype, float32);
      assert.equal(a.mm(b).softmax(-1).dtype, bfloat16);
    });
    assert.equal(a.mm(b).dtype, float32);
  });

  it('gives the product of the rounded operands', () => {
    const [a, b] = [randn([5, 7]), randn([7, 3])];
    assert.deepEqual(values(inRegion(() => a.mm(b))), values(a.to(bfloat16).mm(b.to(bfloat16))));
  });

  it('runs losses and norms in float32, and joins in the widest dtype', () => {
    const low = randn([4, 4]).to(bfloat16);
    inRegion(() => {
      assert.equal(mseLoss(low, low).dtype, float32);
      assert.equal(low.layerNorm([4], ones([4])).dtype, float32);
      assert.equal(low.prod(0).dtype, float32);
      assert.equal(cat([low, randn([4, 4])]).dtype, float32);
      assert.equal(crossEntropy(low, tensor([0, 1, 2, 3], { dtype: int64 })).dtype, bfloat16);
    });
  });

  it('accepts mixed dtypes that ops outside of a region refuse', () => {
    const [x, w] = [randn([2, 3]).to(bfloat16), randn([4, 3])];
    assert.throws(() => nn.functional.linear(x, w), DtypeError);
    assert.equal(inRegion(() => nn.functional.linear(x, w)).dtype, bfloat16);
  });

  it('leaves float64 and integers as they are', () => {
    inRegion(() => {
      assert.equal(
        randn([2, 2], { dtype: float64 }).mm(randn([2, 2], { dtype: float64 })).dtype,
        float64,
      );
      assert.equal(tensor([1, 2], { dtype: int64 }).prod().dtype, int64);
    });
  });

  it('gives parameters float32 gradients close to those without autocast', () => {
    manualSeed(1);
    const model = new nn.Sequential(
      new nn.Linear(8, 16),
      new nn.LayerNorm([16]),
      new nn.GELU(),
      new nn.Linear(16, 4),
    );
    const [x, y] = [randn([32, 8]), randn([32, 4])];
    mseLoss(model(x), y).backward();
    const exact = [...model.parameters()].map((p) => values(p.grad));
    model.zeroGrad();
    const loss = inRegion(() => mseLoss(model(x), y));
    loss.backward();
    [...model.parameters()].forEach((p, i) => {
      assert.equal((p.grad as Tensor).dtype, float32);
      const scale = Math.max(...(exact[i] as number[]).map(Math.abs));
      values(p.grad).forEach((g, k) =>
        assert.ok(
          Math.abs(g - (exact[i]?.[k] as number)) < 0.03 * scale,
          `parameter ${i}: ${g} against ${exact[i]?.[k]}`,
        ),
      );
    });
  });

  it('trains', () => {
    manualSeed(0);
    const model = new nn.Sequential(new nn.Linear(2, 32), new nn.Tanh(), new nn.Linear(32, 1));
    const optimizer = new optim.Adam(model.parameters(), { lr: 0.02 });
    const x = rand([64, 2]);
    const y = x.prod(1, { keepdim: true });
    const losses = Array.from({ length: 120 }, () => {
      const loss = inRegion(() => mseLoss(model(x), y));
      optimizer.zeroGrad();
      loss.backward();
      optimizer.step();
      return loss.item();
    });
    assert.ok(
      (losses.at(-1) as number) < 0.05 * (losses[0] as number),
      `${losses[0]} to ${losses.at(-1)}`,
    );
  });

  it('converts a weight once in a region, and again after it was changed', () => {
    const counter = CompileCounter();
    const layer = new nn.Linear(3, 3, { bias: false });
    const copies = (fn: (x: Tensor) => unknown): number => {
      const compiled = compile((x: Tensor) => inRegion(() => fn(x)) as Tensor, {
        backend: counter,
        fullgraph: true,
      });
      compiled(randn([2, 3]).to(bfloat16));
      return (counter.graphs.at(-1) as { callNodes: { op: { name: string } }[] }).callNodes.filter(
        (n) => n.op.name === 'copy',
      ).length;
    };
    assert.equal(
      copies((x) => layer(layer(x))),
      1,
    );
    inRegion(() => {
      const x = ones([1, 3]);
      const before = values(layer(x));
      noGrad(() => layer.weight.mul_(2));
      assert.deepEqual(
        values(layer(x)),
        before.map((v) => 2 * v),
      );
    });
  });

  it('converts a weight again after the scope of its copy has ended', () => {
    const layer = new nn.Linear(3, 3);
    inRegion(() => {
      const inner = scope(() =>
        layer(ones([1, 3]))
          .detach()
          .tolist(),
      );
      assert.deepEqual(layer(ones([1, 3])).tolist(), inner);
    });
  });

  it('nests, and an inner region can switch it off', () => {
    const a = randn([2, 2]);
    inRegion(() => {
      assert.equal(amp.isAutocastEnabled('cpu'), true);
      amp.autocast({ ...cpu, enabled: false }, () => assert.equal(a.mm(a).dtype, float32));
      amp.autocast({ ...cpu, dtype: float16 }, () => assert.equal(a.mm(a).dtype, float16));
      assert.equal(a.mm(a).dtype, bfloat16);
    });
    assert.equal(amp.isAutocastEnabled('cpu'), false);
    amp.autocast({ deviceType: 'cuda' }, () => assert.equal(a.mm(a).dtype, float32));
  });

  it('ends when its function returns or throws', () => {
    assert.throws(() =>
      inRegion(() => {
        throw new Error('from inside');
      }),
    );
    assert.equal(ones([2, 2]).mm(ones([2, 2])).dtype, float32);
  });

  it('does not convert operands of the backward pass', () => {
    const w = randn([3, 3]).requiresGrad_();
    inRegion(() => w.sin().sum().backward());
    const exact = values(w.detach().cos());
    assert.deepEqual(values(w.grad), exact);
  });

  it('is captured by compile, once for each mode', () => {
    const counter = CompileCounter();
    const fn = compile((a: Tensor, b: Tensor) => a.mm(b), { backend: counter, fullgraph: true });
    const [a, b] = [randn([3, 3]), randn([3, 3])];
    assert.equal(fn(a, b).dtype, float32);
    assert.equal(inRegion(() => fn(a, b)).dtype, bfloat16);
    assert.deepEqual(values(inRegion(() => fn(a, b))), values(inRegion(() => a.mm(b))));
    assert.equal(counter.frameCount, 2);
  });

  for (const backend of ['eager', 'aot_eager'] as const)
    it(`keeps conversions of activations apart from those of captures: ${backend}`, () => {
      const [x, w] = [randn([3, 4]).requiresGrad_(), randn([4, 4])];
      const run = (isCompiled: boolean): unknown[] =>
        inRegion(() => {
          const h = x.mul(1);
          const product = (): Tensor => h.matmul(w);
          const fn = isCompiled ? compile(product, { backend, fullgraph: true }) : product;
          const seen = [product().tolist(), fn().tolist()];
          h.mul_(2); // a graph that reads a conversion from before would not see it
          return [...seen, fn().tolist(), product().tolist(), fn().tolist()];
        });
      assert.deepEqual(run(true), run(false));
    });

  it('refuses unknown devices, other dtypes and asynchronous functions', () => {
    assert.throws(() => amp.autocast({ deviceType: 'tpu' as never }, () => 0), ArgumentError);
    assert.throws(() => amp.autocast({ ...cpu, dtype: float64 }, () => 0), DtypeError);
    assert.throws(() => amp.autocast(cpu, async () => 0), ArgumentError);
  });
});
