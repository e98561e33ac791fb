/**
 * State of optimizers and gradient scalers in JavaScript never becomes a part of a graph; that of
 * capturable optimizers, which is tensors, does.
 */
import assert from 'node:assert/strict';
import {
  amp,
  CompileError,
  compile,
  compiler,
  nn,
  ones,
  optim,
  type Tensor,
  tensor,
} from '../../lib/index.js';

type AnyOptimizer = optim.SGD | optim.Adam;

const makers: Readonly<Record<string, (w: Tensor) => AnyOptimizer>> = {
  SGD: (w) => new optim.SGD([w], { lr: 0.1 }),
  'SGD with momentum': (w) => new optim.SGD([w], { lr: 0.1, momentum: 0.9 }),
  Adam: (w) => new optim.Adam([w], { lr: 0.1 }),
};
const capturable: Readonly<Record<string, (w: Tensor) => AnyOptimizer>> = {
  SGD: (w) => new optim.SGD([w], { lr: 0.1, capturable: true }),
  'SGD with momentum': (w) =>
    new optim.SGD([w], { lr: 0.1, momentum: 0.9, dampening: 0.5, capturable: true }),
  'Adam with foreach': (w) => new optim.Adam([w], { lr: 0.1, capturable: true, foreach: true }),
  'AdamW with fused': (w) =>
    new optim.AdamW([w], { lr: tensor(0.1), amsgrad: true, capturable: true, fused: true }),
  'Adam in plain ops': (w) => new optim.Adam([w], { lr: 0.1, capturable: true, foreach: false }),
};

/** Values of a parameter after each of four steps with other gradients. */
function steps(make: (w: Tensor) => AnyOptimizer, step: (o: AnyOptimizer) => void): unknown[] {
  const w = tensor([1], { requiresGrad: true });
  const optimizer = make(w);
  return [1, 2, 3, -4].map((k) => {
    w.grad = tensor([k]);
    step(optimizer);
    return [w.item(), [...optimizer.state.values()].map((s) => String(Object.values(s)))];
  });
}

describe('an optimizer in a compiled function', () => {
  for (const [name, make] of Object.entries(makers)) {
    const expected = (): unknown[] => steps(make, (o) => o.step());

    it(`${name} that is closed over steps as uncompiled`, () => {
      let run: (() => void) | null = null;
      const compiled = steps(make, (o) => {
        run ??= compile(() => o.step());
        run();
      });
      assert.deepEqual(compiled, expected());
    });

    it(`${name} that is an argument steps as uncompiled`, () => {
      const run = compile((o: AnyOptimizer) => o.step());
      assert.deepEqual(
        steps(make, (o) => run(o)),
        expected(),
      );
    });

    it(`${name} is refused with fullgraph before anything changes`, () => {
      const w = tensor([1], { requiresGrad: true });
      w.grad = tensor([2]);
      const optimizer = make(w);
      for (const run of [
        compile(() => optimizer.step(), { fullgraph: true }),
        compile((o: AnyOptimizer) => o.step(), { fullgraph: true }),
      ])
        assert.throws(
          () => run(optimizer),
          (error: Error) =>
            error instanceof CompileError && /made without capturable: true/.test(error.message),
        );
      assert.deepEqual([w.item(), w.grad.item(), optimizer.state.size], [1, 2, 0]);
    });
  }

  for (const [name, make] of Object.entries(capturable))
    for (const backend of ['eager', 'aot_eager'] as const) {
      const options = { backend, fullgraph: true };
      it(`capturable ${name} becomes a graph that counts on, with ${backend}`, () => {
        const expected = steps(make, (o) => o.step());
        let run: (() => void) | null = null;
        const compiled = steps(make, (o) => {
          run ??= compile(() => o.step(), options);
          run();
        });
        assert.deepEqual(compiled, expected);
        const given = compile((o: AnyOptimizer) => o.step(), options);
        assert.deepEqual(
          steps(make, (o) => given(o)),
          expected,
        );
      });
    }

  it('is captured once, and again after a change of its settings, state or gradients', () => {
    const w = tensor([1, 2], { requiresGrad: true });
    const plain = tensor([1, 2], { requiresGrad: true });
    const options = { lr: 0.1, capturable: true };
    const [optimizer, eager] = [new optim.Adam([w], options), new optim.Adam([plain], options)];
    const explained = compiler.explain(compile(() => optimizer.step(), { fullgraph: true }));
    const changes: [because: RegExp | null, (o: optim.Adam) => void][] = [
      [null, () => undefined],
      [/lr was 0.1 and is 0.2/, (o) => Object.assign(o.paramGroups[0] as object, { lr: 0.2 })],
      [/betas\[0\] was/, (o) => Object.assign(o.paramGroups[0] as object, { betas: [0.5, 0.9] })],
      [/step of parameter 0 was the tensor and is another/, (o) => o.loadStateDict(o.stateDict())],
      [/foreach was null/, (o) => Object.assign(o.paramGroups[0] as object, { foreach: false })],
      [/the number of groups was 1/, (o) => o.addParamGroup({ params: [tensor(3)] })],
      [/hook \d+ before it was nothing and is/, (o) => void o.registerStepPreHook(() => undefined)],
    ];
    changes.forEach(([because, change], captures) => {
      for (const o of [eager, optimizer]) change(o);
      for (let i = 0; i < 2; i++) {
        for (const p of [w, plain]) p.grad = tensor([0.5, -i]);
        eager.step();
        const { recaptures } = explained();
        assert.equal(recaptures.length, captures);
        if (because !== null) assert.match(recaptures.at(-1)?.because.at(-1) ?? '', because);
      }
      assert.deepEqual(w.tolist(), plain.tolist(), String(because));
    });
  });

  it('gets gradients that a compiled function clips, computes or sets to zero', () => {
    const train = (wrap: <F extends (...args: never[]) => unknown>(fn: F) => F): unknown => {
      const model = new nn.Linear(2, 1, { bias: false });
      model.weight.data = tensor([[1, 2]]);
      const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
      const loss = wrap((x: Tensor) => model(x).square().sum());
      const clip = wrap(() => nn.utils.clipGradNorm_([...model.parameters()], 0.5));
      const zero = wrap(() => optimizer.zeroGrad({ setToNone: false }));
      return [1, 2, 3].map((k) => {
        loss(ones([1, 2]).mul(k)).backward();
        const norm = clip().item();
        optimizer.step();
        zero();
        return [norm, model.weight.tolist(), model.weight.grad?.tolist()];
      });
    };
    assert.deepEqual(
      train((fn) => compile(fn as never) as never),
      train((fn) => fn),
    );
  });
});

