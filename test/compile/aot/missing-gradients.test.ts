/**
 * Backward through some of the results of a compiled function: what others would have needed is
 * neither read nor computed, as uncompiled.
 */
import assert from 'node:assert/strict';
import { aotAutograd, compiledAutograd } from '../../../lib/compile/index.js';
import { DTensor, initDeviceMesh, Shard } from '../../../lib/distributed.js';
import {
  autograd,
  compile,
  manualSeed,
  nn,
  noGrad,
  optim,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { onRanks, valuesOf } from '../../distributed/support/on-ranks.js';

const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const;

type Fn = (...args: Tensor[]) => readonly Tensor[];

/** Leaves with a zero, at which log and reciprocal have no finite gradient. */
const leaves = (count: number): Tensor[] =>
  Array.from({ length: count }, (_, i) => tensor([0, 2 + i, 3], { requiresGrad: true }));

/** Gradients after backward from the results at these positions, compiled and uncompiled. */
function assertSameGradients(fn: Fn, sets: readonly (readonly number[])[], count = 1): void {
  for (const backend of BACKENDS) {
    const compiled = compile(fn, { backend, fullgraph: true });
    for (const set of [...sets, ...sets]) {
      const [seen, expected] = [compiled, fn].map((run) => {
        const args = leaves(count);
        const results = run(...args);
        set
          .map((i) => (results[i] as Tensor).sum())
          .reduce((a, b) => a.add(b))
          .backward();
        return args.map((t) => t.grad?.tolist() ?? null);
      });
      assert.deepEqual(seen, expected, `${backend}, results ${set.join()}`);
    }
  }
}

describe('backward through some results of a compiled function', () => {
  it('computes no gradient of a result that nobody uses, where zero meets infinity', () => {
    assertSameGradients((x) => [x.mul(2), x.log()], [[0]]);
    assertSameGradients((x) => [x.mul(2), x.log(), x.reciprocal()], [[0], [0, 1], [0, 1, 2], [2]]);
  });

  it('leaves null what only unused results depend on', () => {
    assertSameGradients((x, y, z) => [x.mul(y), y.log(), z.sqrt()], [[0], [1], [0, 2], [2]], 3);
  });

  it('follows calls that use other results each time', () => {
    const sets = [[0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]];
    assertSameGradients(
      (x, y) => {
        const h = x.add(1).sqrt();
        return [h.mul(y), h.div(x), y.exp().mul(h)];
      },
      sets,
      2,
    );
  });

  it('is right for nested results, in-place changes and views', () => {
    for (const backend of BACKENDS) {
      const fn = (x: Tensor) => {
        const [a, b] = x.chunk(2, 0) as [Tensor, Tensor];
        const h = x.clone();
        h.mul_(x).add_(1);
        return { parts: [a.mul(3), new Map([['log', b.log()]])] as const, h };
      };
      const compiled = compile(fn, { backend, fullgraph: true });
      for (const use of [0, 1, 2]) {
        const [seen, expected] = [compiled, fn].map((run) => {
          const x = tensor([4, 0.5, 0, 3], { requiresGrad: true });
          const { parts, h } = run(x);
          const used = [parts[0], parts[1].get('log') as Tensor, h][use] as Tensor;
          used.sum().backward();
          return x.grad?.tolist();
        });
        assert.deepEqual(seen, expected, `${backend}, result ${use}`);
      }
    }
  });

  it('does not read what an unused result would need', () => {
    for (const backend of BACKENDS) {
      const fn = compile((x: Tensor, y: Tensor) => [x.mul(2), x.mul(y)] as const, { backend });
      const x = tensor([1, 2], { requiresGrad: true });
      const y = tensor([3, 4]);
      const [first] = fn(x, y);
      noGrad(() => y.mul_(2));
      first.sum().backward();
      assert.deepEqual(x.grad?.tolist(), [2, 2], backend);
    }
  });

  it('leaves parameters of unused heads of a compiled model without a gradient', () => {
    class Heads extends nn.Module<[Tensor], { first: Tensor; second: Tensor }> {
      readonly trunk = new nn.Linear(3, 4);
      readonly first = new nn.Linear(4, 2);
      readonly second = new nn.Linear(4, 2);
      forward(x: Tensor): { first: Tensor; second: Tensor } {
        const h = this.trunk(x).relu();
        return { first: this.first(h), second: this.second(h) };
      }
    }
    for (const backend of BACKENDS) {
      const [seen, expected] = [true, false].map((isCompiled) => {
        manualSeed(1);
        const model = new Heads();
        if (isCompiled) model.compile({ backend, fullgraph: true });
        const optimizer = new optim.AdamW(model.parameters(), { lr: 0.1, weightDecay: 0.1 });
        for (let step = 0; step < 3; step++) {
          optimizer.zeroGrad();
          const { first, second } = model(tensor([[1, 2, 3]]));
          (step === 1 ? second : first).square().sum().backward();
          optimizer.step();
        }
        return [...model.parameters()].map((p) => [p.tolist(), p.grad?.tolist() ?? null]);
      });
      if (backend === 'aot_eager_decomp_partition') continue;
      assert.deepEqual(seen, expected, backend);
    }
  });

  it('keeps a graph for each set of results, and what it frees it frees once', () => {
    const sizes: number[] = [];
    const backend = aotAutograd({
      fwCompiler: (module) => module.forward.bind(module),
      bwCompiler: (module) => {
        sizes.push(module.graph.placeholders.length);
        return module.forward.bind(module);
      },
    });
    const fn = compile((x: Tensor) => [x.sin(), x.exp()] as const, { backend });
    for (let i = 0; i < 3; i++)
      for (const at of [0, 1] as const) {
        const x = tensor([1, 2], { requiresGrad: true });
        const result = fn(x)[at];
        result.sum().backward({ retainGraph: true });
        result.sum().backward();
        assert.throws(() => result.sum().backward(), /second time/);
        const expected = (at === 0 ? x.cos() : x.exp()).mul(2);
        assert.deepEqual(x.grad?.tolist(), expected.tolist());
      }
    assert.deepEqual(sizes, [4, 2, 2]);
  });

  it('returns null from grad for inputs of unused results', () => {
    for (const backend of BACKENDS) {
      const fn = compile((x: Tensor, y: Tensor) => [x.mul(2), y.log()] as const, { backend });
      const [x, y] = leaves(2) as [Tensor, Tensor];
      const grads = autograd.grad(fn(x, y)[0].sum(), [x, y], { allowUnused: true });
      assert.deepEqual(
        grads.map((g) => g?.tolist() ?? null),
        [[2, 2, 2], null],
        backend,
      );
    }
  });

  it('leaves null what only unused distributed results depend on', async () => {
    for (const backend of BACKENDS)
      await onRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [2]);
        const fn = compile((a: Tensor, b: Tensor) => [a.mul(2), a.log(), b.sum()] as const, {
          backend,
          fullgraph: true,
        });
        for (const at of [0, 2, 0] as const) {
          const [x, y] = leaves(2).map((t) =>
            DTensor.fromLocal(t.detach(), mesh, [Shard(0)]).requiresGrad_(),
          ) as [DTensor, DTensor];
          fn(x, y)[at].sum().backward();
          const grads = await Promise.all(
            [x, y].map((t) => t.grad && valuesOf((t.grad as DTensor).toLocal())),
          );
          const expected = at === 0 ? [[2, 2, 2], null] : [null, [1, 1, 1]];
          assert.deepEqual(grads, expected, `${backend}, result ${at}`);
        }
      });
  });

  it('is part of captured backward passes', () => {
    for (const backend of BACKENDS) {
      const fn = compile((x: Tensor) => [x.mul(2), x.log(), x.softmax(0)] as const, { backend });
      let graphs = 0;
      const passes = compiledAutograd.enable(
        (module) => {
          graphs++;
          return compile(module, { backend: 'inductor' });
        },
        () =>
          [0, 1, 0].map((at) => {
            const x = tensor([0, 2, 4], { requiresGrad: true });
            (fn(x)[at] as Tensor).sum().backward();
            return x.grad?.tolist();
          }),
      );
      assert.deepEqual(
        passes,
        [
          [2, 2, 2],
          [Number.POSITIVE_INFINITY, 0.5, 0.25],
          [2, 2, 2],
        ],
        backend,
      );
      assert.equal(graphs, 2, backend);
    }
  });
});
