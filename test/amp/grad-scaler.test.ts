/** Loss scaling: what is divided, what is left out, and how the factor moves. */
import assert from 'node:assert/strict';
import {
  AmpError,
  ArgumentError,
  amp,
  bfloat16,
  float16,
  float64,
  noGrad,
  optim,
  type Tensor,
  tensor,
} from '../../lib/index.js';

const values = (t: Tensor | null | undefined): number[] =>
  Array.from((t as Tensor).toTypedArray() as Float32Array);

function setUp(options: amp.GradScalerOptions = {}) {
  const w = tensor([1, 2], { requiresGrad: true });
  const optimizer = new optim.SGD([w], { lr: 0.5 });
  return {
    w,
    optimizer,
    scaler: new amp.GradScaler({ initScale: 8, growthInterval: 2, ...options }),
  };
}

type Make = (params: readonly Tensor[], options: object) => optim.Optimizer;

const optimizers: Record<string, Make> = {
  SGD: (params, options) =>
    new optim.SGD(params, { lr: 0.1, weightDecay: 0.1, ...options }) as optim.Optimizer,
  'SGD with momentum': (params, options) =>
    new optim.SGD(params, {
      lr: 0.1,
      momentum: 0.9,
      nesterov: true,
      ...options,
    }) as optim.Optimizer,
  Adam: (params, options) =>
    new optim.Adam(params, { lr: 0.1, amsgrad: true, ...options }) as optim.Optimizer,
  AdamW: (params, options) => new optim.AdamW(params, { lr: 0.1, ...options }) as optim.Optimizer,
};

/** Momentum has no count in steps without a scaler, unless they are capturable. */
const extraCounts = (name: string, form: object): number =>
  name === 'SGD with momentum' && !('capturable' in form) ? 2 : 0;

