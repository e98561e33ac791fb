/** Backward graphs overwrite and free the values that only they need. */
import assert from 'node:assert/strict';
import { buildPlan } from '../../../lib/compile/schedule/plan.js';
import {
  autograd,
  compile,
  memory,
  nn,
  ones,
  randint,
  randn,
  scope,
  type Tensor,
} from '../../../lib/index.js';
import { allocatedBytes, assertSameAsSteps, exactly, lower } from '../schedule/lowered.js';

const BACKENDS = ['aot_eager', 'inductor'] as const;
const [ROWS, WIDTH, CLASSES] = [32, 16, 2048];
const LOGITS = ROWS * CLASSES * 4;

/** A layer and its loss: the logits are larger than all else. */
function lossOf(x: Tensor, weight: Tensor, target: Tensor): Tensor {
  return nn.functional.crossEntropy(x.matmul(weight), target);
}

function operands(): [x: Tensor, weight: Tensor, target: Tensor] {
  return [
    randn([ROWS, WIDTH]).requiresGrad_(),
    randn([WIDTH, CLASSES]).requiresGrad_(),
    randint(0, CLASSES, [ROWS]),
  ];
}

type Loss = typeof lossOf;

/** The gradients of fresh leaves with these values. */
function gradients(run: (x: Tensor, weight: Tensor, target: Tensor) => void): unknown[] {
  const [x, weight] = given.slice(0, 2).map((t) => t.detach().clone().requiresGrad_()) as [
    Tensor,
    Tensor,
  ];
  run(x, weight, given[2]);
  return [x, weight].map((t) => (t.grad === null ? null : exactly(t.grad)));
}

const given = operands();

/** Runs of a loss, and what each must leave alone. */
const passes: Record<string, (loss: Loss) => Parameters<typeof gradients>[0]> = {
  'one backward pass': (loss) => (x, w, t) => loss(x, w, t).backward(),
  'a scaled loss': (loss) => (x, w, t) => loss(x, w, t).mul(3).backward(),
  'passes that retain the graph, and one that does not': (loss) => (x, w, t) => {
    const y = loss(x, w, t).mul(0.5);
    y.backward({ retainGraph: true });
    y.backward({ retainGraph: true });
    y.backward();
  },
  'autograd.grad before backward': (loss) => (x, w, t) => {
    const y = loss(x, w, t).mul(0.5);
    const [g] = autograd.grad(y, [x], { retainGraph: true }) as [Tensor];
    y.add(g.sum()).backward();
  },
  'saved tensors that hooks pack': (loss) => (x, w, t) => {
    const y = autograd.savedTensorsHooks(
      (saved) => saved.clone(),
      (packed) => packed,
      () => loss(x, w, t),
    );
    y.mul(2).backward();
  },
  'a scope': (loss) => (x, w, t) => scope(() => loss(x, w, t).mul(2).backward()),
};

