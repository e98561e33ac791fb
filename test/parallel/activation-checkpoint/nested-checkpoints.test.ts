/** Checkpoints in checkpoints, whose functions close over tensors of the outer function. */
import assert from 'node:assert/strict';
import { checkpoint } from '../../../lib/distributed.js';
import {
  arange,
  autograd,
  float64,
  keep,
  manualSeed,
  memory,
  nn,
  ones,
  randn,
  type Tensor,
} from '../../../lib/index.js';

type Fn = (t: Tensor) => Tensor;
type Checkpoint = typeof checkpoint;

const leaf = (shape: number[]): Tensor => randn(shape, { dtype: float64 }).requiresGrad_();

/** `checkpoint` without its recomputation. */
const plain = ((fn: (...args: unknown[]) => unknown, ...args: unknown[]) =>
  fn(...args)) as Checkpoint;

/** Functions with nested checkpoints, by what these close over. */
const functions: Record<string, (inner: Checkpoint) => Fn> = {
  'a tensor and have an argument': (inner) => (t) => {
    const scale = t.sin();
    return inner((u: Tensor) => u.mul(scale).cos(), t.exp());
  },
  'all that they use': (inner) => (t) => {
    const scale = t.sin();
    return inner(() => scale.mul(t).tanh());
  },
  'an argument that they change': (inner) => (t) => inner(() => t.clone().mul_(t).sin()),
  'a tensor that backward needs before them': (inner) => (t) => {
    const scale = t.sin();
    return inner((u: Tensor) => u.mul(scale).cos(), t)
      .mul(scale)
      .exp();
  },
  'the results of each other': (inner) => (t) => {
    const first = inner(() => t.exp().sin());
    const second = inner((u: Tensor) => u.mul(first).sin(), t);
    return inner(() => first.mul(second).tanh());
  },
  'tensors of two checkpoints around them': (inner) => (t) => {
    const outer = t.sin();
    return inner((u: Tensor) => {
      const middle = u.mul(outer).cos();
      return inner(() => middle.mul(outer).exp());
    }, t);
  },
};

describe('checkpoints in checkpoints', () => {
  for (const [what, make] of Object.entries(functions)) {
    it(`give the gradients of the functions where these close over ${what}`, () => {
      const x = leaf([4]);
      const [expected] = autograd.grad(make(plain)(x).sum(), [x]);
      const [grad] = autograd.grad(checkpoint(make(checkpoint), x).sum(), [x]);
      assert.deepEqual(grad?.tolist(), expected?.tolist());
    });

    it(`run again for each pass of a retained graph where they close over ${what}`, () => {
      const x = leaf([4]);
      const [expected] = autograd.grad(make(plain)(x).sum(), [x]);
      const y = checkpoint(make(checkpoint), x).sum();
      for (const retainGraph of [true, true, false]) {
        const [grad] = autograd.grad(y, [x], { retainGraph });
        assert.deepEqual(grad?.tolist(), expected?.tolist());
      }
    });

    it(`have second derivatives where they close over ${what}`, () => {
      const x = leaf([3]);
      assert.ok(autograd.gradgradcheck((t) => checkpoint(make(checkpoint), t as Tensor), [x]));
    });
  }

  it('free what they close over when backward has used it', () => {
    const size = 1 << 14;
    const x = ones([size]).requiresGrad_();
    const blocks: Fn = (t) => {
      let h = t;
      for (let i = 0; i < 3; i++) {
        const scale = h.sin();
        h = checkpoint((u: Tensor) => u.mul(scale).sin(), h);
      }
      return h.exp().exp().exp().exp();
    };
    const y = checkpoint(blocks, x).sum();
    const before = memory.stats('cpu').allocatedBytes;
    memory.resetPeak('cpu');
    const [grad] = autograd.grad(y, [x]);
    const { allocatedBytes, peakAllocatedBytes } = memory.stats('cpu');
    assert.equal(grad?.numel(), size);
    assert.ok(allocatedBytes - before <= grad.nbytes, 'more than the gradient is left');
    const peak = (peakAllocatedBytes - before) / grad.nbytes;
    assert.ok(peak <= 11, `a peak of ${peak} tensors`);
  });

  it('draw the numbers of their forward pass where the outer one draws new ones', () => {
    manualSeed(4);
    const x = ones([64], { requiresGrad: true });
    const outer: Fn = (t) => {
      const scale = t.sin();
      return checkpoint((u: Tensor) => u.mul(scale).dropout(0.5), t);
    };
    const y = checkpoint(outer, x, { preserveRngState: false });
    const kept = y.detach().ne(0).tolist();
    const [grad] = autograd.grad(y.sum(), [x]);
    assert.deepEqual(grad?.ne(0).tolist(), kept);
  });

  it('must be called again by the recomputation', () => {
    let calls = 0;
    const outer: Fn = (t) => {
      const h = t.exp();
      return calls++ === 0 ? checkpoint(() => h.sin()) : h;
    };
    const y = checkpoint(outer, leaf([2])).sum();
    assert.throws(() => y.backward(), {
      code: 'ERR_AUTOGRAD',
      message: /did not call the checkpoint that the forward pass called in it/,
    });
  });

  it('leave no state behind when the outer function throws in its recomputation', () => {
    let fails = false;
    const outer: Fn = (t) => {
      const scale = t.sin();
      const h = checkpoint((u: Tensor) => u.mul(scale).cos(), t);
      if (fails) throw new Error('fails');
      return checkpoint((u: Tensor) => u.mul(scale).cos(), h);
    };
    const x = leaf([4]);
    const y = checkpoint(outer, x).sum();
    fails = true;
    assert.throws(() => autograd.grad(y, [x], { retainGraph: true }), /fails/);
    fails = false;
    const [expected] = autograd.grad(checkpoint(outer, x).sum(), [x]);
    assert.deepEqual(autograd.grad(y, [x])[0]?.tolist(), expected?.tolist());
  });
});

describe('a checkpoint of a module that keeps a table', () => {
  class Scaled extends nn.Module {
    table: Tensor | null = null;
    keeps = false;
    override forward(t: Tensor): Tensor {
      this.table ??= this.keeps ? keep(arange(4)) : arange(4);
      return t.mul(this.table).sin();
    }
  }

  it('reads it again where it went through keep()', () => {
    const x = leaf([4]);
    const module = Object.assign(new Scaled(), { keeps: true });
    const [expected] = autograd.grad(x.mul(arange(4)).sin().sum(), [x]);
    const [grad] = autograd.grad(checkpoint(module, x).sum(), [x]);
    assert.deepEqual(grad?.tolist(), expected?.tolist());
  });

  it('says so where it did not', () => {
    const y = checkpoint(new Scaled(), leaf([4])).sum();
    assert.throws(() => y.backward(), {
      code: 'ERR_FREED',
      message: /recomputation of a checkpoint\. .*, such as a table in an attribute, to keep/,
    });
  });
});
