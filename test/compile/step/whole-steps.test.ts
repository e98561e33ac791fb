/** Compiled functions that run backward: one graph has all of it, or they run as segments. */
import assert from 'node:assert/strict';
import {
  AutogradError,
  amp,
  autograd,
  CompileError,
  compile,
  compiler,
  manualSeed,
  nn,
  ones,
  optim,
  rand,
  Tensor,
} from '../../../lib/index.js';

type Fn = (...args: Tensor[]) => unknown;

/** A program: what is compiled, and what the test looks at after each call. */
interface Program {
  readonly fn: Fn;
  readonly args?: (call: number) => Tensor[];
  readonly before?: (call: number) => void;
  readonly state: () => unknown;
}

const CALLS = 10;
const EXACT = ['eager', 'aot_eager', 'inductor'] as const;

const network = (): nn.Sequential =>
  new nn.Sequential(new nn.Linear(4, 8), new nn.Tanh(), new nn.Dropout(0.25), new nn.Linear(8, 2));

const listed = (value: unknown): unknown =>
  value instanceof Tensor
    ? [value.tolist(), value.requiresGrad, value.isLeaf, value.gradFn?.name ?? null]
    : Array.isArray(value)
      ? value.map(listed)
      : value;

const gradients = (module: nn.Module): unknown =>
  [...module.parameters()].map((p) => [listed(p), listed(p.grad), p._version]);

function observed(make: () => Program, wrap: (fn: Fn) => Fn): [unknown[], Fn] {
  manualSeed(7);
  const { fn, args = () => [rand([3, 4])], before, state } = make();
  const run = wrap(fn);
  const found = Array.from({ length: CALLS }, (_, call) => {
    before?.(call);
    return structuredClone([listed(run(...args(call))), state()]);
  });
  return [found, run];
}

/** Compares calls with uncompiled ones. Returns the breaks of the function with `'inductor'`. */
function assertSame(make: () => Program, backends: readonly (typeof EXACT)[number][] = EXACT) {
  const [expected] = observed(make, (fn) => fn);
  let reasons: string[] = [];
  for (const backend of backends) {
    const args = make().args ?? (() => [rand([3, 4])]);
    const [found, run] = observed(make, (fn) => compile(fn, { backend }));
    assert.deepEqual(found, expected, backend);
    reasons = compiler
      .explain(run)(...args(0))
      .breaks.map(({ reason }) => reason);
  }
  return reasons;
}

const training = (makeOptimizer: (parameters: Iterable<nn.Parameter>) => optim.Optimizer) => {
  const model = network();
  const optimizer = makeOptimizer(model.parameters());
  const fn = (x: Tensor): Tensor => {
    optimizer.zeroGrad();
    const loss = model(x).square().mean();
    loss.backward();
    nn.utils.clipGradNorm_(model.parameters(), 0.1);
    optimizer.step();
    return loss;
  };
  return { model, optimizer, fn, state: () => gradients(model) };
};

const OPTIMIZERS = {
  SGD: (p) => new optim.SGD(p, { lr: 0.1, capturable: true }),
  'SGD with momentum': (p) => new optim.SGD(p, { lr: 0.1, momentum: 0.9, capturable: true }),
  Adam: (p) => new optim.Adam(p, { lr: 0.01, capturable: true }),
  AdamW: (p) => new optim.AdamW(p, { lr: 0.01, capturable: true }),
} satisfies Record<string, (parameters: Iterable<nn.Parameter>) => optim.Optimizer>;

