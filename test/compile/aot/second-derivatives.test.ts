/** Second derivatives of compiled functions: their front graph runs again through autograd. */
import assert from 'node:assert/strict';
import { higherOrder } from '../../../lib/autograd/higher-order.js';
import { DTensor, initDeviceMesh, Shard } from '../../../lib/distributed.js';
import {
  AutogradError,
  autograd,
  compile,
  manualSeed,
  nn,
  noGrad,
  optim,
  rand,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { onRanks, valuesOf } from '../../distributed/support/on-ranks.js';

const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const;

type Fn = (...args: Tensor[]) => Tensor | readonly Tensor[];

const rounded = (t: Tensor | null | undefined): unknown =>
  (t?.flatten().tolist() as number[] | undefined)?.map((v) => Number(v.toPrecision(4))) ?? null;

/** The gradients of a penalty on the gradients of the function. */
function penalty(run: Fn, args: readonly Tensor[]): unknown {
  const results = [run(...args)].flat() as Tensor[];
  const loss = results.map((t) => t.sum()).reduce((a, b) => a.add(b));
  const grads = autograd.grad(loss, args, { createGraph: true, allowUnused: true });
  const norms = grads.flatMap((g) => (g === null ? [] : [g.square().sum()]));
  norms
    .reduce((a, b) => a.add(b))
    .add(loss)
    .backward();
  return [...grads, ...args.map((t) => t.grad)].map(rounded);
}

const programs: Readonly<Record<string, Fn>> = {
  'of one result': (x, y) => x.sin().mul((y as Tensor).exp()),
  'of several results': (x, y) => [x.square().mul(y as Tensor), x.exp(), (y as Tensor).pow(3)],
  'of a sum, whose operands are not saved': (x, y) => x.add(y as Tensor).pow(3),
  'of an argument that is used twice': (x) => x.mul(x).mul(x),
};

describe('a compiled function has second derivatives', () => {
  for (const [name, fn] of Object.entries(programs))
    it(name, () => {
      for (const backend of BACKENDS) {
        const compiled = compile(fn, { backend, fullgraph: true });
        for (let call = 0; call < 2; call++) {
          const make = (): Tensor[] =>
            [1.5, 0.5].map((v) => tensor([v + call, v], { requiresGrad: true }));
          assert.deepEqual(penalty(compiled, make()), penalty(fn, make()), backend);
        }
      }
    });

  it('of arguments that were computed, one from the other, and are one tensor', () => {
    const fn: Fn = (a, b, c) => a.mul(b as Tensor).add((c as Tensor).exp());
    for (const backend of BACKENDS) {
      const compiled = compile(fn, { backend, fullgraph: true });
      const run = (of: Fn): unknown => {
        const x = tensor([0.5, 2], { requiresGrad: true });
        return penalty(
          (leaf) => {
            const first = leaf.sin();
            const second = first.exp();
            return of(first, second, second);
          },
          [x],
        );
      };
      for (let call = 0; call < 2; call++) assert.deepEqual(run(compiled), run(fn), backend);
    }
  });

  it('and third ones', () => {
    for (const backend of BACKENDS) {
      const fn = compile((x: Tensor) => x.pow(4), { backend, fullgraph: true });
      const x = tensor([2], { requiresGrad: true });
      let y = fn(x).sum();
      const values: number[] = [];
      for (let order = 0; order < 3; order++) {
        const [g] = autograd.grad(y, x, { createGraph: true }) as [Tensor];
        values.push(g.item());
        y = g.sum();
      }
      assert.deepEqual(values, [32, 48, 48], backend);
    }
  });

  it('of distributed tensors', async () => {
    for (const backend of BACKENDS)
      await onRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [2]);
        const fn = compile((x: Tensor) => x.pow(3), { backend, fullgraph: true });
        const x = DTensor.fromLocal(tensor([1, 2]), mesh, [Shard(0)]).requiresGrad_();
        const [g] = autograd.grad(fn(x).sum(), x, { createGraph: true }) as [Tensor];
        g.square().sum().backward();
        const grad = (x.grad as DTensor).toLocal();
        assert.deepEqual(await valuesOf(grad), [36, 288], backend);
      });
  });

  it('in a step with a gradient penalty whose modules are compiled below a break', () => {
    for (const backend of BACKENDS) {
      const train = (isCompiled: boolean): unknown => {
        manualSeed(1);
        const critic = new nn.Sequential(
          new nn.Linear(3, 8),
          new nn.Tanh(),
          new nn.ReLU(),
          new nn.Linear(8, 1),
        );
        const optimizer = new optim.SGD(critic.parameters(), { lr: 0.1 });
        const step = (real: Tensor, fake: Tensor): number => {
          optimizer.zeroGrad();
          const between = real.lerp(fake, 0.25).detach().requiresGrad_();
          const score = critic(between);
          const [g] = autograd.grad(score.sum(), between, { createGraph: true }) as [Tensor];
          const norm = g.square().sum(1).sqrt();
          const loss = critic(fake).mean().sub(critic(real).mean());
          const total = loss.add(norm.sub(1).square().mean().mul(10));
          total.backward();
          optimizer.step();
          return total.item();
        };
        const run = isCompiled ? compile(step, { backend }) : step;
        const losses = [1, 2, 3].map(() => run(rand([4, 3]), rand([4, 3])));
        const params = [...critic.parameters()].map(rounded);
        return [losses.map((v) => Number(v.toPrecision(4))), params];
      };
      assert.deepEqual(train(true), train(false), backend);
    }
  });

  it('unless it is not one of what it computed: then it says so', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const drawing = compile((t: Tensor) => nn.functional.dropout(t, { p: 0.5 }), {
      backend: 'inductor',
    });
    const isRefused = (why: RegExp) => (error: unknown) =>
      error instanceof AutogradError && why.test(error.message);
    assert.throws(
      () => autograd.grad(drawing(x).sum(), x, { createGraph: true }),
      isRefused(/no second derivative here: it does more than compute/),
    );
    higherOrder.isUsed = false;
    const sum = compile((t: Tensor) => t.add(1).exp(), { backend: 'aot_eager' });
    const early = sum(x.sin()).sum();
    assert.throws(
      () => autograd.grad(early, x, { createGraph: true }),
      isRefused(/its input 0 was changed since, or not kept/),
    );
    assert.deepEqual(
      penalty((t) => sum(t.sin()), [x]),
      penalty((t) => t.sin().add(1).exp(), [x.detach().requiresGrad_()]),
    );
    const fn = compile((t: Tensor, b: Tensor) => t.exp().add(b), { backend: 'inductor' });
    const b = tensor([1, 2], { requiresGrad: true });
    const loss = fn(x, b).sum();
    noGrad(() => b.add_(1));
    assert.throws(
      () => autograd.grad(loss, x, { createGraph: true }),
      isRefused(/input 1 was changed since/),
    );
  });
});
