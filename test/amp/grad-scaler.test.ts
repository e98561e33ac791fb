/** Loss scaling: what is divided, what is left out, and how the factor moves. */
import assert from 'node:assert/strict';
import {
  AmpError,
  ArgumentError,
  amp,
  float16,
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
