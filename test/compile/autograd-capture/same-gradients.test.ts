/** Captured backward passes give the gradients of the engine, at captures and at replays. */
import assert from 'node:assert/strict';
import { compile, compiledAutograd } from '../../../lib/compile/index.js';
import { InPlaceError, type Tensor, tensor } from '../../../lib/index.js';

const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const;

const leaf = (...values: number[]): Tensor => tensor(values).requiresGrad_();

/** Runs forward and backward, and returns the tensors whose gradients count. `k`: the round. */
type Program = (k: number) => Tensor[];

/** Makes a program, which may keep state between rounds. */
const programs: Record<string, () => Program> = {
  'a retained gradient, to which a second pass adds': () => (k) => {
    const x = leaf(1, 2).mul(k);
    x.retainGrad();
    const loss = x.square().sum();
    loss.backward({ retainGraph: true });
    loss.backward();
    return [x];
  },
  'a hook that replaces .grad while its gradient is passed on': () => {
    const w = leaf(1, 2);
    w.registerPostAccumulateGradHook((t) => {
      t.grad = (t.grad as Tensor).sin();
    });
    return (k) => {
      const x = leaf(k, 3);
      w.add(x.sin().div(3)).square().sum().backward();
      return [w, x];
    };
  },
  'a hook that changes .grad in place while its gradient is passed on': () => {
    const w = leaf(1, 2);
    w.registerPostAccumulateGradHook((t) => {
      t.grad?.mul_(0.5);
    });
    return (k) => {
      if (k === 2) w.grad = null;
      const x = leaf(k, 3);
      w.add(x.sin().div(3)).square().sum().backward();
      return [w, x];
    };
  },
  'a saved result that was changed in place, and that no rule reads': () => (k) => {
    const x = leaf(k, 3);
    x.sin().pow(2).mul_(k).sum().backward();
    return [x];
  },
};

function gradients(make: () => Program, around: (fn: () => void) => void): unknown[] {
  const program = make();
  const seen: unknown[] = [];
  around(() => {
    for (const k of [1, 2, 3]) seen.push(program(k).map((t) => t.grad?.tolist()));
  });
  return seen;
}

describe('a captured backward pass', () => {
  for (const backend of BACKENDS)
    for (const [what, make] of Object.entries(programs))
      it(`gives the gradients of the engine with ${backend}: ${what}`, () => {
        const got = gradients(make, (fn) =>
          compiledAutograd.enable((module) => compile(module, { backend }), fn),
        );
        assert.deepEqual(
          got,
          gradients(make, (fn) => fn()),
        );
      });

  it('throws as the engine does where a rule reads what was changed in place', () => {
    const run = (): void => {
      const x = leaf(1, 2);
      const y = x.exp();
      y.mul_(2);
      y.sum().backward();
    };
    assert.throws(run, InPlaceError);
    for (let i = 0; i < 2; i++)
      assert.throws(() => compiledAutograd.enable((module) => compile(module), run), InPlaceError);
  });
});
