/**
 * Gradient rules that add what arrived from other ops to their own gradient, and those that give
 * the gradient in the dtype from which mixed precision converted the tensor.
 */
import assert from 'node:assert/strict';
import {
  checkpoint,
  createSelectiveCheckpointContexts,
  distributeModule,
  distributeTensor,
  initDeviceMesh,
  launch,
  Replicate,
} from '../../lib/distributed.js';
import {
  amp,
  autograd,
  bfloat16,
  type DType,
  float32,
  float64,
  manualSeed,
  memory,
  nn,
  profiler,
  randn,
  type Tensor,
  zeros,
} from '../../lib/index.js';

const inRegion = <T>(fn: () => T): T => amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, fn);

/** The number of calls of each op in a backward pass. */
function opsOfBackward(loss: Tensor): Map<string, number> {
  const prof = profiler.profile({ activities: ['cpu'] }, () => loss.backward());
  return new Map([...prof.keyAverages()].map(({ key, count }) => [key, count]));
}

const gradient = (t: Tensor): Tensor => t.grad as Tensor;

/** Two projections of a normalised input beside a residual connection, as a block has them. */
class Block extends nn.Module {
  readonly norm: nn.Module<[Tensor], Tensor>;
  readonly q = new nn.Linear(16, 16, { bias: false });
  readonly k = new nn.Linear(16, 16, { bias: false });

  constructor(norm: nn.Module<[Tensor], Tensor>) {
    super();
    this.norm = norm;
  }

  override forward(x: Tensor): Tensor {
    const normal = this.norm(x);
    return x.add(this.q(normal).mul(this.k(normal)));
  }
}

const blocks = {
  'layer norm': () => new Block(new nn.LayerNorm(16)),
  'RMS norm': () => new Block(new nn.RMSNorm(16)),
};

describe('a gradient rule that adds what arrived', () => {
  for (const [name, make] of Object.entries(blocks)) {
    it(`gives the gradients of a residual connection with ${name}`, () => {
      manualSeed(1);
      const block = make().to({ dtype: float64 });
      const x = randn([2, 5, 16], { dtype: float64 }).requiresGrad_();
      assert.ok(autograd.gradcheck((input: Tensor) => block(input), [x]));
      const weights = randn([2, 5, 16], { dtype: float64 });
      // A graph of gradients has the separate ops.
      const leaves = [x, ...block.parameters()];
      const apart = autograd.grad(block(x).mul(weights).sum(), leaves, { createGraph: true });
      block(x).mul(weights).sum().backward();
      leaves.forEach((leaf, i) => {
        assert.ok(
          gradient(leaf).allclose(apart[i] as Tensor, { rtol: 1e-12, atol: 1e-12 }),
          `${i}`,
        );
      });
    });

    it(`calls no sum of gradients with ${name}`, () => {
      const block = make();
      const x = randn([2, 5, 16]).requiresGrad_();
      const counts = opsOfBackward(block(x.mul(1)).square().sum());
      assert.equal(counts.get('add'), undefined, [...counts].join(' '));
    });
  }

  it('adds a gradient that arrived transposed', () => {
    const [norm, x] = [
      new nn.LayerNorm(4).to({ dtype: float64 }),
      randn([4, 4], { dtype: float64 }),
    ];
    assert.ok(
      autograd.gradcheck(
        (a: Tensor) => {
          const h = a.mul(2);
          return norm(h).mul(h.t().mul(3));
        },
        [x.requiresGrad_()],
      ),
    );
  });

  it('sums both gradients of a matrix times itself', () => {
    const x = randn([4, 4], { dtype: float64 }).requiresGrad_();
    assert.ok(autograd.gradcheck((a: Tensor) => a.mul(1).matmul(a.mul(2)), [x]));
    assert.ok(autograd.gradcheck((a: Tensor) => a.matmul(a).add(a), [x]));
    const [g] = autograd.grad(x.matmul(x).sum(), [x]);
    const ones = x.detach().newOnes([4, 4]);
    const expected = ones.matmul(x.detach().t()).add(x.detach().t().matmul(ones));
    assert.ok(g?.allclose(expected));
  });

  it('leaves a gradient of another shape, as of a tensor whose data was replaced', () => {
    const w = randn([4, 4], { dtype: float64 });
    const x = randn([1, 4], { dtype: float64 }).requiresGrad_();
    const gradientOf = (createGraph: boolean): Tensor => {
      const h = x.mul(1);
      const early = h.matmul(w); // its rule runs last
      h.data = randn([3, 4], { dtype: float64 });
      const loss = early.sum().add(h.mul(2).sum());
      return autograd.grad(loss, [x], { createGraph })[0] as Tensor;
    };
    assert.ok(gradientOf(false).allclose(gradientOf(true)));
  });

  for (const [name, make] of Object.entries(blocks))
    it(`leaves a distributed gradient, whose shards may lie in any layout, with ${name}`, () =>
      launch(1, () => {
        const mesh = initDeviceMesh('cpu', [1]);
        const { norm } = distributeModule(make(), mesh);
        const x = distributeTensor(randn([4, 16]), mesh, [Replicate()]).requiresGrad_();
        const h = x.mul(1);
        const counts = opsOfBackward(norm(h).add(h.mul(2)).sum());
        assert.equal(counts.get('add'), 1, [...counts].join(' '));
      }));

  it('frees what it took, so that memory does not grow with the layers', () => {
    const peak = (layers: number): number => {
      const norms = Array.from({ length: layers }, () => new nn.LayerNorm(256));
      const h = randn([64, 256]).requiresGrad_().mul(1);
      const loss = norms.reduce((t, norm) => t.add(norm(t)), h).sum();
      memory.collect();
      memory.resetPeak();
      const before = memory.stats().allocatedBytes;
      loss.backward();
      return memory.stats().peakAllocatedBytes - before;
    };
    assert.ok(peak(8) <= peak(2) + 8 * 2 * 256 * 4, 'gradients of weights and biases stay');
  });

  it('leaves out what hooks of the node would see', () => {
    const x = randn([3, 4], { dtype: float64 }).requiresGrad_();
    const w = randn([4, 4], { dtype: float64 });
    const a = x.mul(1);
    const [first, second] = [a.matmul(w), a.matmul(w)];
    const seen: Tensor[] = [];
    for (const y of [first, second])
      y.gradFn?.registerHook((inputs: readonly (Tensor | null)[]) => {
        seen.push((inputs[0] as Tensor).clone());
      });
    first.add(second).sum().backward();
    const own = x.detach().newOnes([3, 4]).matmul(w.t());
    for (const each of seen) assert.ok(each.allclose(own));
    assert.equal(seen.length, 2);
    assert.ok(gradient(x).allclose(own.mul(2)));
  });

  it('keeps the sum of a tensor that retains its gradient', () => {
    const x = randn([3, 4], { dtype: float64 }).requiresGrad_();
    const w = randn([4, 4], { dtype: float64 });
    const a = x.mul(1);
    a.retainGrad();
    a.matmul(w).add(a.matmul(w)).sum().backward({ retainGraph: true });
    const own = x.detach().newOnes([3, 4]).matmul(w.t());
    assert.ok(gradient(a).allclose(own.mul(2)));
    assert.ok(gradient(x).allclose(own.mul(2)));
  });
});