describe('a compiled function whose backward overwrites what forward saved', () => {
  for (const backend of BACKENDS) {
    for (const [what, run] of Object.entries(passes))
      it(`has the gradients of the function itself: ${what} (${backend})`, () => {
        const compiled = compile(lossOf, { backend, fullgraph: true });
        const expected = gradients(run(lossOf));
        for (let call = 0; call < 2; call++)
          assert.deepEqual(gradients(run(compiled)), expected, `call ${call}`);
      });

    it(`needs no second gradient of the logits (${backend})`, () => {
      const peak = (loss: Loss): number => {
        let bytes = 0;
        gradients((x, w, t) => {
          const y = scope(() => loss(x, w, t).mul(2));
          const before = allocatedBytes();
          memory.resetPeak();
          y.backward();
          bytes = memory.stats().peakAllocatedBytes - before;
        });
        return bytes;
      };
      const compiled = compile(lossOf, { backend, fullgraph: true });
      peak(compiled);
      const bytes = peak(compiled);
      assert.ok(bytes < LOGITS / 2 + 4096, `${bytes} bytes`);
    });

    it(`has each gradient from its op on, and each saved value up to its last (${backend})`, () => {
      const [layers, size] = [8, 128];
      const weights = Array.from({ length: layers }, () => randn([size, size]).requiresGrad_());
      const fn = (x: Tensor): Tensor => weights.reduce((y, w) => y.matmul(w).tanh(), x).sum();
      const peak = (f: typeof fn): number => {
        const y = scope(() => f(ones([size, size])));
        const before = allocatedBytes();
        memory.resetPeak();
        y.backward();
        const bytes = memory.stats().peakAllocatedBytes - before;
        for (const w of weights) w.grad = null;
        return bytes / (size * size * 4);
      };
      const compiled = compile(fn, { backend, fullgraph: true });
      peak(compiled);
      const matrices = peak(compiled);
      assert.ok(matrices < 3, `${matrices} matrices`);
    });

    it(`gives the saved gradient away as the gradient of its input (${backend})`, () => {
      const target = given[2];
      const loss = compile((x: Tensor) => nn.functional.crossEntropy(x, target), { backend });
      const run = (fn: (x: Tensor) => Tensor): unknown => {
        const x = ones([ROWS, CLASSES]).requiresGrad_();
        fn(x).mul(2).backward();
        return exactly((x.grad as Tensor).mul(1));
      };
      const expected = run((x) => nn.functional.crossEntropy(x, target));
      for (let call = 0; call < 2; call++) assert.deepEqual(run(loss), expected);
    });

    it(`leaves results that it saved as they are (${backend})`, () => {
      const fn = (x: Tensor): Tensor[] => {
        const y = x.exp();
        const z = x.tanh().view([-1]);
        return [y, z, y.mul(z).sum()];
      };
      const run = (f: typeof fn): unknown => {
        const x = ones([8]).requiresGrad_();
        const results = f(x);
        results[2]?.backward();
        return [...results, x.grad as Tensor].map((t) => t.tolist());
      };
      assert.deepEqual(run(compile(fn, { backend, fullgraph: true })), run(fn));
    });

    it(`refuses a second pass, but after one with a history (${backend})`, () => {
      const compiled = compile(lossOf, { backend, fullgraph: true });
      const y = compiled(...operands());
      y.backward({ createGraph: true });
      y.backward();
      assert.throws(() => y.backward(), /retainGraph/);
    });
  }
});

describe('a plan with donated inputs', () => {
  it('frees them after their last use, but for results', () => {
    const inputs = [ones([1000]), ones([1000]), ones([1000])];
    const graph = lower((a, b, c) => [(a as Tensor).add(b as Tensor), c as Tensor], inputs);
    const plan = buildPlan(graph, [0, 2]);
    const [a, b, c] = inputs.map((t) => t.clone()) as [Tensor, Tensor, Tensor];
    plan.run([a, b, c]);
    assert.deepEqual(
      [a, b, c].map((t) => (t.storage as { handle: number }).handle > 0),
      [false, true, true],
    );
  });

  it('writes updates of operands that nothing else reads into them', () => {
    const index = randint(0, 4, [3]);
    const update = (x: Tensor): Tensor[] => [
      x
        .add(1)
        .indexAdd(0, index, ones([3, 64]))
        .mul(2),
    ];
    const twice = (x: Tensor): Tensor[] => {
      const y = x.add(1);
      return [y.indexAdd(0, index, ones([3, 64])).mul(y)];
    };
    const arena = (fn: (x: Tensor) => Tensor[]): number =>
      buildPlan(lower(fn as never, [ones([4, 64])])).summary.arenaBytes;
    assert.equal(arena(twice) - arena(update), 4 * 64 * 4);
    const itself = randint(0, 4, [4, 64]);
    const own = (x: Tensor): Tensor[] => {
      const y = x.add(1);
      return [y.scatterAdd(0, itself, y).mul(2)];
    };
    assertSameAsSteps(own as never, [randn([4, 64])]);
  });
});
