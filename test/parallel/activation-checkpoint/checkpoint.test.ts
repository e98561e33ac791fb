/** `checkpoint` computes the gradients of the plain function. Reference: PyTorch. */
import assert from 'node:assert/strict';
import {
  checkpoint,
  distributeTensor,
  initDeviceMesh,
  Replicate,
  Shard,
} from '../../../lib/distributed.js';
import {
  amp,
  autograd,
  bfloat16,
  float32,
  float64,
  getRngState,
  library,
  manualSeed,
  nn,
  noGrad,
  ones,
  randn,
  scope,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

const leaf = (shape: number[]): Tensor => randn(shape, { dtype: float64 }).requiresGrad_();
const gradOf = (t: Tensor): unknown => t.grad?.tolist();

/** A function that counts how often it runs, and to the end. */
function counted<A extends unknown[]>(fn: (...args: A) => Tensor) {
  const counts = { runs: 0, ends: 0 };
  const run = (...args: A): Tensor => {
    counts.runs++;
    const result = fn(...args);
    counts.ends++;
    return result;
  };
  return { run, counts };
}

describe('checkpoint', () => {
  it('gives the results and gradients of the function', () => {
    const fn = (x: Tensor, w: Tensor): Tensor => x.matmul(w).tanh().mul(x).exp().sum();
    const [x, w] = [leaf([3, 3]), leaf([3, 3])];
    const [x2, w2] = [x, w].map((t) => t.detach().clone().requiresGrad_()) as [Tensor, Tensor];
    const expected = fn(x, w);
    expected.backward();
    const result = checkpoint(fn, x2, w2);
    result.backward();
    assert.equal(result.item(), expected.item());
    assert.deepEqual([gradOf(x2), gradOf(w2)], [gradOf(x), gradOf(w)]);
  });

  it('runs the function once more, and stops at the last tensor that backward needs', () => {
    const x = leaf([4]);
    const seen: string[] = [];
    const fn = (t: Tensor): Tensor => {
      seen.push('exp');
      const y = t.exp();
      seen.push('sin');
      const z = y.sin();
      seen.push('sum');
      return z.sum();
    };
    checkpoint(fn, x).backward();
    assert.deepEqual(seen, ['exp', 'sin', 'sum', 'exp', 'sin']);
    seen.length = 0;
    checkpoint(fn, x, { earlyStop: false }).backward();
    assert.deepEqual(seen, ['exp', 'sin', 'sum', 'exp', 'sin', 'sum']);
  });

  it('does not run the last op again, whose result backward does not need', () => {
    const [x, w] = [leaf([4, 8]), leaf([8])];
    const y = checkpoint((t: Tensor) => t.exp().atan2(w), x).sum();
    const names: string[] = [];
    const listed = <T>(fn: () => T): T =>
      library.withDispatchMode((call) => {
        names.push(call.op);
        return call.run();
      }, fn);
    listed(() => y.backward());
    assert.deepEqual([names.includes('exp'), names.includes('atan2')], [true, false]);
  });

  it('draws the random numbers of the forward pass again, and leaves the state as it was', () => {
    manualSeed(3);
    const x = ones([64], { requiresGrad: true });
    const y = checkpoint((t) => t.mul(t).dropout(0.5), x);
    const after = getRngState();
    const kept = y.detach().ne(0);
    randn([3]);
    y.sum().backward();
    assert.deepEqual((x.grad as Tensor).ne(0).tolist(), kept.tolist());
    assert.equal(getRngState().offset, after.offset + 1);
  });

  it('draws new numbers with preserveRngState: false', () => {
    manualSeed(3);
    const x = ones([64], { requiresGrad: true });
    const y = checkpoint((t: Tensor) => t.mul(t).dropout(0.5), x, { preserveRngState: false });
    const { offset } = getRngState();
    y.sum().backward();
    assert.equal(getRngState().offset, offset + 1);
  });

  it(
    'draws the numbers of distributed tensors again',
    withRanks(2, async (rank) => {
      manualSeed(5);
      randn([rank + 1]);
      const mesh = initDeviceMesh('cpu', [2]);
      const whole = ones([8, 2], { requiresGrad: true });
      const x = distributeTensor(whole, mesh, [Shard(0)]);
      const y = checkpoint((t: Tensor) => t.mul(t).dropout(0.5), x);
      const kept = (
        await y.redistribute(mesh, [Replicate()]).toLocal().detach().ne(0).read()
      ).join();
      y.sum().backward();
      const grad = x.grad ?? whole.grad;
      assert.ok(grad);
      const local =
        grad.sharding === null ? grad : grad.redistribute(mesh, [Replicate()]).toLocal();
      assert.equal((await local.ne(0).read()).join(), kept);
    }),
  );

  it('passes options objects with tensors to the function, and takes its own from the end', () => {
    const mask = tensor([1, 0, 1], { dtype: float64 });
    const scale = leaf([3]);
    const x = leaf([3]);
    const fn = (t: Tensor, o: { mask: Tensor; by: Tensor[]; times: number }): Tensor =>
      t
        .mul(t)
        .mul(o.mask)
        .mul(o.by[0] as Tensor)
        .mul(o.times)
        .sum();
    checkpoint(fn, x, { mask, by: [scale], times: 2 }, { determinismCheck: 'none' }).backward();
    const expected = noGrad(() => x.mul(2).mul(mask).mul(scale).mul(2));
    assert.ok((x.grad as Tensor).allclose(expected));
    assert.ok((scale.grad as Tensor).allclose(noGrad(() => x.mul(x).mul(mask).mul(2))));
  });

  it('keeps the arguments that it was given, whatever the program does to the list', () => {
    const x = leaf([3]);
    const list = [x];
    const y = checkpoint((all: Tensor[]) => (all[0] as Tensor).exp().sin().sum(), list);
    list.length = 0;
    y.backward();
    assert.ok((x.grad as Tensor).allclose(noGrad(() => x.exp().cos().mul(x.exp()))));
  });

  it('takes and gives tensors in instances of classes', () => {
    class State {
      readonly value: Tensor;
      constructor(value: Tensor) {
        this.value = value;
      }
    }
    manualSeed(3);
    const layer = new nn.Linear(3, 3);
    const x = ones([2, 3]);
    type Step = (state: State) => State;
    const trained = (run: (fn: Step, state: State) => State): unknown => {
      layer.zeroGrad();
      scope(() => {
        const step: Step = (state) => new State(layer(state.value.tanh()));
        const last = [0, 1, 2].reduce((state) => run(step, state), new State(x.mul(0.5)));
        last.value.square().sum().backward();
      });
      return gradOf(layer.weight);
    };
    assert.deepEqual(
      trained((fn, state) => scope(() => checkpoint(fn, state))),
      trained((fn, state) => fn(state)),
    );
  });

  it('gives gradients to tensors that the function closes over', () => {
    const model = new nn.Linear(3, 3);
    const x = randn([2, 3]);
    checkpoint((t: Tensor) => model(t).tanh().sum(), x).backward();
    const grad = model.weight.grad?.tolist();
    model.zeroGrad();
    model(x).tanh().sum().backward();
    assert.deepEqual(grad, model.weight.grad?.tolist());
  });

  it('nests: each level recomputes what the one inside needs', () => {
    const x = leaf([5]);
    const inner = counted((t: Tensor) => t.sin().mul(t.exp()));
    const outer = counted((t: Tensor) => checkpoint(inner.run, t.cos()).tanh());
    checkpoint(outer.run, x).sum().backward();
    const grad = gradOf(x);
    x.grad = null;
    outer.run(x).sum().backward();
    const [expected] = [gradOf(x)];
    assert.deepEqual(grad, expected);
    assert.ok(outer.counts.runs >= 3);
  });

  it('recomputes in the mixed precision and gradient mode of the forward pass', () => {
    const model = new nn.Linear(4, 4);
    const x = randn([2, 4]);
    const dtypes: string[] = [];
    const fn = (t: Tensor): Tensor => {
      const y = model(t);
      dtypes.push(y.dtype.name);
      return noGrad(() => y.mul(2)).add(y.exp());
    };
    const y = amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, () => checkpoint(fn, x));
    y.sum().backward();
    const z = checkpoint(fn, x);
    amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, () => z.sum().backward());
    assert.deepEqual(dtypes, ['bfloat16', 'bfloat16', 'float32', 'float32']);
  });

  it('is the plain function where nothing is recorded', () => {
    const fn = counted((t: Tensor) => t.exp());
    assert.equal(noGrad(() => checkpoint(fn.run, leaf([2]))).requiresGrad, false);
    assert.equal(fn.counts.runs, 1);
  });

  it('recomputes for each backward pass of a retained graph', () => {
    const x = leaf([3]);
    const fn = counted((t: Tensor) => t.exp().sin().sum());
    const y = checkpoint(fn.run, x);
    y.backward(undefined, { retainGraph: true });
    const once = (x.grad as Tensor).clone();
    y.backward();
    assert.equal(fn.counts.runs, 3);
    assert.ok((x.grad as Tensor).allclose(once.mul(2)));
    assert.throws(() => y.backward(), /a second time/);
  });

  it('has second derivatives', () => {
    const x = leaf([3]);
    const y = checkpoint((t: Tensor) => t.exp().sin().sum(), x);
    const [first] = autograd.grad(y, [x], { createGraph: true }) as [Tensor];
    const [second] = autograd.grad(first.sum(), [x]) as [Tensor];
    const e = noGrad(() => x.exp());
    assert.ok(second.allclose(e.cos().mul(e).sub(e.sin().mul(e).mul(e))));
  });

  it('supports a backward pass inside of the function', () => {
    const x = leaf([3]);
    const fn = (t: Tensor): Tensor => {
      const inner = t.exp();
      const [g] = autograd.grad(inner.sin().sum(), [t], { retainGraph: true }) as [Tensor];
      return inner.cos().mul(g.detach()).sum();
    };
    fn(x).backward();
    const expected = gradOf(x);
    for (const earlyStop of [true, false]) {
      x.grad = null;
      checkpoint(fn, x, { earlyStop }).backward();
      assert.deepEqual(gradOf(x), expected);
    }
  });

  it('refuses a recomputation that saves fewer tensors', () => {
    let runs = 0;
    const y = checkpoint(
      (t: Tensor) => (runs++ === 0 ? t.exp().sin().sum() : t.exp().sum()),
      leaf([3]),
    );
    assert.throws(() => y.backward(), {
      code: 'ERR_AUTOGRAD',
      message: /saved during forward: 2\. .*saved during recomputation: 1/,
    });
  });

  it('refuses a recomputation that saves more tensors, if it runs to the end', () => {
    let runs = 0;
    const fn = (t: Tensor): Tensor => (runs++ === 0 ? t.exp().sum() : t.exp().sin().sum());
    const y = checkpoint(fn, leaf([3]), { earlyStop: false });
    assert.throws(() => y.backward(), /saved during forward: 1\. .*saved during recomputation: 2/);
  });

  it('refuses recomputed tensors of other shapes and dtypes', () => {
    let runs = 0;
    const fn = (t: Tensor): Tensor =>
      (runs++ % 2 === 0 ? t.exp().sin() : t.narrow(0, 0, 2).to(float32).exp().sin()).sum();
    const x = leaf([3]);
    const y = checkpoint(fn, x);
    assert.throws(
      () => y.backward(),
      /position 0: saved float64\[3\] on cpu, recomputed float32\[2\] on cpu\n.*position 1/,
    );
  });

  it('refuses an argument that was changed in place since the forward pass', () => {
    const x = leaf([3]).mul(2);
    const y = checkpoint((t: Tensor) => t.exp().sin().sum(), x);
    noGrad(() => x.mul_(2));
    assert.throws(() => y.backward(), { code: 'ERR_IN_PLACE' });
  });

  it('refuses asynchronous functions and wrong options', () => {
    const bad = (options: object): void => {
      checkpoint((t: Tensor) => t.exp(), leaf([1]), options);
    };
    assert.throws(() => checkpoint((async () => 1) as never), /synchronous/);
    assert.throws(() => checkpoint(3 as never), /checkpoint: expected fn/);
    assert.throws(() => bad({ useReentrant: true }), /useReentrant to be false/);
    assert.throws(() => bad({ determinismCheck: 'all' }), /determinismCheck/);
    assert.throws(() => bad({ contextFn: () => 3 }), /two functions/);
  });

  it('is usable again after an error in forward and in the recomputation', () => {
    const x = leaf([3]);
    let fails = true;
    const fn = (t: Tensor): Tensor => {
      const y = t.exp();
      if (fails) throw new Error('no');
      return y.sin().sum();
    };
    assert.throws(() => checkpoint(fn, x), /no/);
    fails = false;
    const y = checkpoint(fn, x);
    fails = true;
    assert.throws(() => y.backward(), /no/);
    fails = false;
    checkpoint(fn, x).backward();
    assert.ok(x.grad);
  });

  it('leaves a recomputed tensor that a function of the program returns as a gradient', () => {
    class Odd extends autograd.Function {
      static forward(ctx: autograd.FunctionContext, x: Tensor): Tensor {
        const y = x.exp();
        ctx.saveForBackward(y);
        return y;
      }
      static backward(ctx: autograd.FunctionContext): Tensor {
        return ctx.savedTensors[0] as Tensor;
      }
    }
    const x = leaf([3]);
    checkpoint((t: Tensor) => Odd.apply(t.mul(1)).sum(), x).backward();
    assert.ok((x.grad as Tensor).allclose(noGrad(() => x.exp())));
  });
});