describe('GradScaler', () => {
  it('scales the loss, and the optimizer steps as without a scaler', () => {
    const { w, optimizer, scaler } = setUp();
    scaler.scale(w.square().sum()).backward();
    assert.deepEqual(values(w.grad), [16, 32]);
    scaler.step(optimizer);
    scaler.update();
    assert.deepEqual(values(w.grad), [2, 4]);
    assert.deepEqual(values(w), [0, 0]);
  });

  it('skips a step with an infinite or NaN gradient, and lowers the scale', () => {
    for (const bad of [Number.POSITIVE_INFINITY, Number.NaN]) {
      const { w, optimizer, scaler } = setUp();
      scaler.scale(w.mul(tensor([1, bad])).sum()).backward();
      scaler.step(optimizer);
      scaler.update();
      assert.deepEqual(values(w), [1, 2]);
      assert.equal(scaler.getScale(), 4);
    }
  });

  it('raises the scale after growthInterval good steps, and counts again after a bad one', () => {
    const { w, optimizer, scaler } = setUp();
    const iterate = (factor: number): number => {
      optimizer.zeroGrad();
      scaler.scale(w.mul(factor).sum()).backward();
      scaler.step(optimizer);
      scaler.update();
      return scaler.getScale();
    };
    assert.deepEqual([0.1, 0.1, 0.1, Number.NaN, 0.1, 0.1].map(iterate), [8, 16, 16, 8, 8, 16]);
  });

  it('unscales gradients for clipping at most once', () => {
    const { w, optimizer, scaler } = setUp();
    scaler.scale(w.sum()).backward();
    scaler.unscale_(optimizer);
    assert.deepEqual(values(w.grad), [1, 1]);
    assert.throws(
      () => scaler.unscale_(optimizer),
      (error: Error) => error instanceof AmpError && /already/.test(error.message),
    );
    scaler.step(optimizer);
    assert.deepEqual(values(w.grad), [1, 1]);
    assert.throws(() => scaler.step(optimizer), AmpError);
    scaler.update();
  });

  it('refuses gradients of float16, an update before a step, and bad factors', () => {
    const h = tensor([1], { dtype: float16, requiresGrad: true });
    const optimizer = new optim.SGD([h], { lr: 1 });
    const scaler = new amp.GradScaler({ initScale: 2 });
    scaler.scale(h.sum()).backward();
    assert.throws(() => scaler.unscale_(optimizer), ArgumentError);
    assert.throws(() => new amp.GradScaler().update(), AmpError);
    assert.throws(() => new amp.GradScaler({ growthFactor: 1 }), ArgumentError);
    assert.throws(() => new amp.GradScaler({ backoffFactor: 2 }), ArgumentError);
  });

  for (const [name, make] of Object.entries(optimizers))
    for (const form of [{}, { foreach: false }, { capturable: true }])
      it(`skips steps where the parameters are: ${name} with ${JSON.stringify(form)}`, () => {
        const run = (isScaled: boolean): unknown => {
          const params = [[1, 2, 3], [4]].map((data) => tensor(data, { requiresGrad: true }));
          const optimizer = make(params, form);
          const scaler = new amp.GradScaler({ initScale: 8 });
          const step = (factor: number): void => {
            optimizer.zeroGrad();
            const loss = params.map((p) => p.square().sum().mul(factor)).reduce((a, b) => a.add(b));
            (isScaled ? scaler.scale(loss) : loss).backward();
            if (isScaled) {
              scaler.step(optimizer);
              scaler.update();
            } else optimizer.step();
          };
          step(0.5);
          if (isScaled) for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) step(bad);
          for (const factor of [-0.25, 0.75]) step(factor);
          return [...params, ...params.flatMap((p) => Object.values(optimizer.state.get(p) ?? {}))];
        };
        const [scaled, plain] = [run(true), run(false)] as [Tensor[], (Tensor | number)[]];
        assert.equal(scaled.length, plain.length + extraCounts(name, form));
        for (const t of scaled) assert.ok(t.isfinite().all().item());
        for (const [i, t] of plain.slice(0, 2).entries())
          assert.ok(
            (t as Tensor).allclose(scaled[i] as Tensor, { rtol: 1e-6 }),
            `${t} is ${scaled[i]}`,
          );
        const counts = scaled.filter((t) => t.shape.length === 0);
        for (const count of counts) assert.equal(count.item(), 3);
      });

  it('skips a first step, and the momentum begins with the next', () => {
    for (const form of [{}, { foreach: false }]) {
      const w = tensor([1], { requiresGrad: true });
      const optimizer = new optim.SGD([w], { lr: 0.5, momentum: 0.5, dampening: 0.75, ...form });
      const scaler = new amp.GradScaler({ initScale: 8 });
      for (const factor of [Number.NaN, 1, 2]) {
        optimizer.zeroGrad();
        scaler.scale(w.mul(factor).sum()).backward();
        scaler.step(optimizer);
        scaler.update();
      }
      // buffers: 1, then 0.5 * 1 + 0.25 * 2
      assert.equal(w.item(), 1 - 0.5 * 1 - 0.5 * 1);
    }
  });

  it('takes steps without a scaler between those with one', () => {
    const run = (isScaled: (i: number) => boolean): unknown => {
      const w = tensor([1, 2], { requiresGrad: true });
      const optimizer = new optim.Adam([w], { lr: 0.1 });
      const scaler = new amp.GradScaler({ initScale: 8 });
      for (let i = 0; i < 5; i++) {
        optimizer.zeroGrad();
        const loss = w.mul(i - 2).sum();
        (isScaled(i) ? scaler.scale(loss) : loss).backward();
        if (isScaled(i)) {
          scaler.step(optimizer);
          scaler.update();
        } else optimizer.step();
      }
      const state = optimizer.stateDict().state[0];
      return [...values(w), Number(state?.['step'] as Tensor | number)];
    };
    assert.deepEqual(
      run((i) => i % 2 === 1),
      run(() => false),
    );
  });

  it('skips optimizers that do not read foundInf, and those whose step is overridden', async () => {
    const w = tensor([1], { requiresGrad: true });
    let steps = 0;
    class Counting extends optim.SGD {
      override step(...args: []): void {
        steps++;
        super.step(...args);
      }
    }
    const own = { paramGroups: [{ params: [w] }], step: () => void steps++ };
    for (const optimizer of [own, new Counting([w], { lr: 0.5 })]) {
      const scaler = new amp.GradScaler({ initScale: 8 });
      for (const [factor, taken] of [
        [Number.NaN, 0],
        [1, 1],
      ] as const)
        for (const how of ['step', 'stepAsync'] as const) {
          w.grad = tensor([factor]);
          steps = 0;
          await scaler[how](optimizer);
          scaler.update();
          assert.equal(steps, taken, `${how} with ${factor}`);
        }
    }
  });

  it('keeps the dtype of losses, also where the factor does not fit into it', () => {
    const scaler = new amp.GradScaler({ initScale: 2 ** 17 });
    for (const dtype of [float16, bfloat16, float64]) {
      const scaled = scaler.scale([tensor(0.25, { dtype }), tensor([0.25], { dtype })]);
      assert.deepEqual(
        scaled.map((t) => [t.dtype, t.item()]),
        [0, 1].map(() => [dtype, 2 ** 15]),
      );
    }
  });

  it('does not grow beyond what float32 holds', () => {
    const { w, optimizer, scaler } = setUp({ initScale: 2 ** 127, growthInterval: 1 });
    w.grad = tensor([1, 1]);
    scaler.step(optimizer);
    scaler.update();
    assert.equal(scaler.getScale(), 2 ** 127);
  });

  it('saves and loads its state', () => {
    const { scaler } = setUp();
    const other = new amp.GradScaler();
    other.loadStateDict(scaler.stateDict());
    const state = {
      scale: 8,
      growth_factor: 2,
      backoff_factor: 0.5,
      growth_interval: 2,
      _growth_tracker: 0,
    };
    assert.deepEqual(other.stateDict(), state);
    other.loadStateDict({
      scale: 4,
      growthFactor: 3,
      backoffFactor: 0.25,
      growthInterval: 7,
      growthTracker: 5,
    });
    assert.deepEqual(other.stateDict(), {
      scale: 4,
      growth_factor: 3,
      backoff_factor: 0.25,
      growth_interval: 7,
      _growth_tracker: 5,
    });
    assert.throws(
      () => other.loadStateDict({ ...state, _growth_tracker: null as never }),
      /_growth_tracker to be a finite number from 0, got null/,
    );
    assert.deepEqual(new amp.GradScaler({ enabled: false }).stateDict(), {});
    assert.throws(() => other.loadStateDict({}), ArgumentError);
  });

  it('passes values through when it is disabled', () => {
    const { w, optimizer, scaler } = setUp({ enabled: false });
    noGrad(() => assert.deepEqual(values(scaler.scale(w)), [1, 2]));
    scaler.scale(w.sum()).backward();
    scaler.step(optimizer);
    scaler.update();
    assert.deepEqual(values(w), [0.5, 1.5]);
    assert.equal(scaler.getScale(), 1);
  });
});