describe('a schedule in a compiled function', () => {
  it('advances at every call, and gives its rates of the moment', () => {
    const train = (wrap: <F extends (...args: never[]) => unknown>(fn: F) => F): unknown => {
      const optimizer = new optim.SGD([tensor([1], { requiresGrad: true })], { lr: 1 });
      const { lrScheduler } = optim;
      const schedule = new lrScheduler.StepLR(optimizer, { stepSize: 1, gamma: 0.5 });
      const plateau = new lrScheduler.ReduceLROnPlateau(optimizer, { patience: 0 });
      const step = wrap(() => schedule.step());
      const metric = wrap(() => plateau.step(1));
      const scaled = wrap((x: Tensor) => x.mul(schedule.getLastLr()[0] as number));
      return [1, 2, 3, 4].map(() => {
        step();
        metric();
        return [optimizer.paramGroups[0]?.lr, scaled(ones([1])).item()];
      });
    };
    assert.deepEqual(
      train((fn) => compile(fn as never) as never),
      train((fn) => fn),
    );
  });
});

describe('the state of an optimizer in a compiled function', () => {
  it('is loaded at every call', () => {
    const w = tensor([1], { requiresGrad: true });
    w.grad = tensor([1]);
    const optimizer = new optim.Adam([w], { lr: 0.1 });
    optimizer.step();
    const saved = optimizer.stateDict();
    const average = saved.state[0]?.['exp_avg']?.toString();
    const other = new optim.Adam([tensor([1], { requiresGrad: true })], { lr: 0.1 });
    const load = compile(() => other.loadStateDict(saved));
    for (let i = 0; i < 2; i++) {
      load();
      assert.equal(other.stateDict().state[0]?.['exp_avg']?.toString(), average);
    }
    const add = compile(() =>
      other.addParamGroup({ params: [tensor([2], { requiresGrad: true })] }),
    );
    add();
    add();
    assert.equal(other.paramGroups.length, 3);
    assert.throws(
      () => compile(() => other.loadStateDict(saved), { fullgraph: true })(),
      CompileError,
    );
  });
});

describe('a GradScaler in a compiled function', () => {
  it('scales by its factor of the moment', () => {
    const scaler = new amp.GradScaler({ device: 'cpu', initScale: 4 });
    const scale = compile((x: Tensor) => scaler.scale(x).add(1));
    const factor = compile((x: Tensor) => x.mul(scaler.getScale()));
    for (const k of [4, 2, 8]) {
      scaler.update(k);
      assert.deepEqual([scale(ones([1])).item(), factor(ones([1])).item()], [k + 1, k]);
    }
    for (const call of [(): unknown => scaler.getScale(), (): unknown => scaler.stateDict()])
      assert.throws(() => compile(call, { fullgraph: true })(), CompileError);
  });

  it('unscales the gradients of the moment', () => {
    const train = (wrap: (fn: () => void) => () => void): unknown => {
      const w = tensor([1], { requiresGrad: true });
      const optimizer = new optim.SGD([w], { lr: 0.1 });
      const scaler = new amp.GradScaler({ device: 'cpu', initScale: 4 });
      const step = wrap(() => {
        scaler.unscale_(optimizer);
        scaler.step(optimizer);
        scaler.update();
      });
      return [1, 2, 3].map((k) => {
        w.grad = tensor([4 * k]);
        step();
        return [w.item(), w.grad.item()];
      });
    };
    assert.deepEqual(
      train((fn) => compile(fn)),
      train((fn) => fn),
    );
  });

  it('that is not enabled is a part of the graph', () => {
    const scaler = new amp.GradScaler({ device: 'cpu', enabled: false });
    const fn = compile((x: Tensor) => scaler.scale(x).add(1), { fullgraph: true });
    assert.equal(fn(ones([1])).item(), 2);
  });
});