describe('the gradient of a tensor that mixed precision converted', () => {
  const linear = (): nn.Linear => new nn.Linear(16, 8, { bias: false });

  it('is computed in the dtype of the tensor, without a conversion', () => {
    const layer = linear();
    const x = randn([2, 3, 16]).requiresGrad_();
    const loss = inRegion(() => layer(x)).sum();
    const counts = opsOfBackward(loss);
    assert.equal(counts.get('wideProduct'), 2, [...counts].join(' '));
    assert.equal(counts.get('copy') ?? 0, 0, [...counts].join(' '));
    assert.equal(gradient(layer.weight).dtype, float32);
    assert.equal(gradient(x).dtype, float32);
    assert.ok(gradient(layer.weight).isContiguous());
  });

  it('is that of the rounded operands, not rounded itself', () => {
    manualSeed(2);
    const layer = linear();
    const x = randn([2, 3, 16]).requiresGrad_();
    const g = randn([2, 3, 8]).to(bfloat16);
    inRegion(() => layer(x)).backward(g);
    const exact = (t: Tensor): Tensor =>
      t
        .detach()
        .to(bfloat16)
        .to(float64)
        .reshape([-1, t.shape.at(-1) as number]);
    const near = (seen: Tensor, expected: Tensor): void => {
      const both = [seen.to(float64), expected.reshape(seen.shape)] as const;
      assert.ok(both[0].allclose(both[1], { rtol: 1e-6, atol: 1e-6 }), both.join(' and '));
      const rounded = both[1].to(bfloat16).to(float64);
      assert.ok(!both[0].allclose(rounded, { rtol: 1e-4, atol: 1e-4 }), 'a difference is seen');
    };
    near(gradient(layer.weight), exact(g).t().matmul(exact(x)));
    near(gradient(x), exact(g).matmul(exact(layer.weight)));
  });

  it('is added to one in the dtype of the conversion by an op of its own', () => {
    const x = randn([3, 4]).requiresGrad_();
    const w = randn([4, 4]).to(bfloat16);
    const low = x.to(bfloat16);
    const product = low.matmul(w); // its rule runs last
    product.add(low.mul(1)).sum().backward();
    const expected = w.to(float32).sum(1).add(1).expand([3, 4]);
    assert.ok(gradient(x).allclose(expected, { rtol: 1e-5, atol: 1e-5 }));
  });

  it('is joined of those of its parts in 16 bits', () => {
    const x = randn([2, 8]).requiresGrad_();
    const w = randn([4, 4]).to(bfloat16);
    const [q, k] = x.to(bfloat16).chunk(2, 1) as [Tensor, Tensor];
    const counts = opsOfBackward(q.matmul(w).add(k.matmul(w)).sum());
    assert.equal(counts.get('add'), undefined, [...counts].join(' '));
    assert.equal(counts.get('SliceBackward'), undefined, [...counts].join(' '));
  });

  it('has the dtype that a hook of the converted tensor expects', () => {
    const x = randn([3, 4]).requiresGrad_();
    const w = randn([4, 4]).to(bfloat16);
    const low = x.to(bfloat16);
    const seen: DType[] = [];
    low.registerHook((g: Tensor) => {
      seen.push(g.dtype);
    });
    low.matmul(w).sum().backward();
    assert.deepEqual(seen, [bfloat16]);
    const captured = x.to(bfloat16);
    const [g] = autograd.grad(captured.matmul(w).sum(), [captured]);
    assert.equal(g?.dtype, bfloat16);
  });

  it('has the dtype that hooks expect which are registered while backward runs', () => {
    const w = randn([4, 4]).to(bfloat16);
    const kinds: Record<string, (t: Tensor, seen: (g: Tensor) => void) => void> = {
      'a hook of the tensor': (t, seen) => void t.registerHook(seen),
      'a hook before the node': (t, seen) =>
        void t.gradFn?.registerPrehook(([g]) => seen(g as Tensor)),
      'a hook after the node': (t, seen) =>
        void t.gradFn?.registerHook((_, [g]) => seen(g as Tensor)),
      'a gradient that is retained': (t) => t.retainGrad(),
    };
    for (const [what, register] of Object.entries(kinds))
      for (const view of [false, true]) {
        const x = randn([3, 4]).requiresGrad_();
        const low = view ? x.to(bfloat16).view([3, 4]) : x.to(bfloat16);
        const seen: DType[] = [];
        // The product's rule runs first, because the product was recorded last.
        const early = low.mul(1);
        early.registerHook(() => {
          register(low, (g) => void seen.push(g.dtype));
        });
        const late = low.matmul(w);
        early.add(late).sum().backward();
        if (low.grad !== null) seen.push(low.grad.dtype);
        assert.deepEqual(seen, [bfloat16], `${what}, view: ${view}`);
        assert.equal(gradient(x).dtype, float32);
      }
  });

  it('sums several layers of one input, which is converted once', () => {
    const layers = [linear(), linear(), linear()];
    const x = randn([5, 16]).requiresGrad_();
    const forward = (): Tensor =>
      inRegion(() =>
        layers
          .map((layer) => layer(x))
          .reduce((a, b) => a.add(b))
          .sum(),
      );
    const prof = profiler.profile({ activities: ['cpu'] }, forward);
    assert.equal(prof.keyAverages().get('copy')?.count, 4, 'three weights and the input');
    const counts = opsOfBackward(forward());
    assert.equal(counts.get('add'), undefined, [...counts].join(' '));
    const expected = layers
      .map(({ weight }) => weight.detach().sum(0))
      .reduce((a, b) => a.add(b))
      .expand([5, 16]);
    assert.ok(gradient(x).allclose(expected, { rtol: 2e-2, atol: 2e-2 }));
  });

  it('converts an activation once, and again after its memory was replaced', () => {
    const layer = linear();
    const h = randn([5, 16]).requiresGrad_().mul(1);
    inRegion(() => {
      assert.notEqual(layer(h).abs().sum().item(), 0);
      h.data = zeros([5, 16]);
      assert.equal(layer(h).abs().sum().item(), 0);
    });
    const frozen = [linear(), linear()];
    for (const { weight } of frozen) weight.requiresGrad_(false);
    const forward = (): Tensor[] => {
      const input = randn([5, 16]).requiresGrad_().mul(1);
      return inRegion(() => frozen.map((each) => each(input)));
    };
    const prof = profiler.profile({ activities: ['cpu'] }, forward);
    assert.equal(prof.keyAverages().get('copy')?.count, 3, 'two weights and the input');
  });

  it('has the gradients of a checkpoint that keeps conversions', () => {
    const [before, inside] = [new nn.Linear(16, 16), new nn.Linear(16, 16)];
    const x = randn([4, 16]).requiresGrad_();
    const other = randn([4, 16]);
    const body = (t: Tensor): Tensor => inside(t).add(other.to(bfloat16));
    const gradients = (keep: readonly string[] | null): Tensor[] => {
      const contexts = { contextFn: () => createSelectiveCheckpointContexts(keep ?? []) };
      const loss = inRegion(() => {
        const h = x.mul(1);
        const y = before(h);
        return y
          .add(keep === null ? body(h) : checkpoint(body, h, contexts))
          .float()
          .square()
          .sum();
      });
      return autograd.grad(loss, [x, before.weight, inside.weight]) as Tensor[];
    };
    const expected = gradients(null);
    for (const keep of [['copy'], ['matmul'], ['copy', 'matmul']])
      gradients(keep).forEach((g, i) => {
        assert.ok(g.allclose(expected[i] as Tensor, { rtol: 1e-5, atol: 1e-5 }), `${keep} ${i}`);
      });
  });

  it('converts an input again after it changed', () => {
    const layer = linear();
    const x = randn([5, 16]);
    inRegion(() => {
      const before = layer(x);
      x.zero_();
      assert.equal(layer(x).abs().sum().item(), 0);
      assert.notEqual(before.abs().sum().item(), 0);
    });
  });
});