describe('a compiled train step', () => {
  for (const [name, make] of Object.entries(OPTIMIZERS))
    it(`is one graph with forward, backward and ${name}, equal to the bit over 10 steps`, () => {
      assert.deepEqual(
        assertSame(() => training(make)),
        [],
      );
      const { fn } = training(make);
      const { graphs } = compiler.explain(compile(fn, { fullgraph: true }))(rand([3, 4]));
      assert.equal(graphs.length, 1);
    });

  it('adds to gradients that exist, which remain the same tensors', () => {
    const reasons = assertSame(() => {
      const model = network();
      let [first] = [...model.parameters()].map((p) => p.grad);
      return {
        fn: (x) => void model(x).sum().backward(),
        state: () => {
          const [{ grad }] = [...model.parameters()] as [nn.Parameter];
          const isSame = first === null || grad === first;
          first = grad;
          return [isSame, gradients(model)];
        },
      };
    });
    assert.deepEqual(reasons, []);
  });

  it('finds gradients that the program sets to null or to zero outside', () => {
    for (const setToNone of [true, false])
      assertSame(() => {
        const { model, optimizer, state } = training(OPTIMIZERS.Adam);
        const fn = (x: Tensor): void => {
          model(x).sum().backward();
          optimizer.step();
        };
        return { fn, state, before: () => optimizer.zeroGrad({ setToNone }) };
      });
  });

  it('follows a learning rate that is a number: at some steps as one graph, then as segments', () => {
    const reasons = assertSame(() => {
      const { optimizer, fn, state } = training(OPTIMIZERS['SGD with momentum']);
      const schedule = new optim.lrScheduler.StepLR(optimizer, { stepSize: 1, gamma: 0.9 });
      return { fn, state, before: (call) => call > 0 && schedule.step() };
    });
    assert.match(reasons.join(), /captured as one 4 times/);
  });

  it('has a GradScaler that skips a step, and its update', () => {
    const reasons = assertSame(() => {
      const { model, optimizer, state } = training(OPTIMIZERS.AdamW);
      const scaler = new amp.GradScaler({ device: 'cpu', initScale: 8, growthInterval: 3 });
      const fn = (x: Tensor): void => {
        optimizer.zeroGrad();
        scaler.scale(model(x).sum()).backward();
        scaler.unscale_(optimizer);
        scaler.step(optimizer);
        scaler.update();
      };
      const args = (call: number): Tensor[] => [rand([3, 4]).mul(call === 4 ? Infinity : 1)];
      return { fn, args, state: () => [state(), scaler.getScale()] };
    }, ['aot_eager', 'inductor']);
    assert.deepEqual(reasons, []);
  });

  it('has a gradient penalty, and gradients of arguments', () => {
    const reasons = assertSame(() => {
      const { model, optimizer, state } = training(OPTIMIZERS.SGD);
      const fn = (x: Tensor): unknown => {
        optimizer.zeroGrad();
        const y = model(x).sum();
        const [g] = autograd.grad(y, [x], { createGraph: true }) as [Tensor];
        const loss = g.square().sum().add(y);
        loss.backward();
        optimizer.step();
        return [loss, g.detach(), x.grad];
      };
      return { fn, state, args: () => [rand([3, 4]).requiresGrad_()] };
    });
    assert.deepEqual(reasons, []);
  });

  it('may leave the optimizer out, run backward twice, and return gradients', () => {
    assertSame(() => {
      const model = network();
      const fn = (x: Tensor): unknown => {
        const loss = model(x).square().sum();
        loss.backward(undefined, true);
        loss.backward();
        return autograd.grad(model(x).sum(), [...model.parameters()]);
      };
      return { fn, state: () => gradients(model) };
    });
  });

  it('takes batches of several sizes, and other modes', () => {
    assertSame(() => {
      const { model, fn, state } = training(OPTIMIZERS.AdamW);
      const args = (call: number): Tensor[] => [rand([call % 3 === 2 ? 2 : 3, 4])];
      return { fn, state, args, before: (call) => call === 5 && model.eval() };
    });
  });

  it('returns results whose history has ended, as uncompiled', () => {
    for (const wrap of [(fn: Fn): Fn => fn, (fn: Fn): Fn => compile(fn, { fullgraph: true })]) {
      const loss = wrap(training(OPTIMIZERS.SGD).fn)(rand([3, 4])) as Tensor;
      assert.ok(loss.requiresGrad);
      assert.throws(
        () => loss.backward(),
        (error: Error) => error instanceof AutogradError && /a second time/.test(error.message),
      );
    }
  });
});

const scale = ones([4]).requiresGrad_();
const counts = { hooks: 0 };

/** Functions that are no whole steps, and why. */
const SEGMENTS: Record<string, [why: RegExp, make: () => Program]> = {
  'an optimizer without capturable': [
    /made without capturable: true/,
    () => training((p) => new optim.Adam(p)),
  ],
  'a hook of a leaf, which may count calls': [
    /on a leaf that has a hook/,
    () => {
      const { model, fn, state } = training(OPTIMIZERS.SGD);
      counts.hooks = 0;
      (model as unknown as nn.Linear[])[0]?.weight.registerHook((g) => {
        counts.hooks++;
        return g.mul(2);
      });
      return { fn, state: () => [state(), counts.hooks] };
    },
  ],
  'a hook that it registers on a leaf': [
    /a hook was registered on a leaf/,
    () => {
      const { model, fn, state } = training(OPTIMIZERS.SGD);
      const [weight] = [...model.parameters()] as [nn.Parameter];
      const hooked = (x: Tensor): unknown => {
        const hook = weight.registerHook((g) => g.mul(3));
        const loss = fn(x);
        hook.remove();
        return loss;
      };
      return { fn: hooked, state };
    },
  ],
  'a history from outside': [
    /on a history from outside/,
    () => {
      scale.grad = null;
      const model = network();
      const fn = (x: Tensor): void => model(x).sum().backward();
      const args = (): Tensor[] => [rand([3, 4]).mul(scale)];
      return { fn, args, state: () => [gradients(model), listed(scale.grad)] };
    },
  ],
  'an object that it changes': [
    /\.calls was changed/,
    () => {
      const { fn, state } = training(OPTIMIZERS.SGD);
      const seen = { calls: 0 };
      const counting = (x: Tensor): unknown => {
        seen.calls++;
        return fn(x);
      };
      return { fn: counting, state: () => [state(), seen.calls] };
    },
  ],
  'a version that it reads': [
    /_version of a tensor was read/,
    () => {
      const { fn, state } = training(OPTIMIZERS.SGD);
      return { fn: (x) => [fn(x), x._version], state };
    },
  ],
};

describe('a compiled function that runs backward and is no whole step', () => {
  for (const [name, [why, make]] of Object.entries(SEGMENTS))
    it(`runs as segments, and explain says why: ${name}`, () => {
      assert.match(assertSame(make, ['aot_eager', 'inductor']).join(), why);
      const { fn, args = () => [rand([3, 4])] } = make();
      assert.throws(
        () => compile(fn, { fullgraph: true })(...args(0)),
        (error: Error) => error instanceof CompileError && why.test(error.message),
      );
    });

  it('runs as segments if a result can still run backward', () => {
    const [x, own, other] = [rand([3, 4]), network().eval(), new nn.Linear(4, 1)];
    const fn = compile((t: Tensor) => {
      own(t).sum().backward();
      return other(t).sum();
    });
    for (let call = 1; call <= 2; call++) {
      other.zeroGrad();
      fn(x).backward();
      assert.deepEqual((other.weight.grad as Tensor).tolist(), [x.sum(0).tolist()]);
    }
  });
});
