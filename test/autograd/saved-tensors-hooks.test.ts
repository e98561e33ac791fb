/**
 * Hooks that replace saved tensors. Tensors from an unpack hook belong to the program and outlive
 * backward, which frees its own tensors. Reference: PyTorch.
 */
import assert from 'node:assert/strict';
import {
  autograd,
  enableGrad,
  float64,
  forkRng,
  getRngState,
  manualSeed,
  nn,
  noGrad,
  randn,
  scope,
  setRngState,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { runProgram } from '../run-program.js';

const leaf = (values = [1, 2]): Tensor => tensor(values, { dtype: float64, requiresGrad: true });

class Enough extends Error {}

/**
 * Recomputes what `fn` saves, when backward first reads it, with the same random numbers, and stops
 * at the last tensor that is needed. Returns the result, and the ops that each recomputation ran.
 */
function recomputed(fn: (x: Tensor) => Tensor, x: Tensor): { result: Tensor; last: () => unknown } {
  const state = getRngState();
  let count = 0;
  let again: Tensor[] | null = null;
  let last: unknown = null;
  const recompute = (): Tensor[] => {
    const found: Tensor[] = [];
    const before = getRngState();
    setRngState(state);
    try {
      enableGrad(() =>
        autograd.savedTensorsHooks(
          (t) => {
            found.push(t.detach());
            if (found.length === count) throw new Enough();
          },
          () => assert.fail('a recomputation is never walked'),
          () => fn(x.detach().requiresGrad_()),
        ),
      );
    } catch (error) {
      last = error;
      if (!(error instanceof Enough)) throw error;
    } finally {
      setRngState(before);
    }
    return found;
  };
  const result = autograd.savedTensorsHooks(
    () => count++,
    (i) => {
      again ??= recompute();
      return again[i] as Tensor;
    },
    () => fn(x),
  );
  return { result, last: () => last };
}

describe('a pack hook', () => {
  it('has its result kept until backward, where the scope of the forward pass has ended', () => {
    const packs: ((t: Tensor) => Tensor)[] = [(t) => t, (t) => t.clone(), (t) => t.to(float64)];
    const w = leaf();
    const forward = (): Tensor => w.exp().sin().sum();
    const [expected] = autograd.grad([forward()], [w]) as [Tensor];
    for (const pack of packs)
      scope(() => {
        const loss = autograd.savedTensorsHooks(
          pack,
          (t) => t,
          () => scope(forward),
        );
        const [given] = autograd.grad([loss], [w]) as [Tensor];
        assert.deepEqual(given.tolist(), expected.tolist());
      });
  });

  it('may not change its argument, which the op has still to read', () => {
    const changing = (t: Tensor): Tensor => noGrad(() => t.add_(1));
    const x = leaf().mul(1);
    assert.throws(
      () =>
        autograd.savedTensorsHooks(
          changing,
          (t) => t,
          () => x.sin(),
        ),
      /savedTensorsHooks: pack changed its argument, float64\[2\], in place/,
    );
  });
});

describe('a tensor from an unpack hook', () => {
  it('lives until the program drops it', () => {
    const w = leaf();
    let again: Tensor[] | undefined;
    let n = 0;
    const y = autograd.savedTensorsHooks(
      () => n++,
      (i) => (again ??= [0, 1, 2, 3].map(() => w.detach().mul(1)))[i] as Tensor,
      () => w.mul(w).mul(w),
    );
    y.sum().backward();
    assert.deepEqual(w.grad?.tolist(), [3, 10]); // w * 2w + w, as w stands in for the saved w * w
    assert.deepEqual(
      again?.map((t) => t.tolist()),
      Array(4).fill([1, 2]),
    );
  });

  it('can be used for a second derivative, and inside a scope', () => {
    const w = leaf();
    const cube = (): Tensor => {
      let again: Tensor | undefined;
      const square = autograd.savedTensorsHooks(
        (t) => t.tolist() as number[],
        (values) => {
          again ??= tensor(values, { dtype: float64 }).mul(1);
          return again;
        },
        () => w.mul(w),
      );
      return square.mul(w).sum();
    };
    const [first] = autograd.grad(cube(), w, { createGraph: true });
    const [second] = autograd.grad((first as Tensor).sum(), w);
    assert.deepEqual(second?.tolist(), [6, 12]);
    scope(() => cube().backward());
    assert.deepEqual(w.grad?.tolist(), [3, 12]);
  });

  it('may come from a recomputation that draws the same random numbers and stops early', () => {
    const x = leaf([1, 2, 3, 4, 5, 6, 7, 8]);
    const fn = (t: Tensor): Tensor => nn.functional.dropout(t.exp(), { p: 0.5 }).sin().sum();
    const state = getRngState();
    const [expected] = autograd.grad(fn(x), x);
    setRngState(state);
    const { result, last } = recomputed(fn, x);
    randn([3]); // moves the random numbers on
    const after = getRngState();
    const [given] = autograd.grad(result, x);
    assert.deepEqual(given?.tolist(), expected?.tolist());
    assert.ok(last() instanceof Enough);
    assert.deepEqual(getRngState(), after);
  });

  it('may come from a nested backward pass', () => {
    const w = leaf();
    const inner = leaf();
    const y = autograd.savedTensorsHooks(
      (t) => t,
      (t) => {
        inner.grad = null;
        enableGrad(() => inner.mul(t.detach()).sum()).backward();
        return inner.grad as unknown as Tensor;
      },
      () => w.mul(w),
    );
    y.sum().backward();
    assert.deepEqual(w.grad?.tolist(), [2, 4]);
  });

  it('has its own history in backward, and that of the saved tensor where a graph is made', () => {
    const w = leaf();
    const given: Tensor[] = [];
    const y = autograd.savedTensorsHooks(
      (t) => t.detach().clone(),
      (t: Tensor) => {
        given.push(t);
        return t;
      },
      () => w.mul(2).exp().sin(),
    );
    const [first] = autograd.grad(y.sum(), w, { createGraph: true });
    const [second] = autograd.grad((first as Tensor).sum(), w);
    assert.ok(second !== null && second !== undefined);
    assert.ok(given.every((t) => !t.requiresGrad));
  });

  it('is let go by `release` once, after the pass that does not retain the graph', () => {
    const w = leaf();
    const released: number[] = [];
    let packed = 0;
    const make = (): Tensor => {
      const kept: Tensor[] = [];
      return autograd.savedTensorsHooks(
        (t) => {
          kept.push(t);
          return packed++;
        },
        (i) => kept[i] as Tensor,
        () => w.exp().sin(),
        { release: (i) => void released.push(i) },
      );
    };
    const y = make();
    y.sum().backward(undefined, { retainGraph: true });
    assert.deepEqual(released, []);
    y.sum().backward();
    assert.deepEqual(released, [1, 0]);
  });

  it('is not read if the hook throws, and backward throws that error', () => {
    const w = leaf();
    const y = autograd.savedTensorsHooks(
      (t) => t,
      () => {
        throw new RangeError('no such tensor');
      },
      () => w.mul(w),
    );
    scope(() => {
      assert.throws(() => y.sum().backward(), RangeError);
      assert.deepEqual(w.mul(2).tolist(), [2, 4]);
    });
    assert.equal(w.grad, null);
  });
});

describe('the memory of a training loop', () => {
  it('is the same after 2, 11 and 20 steps that unpack nothing', async () => {
    const held = await runProgram<number[]>('autograd/programs/plain-steps');
    assert.equal(held.length, 3);
    assert.equal(new Set(held).size, 1, held.join());
  });
});

describe('forkRng', () => {
  it('restores the random state, also after an error', () => {
    manualSeed(4);
    randn([2]);
    const before = getRngState();
    const drawn = forkRng(() => {
      manualSeed(1);
      return randn([2]).tolist();
    });
    assert.throws(
      () =>
        forkRng(() => {
          randn([1]);
          throw new RangeError('no');
        }),
      RangeError,
    );
    assert.deepEqual(getRngState(), before);
    manualSeed(1);
    assert.deepEqual(randn([2]).tolist(), drawn);
    assert.throws(() => forkRng(async () => 1), { code: 'ERR_ARGUMENT' });
  });
});
