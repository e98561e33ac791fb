/**
 * Ops over many tensors equal loops over numbers in float64: sgdStep, adamStep, foreachAdd,
 * foreachMul, foreachNorm.
 */
import assert from 'node:assert/strict';
import { autograd, float64, type Tensor, tensor } from '../../lib/index.js';
import {
  type AdamStep,
  adamStep,
  foreachAdd_,
  foreachMul_,
  foreachNorm,
  type SgdStep,
  sgdStep,
} from '../../lib/ops/optimizer-steps.js';

const shapes = [[3, 4], [5], [], [2, 0], [1, 2, 3]];
/** More tensors than one command can take. */
const many = Array.from({ length: 70 }, (_, i) => shapes[i % shapes.length] as number[]);

const valueOf = (seed: number, i: number, k: number): number =>
  Math.sin(seed * 12.9 + i * 3.7 + k * 1.3);

/** One tensor for each shape; every second is transposed, every third has gaps. */
function tensorsOf(seed: number, { positive = false } = {}): Tensor[] {
  return many.map((shape, i) => {
    const count = shape.reduce((a, b) => a * b, 1);
    const data = Array.from({ length: count }, (_, k) =>
      positive ? Math.abs(valueOf(seed, i, k)) : valueOf(seed, i, k),
    );
    const dense = tensor(data, { dtype: float64 }).reshape(shape);
    if ((i + seed) % 2 === 1)
      return dense
        .permute(shape.map((_, d) => shape.length - 1 - d))
        .contiguous()
        .permute(shape.map((_, d) => shape.length - 1 - d));
    if ((i + seed) % 3 === 0)
      return dense
        .unsqueeze(-1)
        .expand([...shape, 2])
        .contiguous()
        .select(-1, 1);
    return dense;
  });
}

const numbersOf = (tensors: readonly Tensor[]): number[] =>
  tensors.flatMap((t) => t.reshape(-1).tolist() as number[]);

function assertNear(actual: readonly Tensor[], expected: readonly number[], what: string): void {
  const given = numbersOf(actual);
  assert.equal(given.length, expected.length);
  given.forEach((a, i) => {
    assert.ok(
      Math.abs(a - (expected[i] as number)) < 1e-12,
      `${what} ${i}: ${a}, expected ${expected[i]}`,
    );
  });
}

describe('sgdStep', () => {
  const base: Omit<SgdStep, 'count'> = {
    lr: 0.1,
    momentum: 0.9,
    dampening: 0.2,
    weightDecay: 0.05,
    nesterov: 0,
    maximize: 0,
    firstStep: 0,
  };
  for (const change of [{}, { firstStep: 1 }, { nesterov: 1 }, { maximize: 1, weightDecay: 0 }]) {
    it(`updates parameters and buffers, with ${JSON.stringify(change)}`, () => {
      const step = { ...base, ...change };
      const [params, grads, buffers] = [tensorsOf(1), tensorsOf(2), tensorsOf(3)];
      const [p, g, b] = [params, grads, buffers].map(numbersOf) as [number[], number[], number[]];
      sgdStep(params, grads, buffers, step);
      const slope = g.map(
        (each, i) => (step.maximize ? -each : each) + step.weightDecay * (p[i] as number),
      );
      const buffer = slope.map((each, i) =>
        step.firstStep ? each : step.momentum * (b[i] as number) + (1 - step.dampening) * each,
      );
      const move = slope.map((each, i) =>
        step.nesterov ? each + step.momentum * (buffer[i] as number) : (buffer[i] as number),
      );
      assertNear(buffers, buffer, 'buffer');
      const moved = p.map((each, i) => each - step.lr * (move[i] as number));
      assertNear(params, moved, 'parameter');
      assertNear(grads, g, 'gradient');
    });
  }

  it('updates parameters by the gradient if there are no buffers', () => {
    const [params, grads] = [tensorsOf(1), tensorsOf(2)];
    const [p, g] = [numbersOf(params), numbersOf(grads)];
    sgdStep(params, grads, null, { ...base, momentum: 0 });
    const moved = p.map((each, i) => each - base.lr * ((g[i] as number) + base.weightDecay * each));
    assertNear(params, moved, 'parameter');
  });
});

describe('adamStep', () => {
  const corrections = { biasCorrection1: 1 - 0.9 ** 3, biasCorrection2: 1 - 0.99 ** 3 };
  const base: Omit<AdamStep, 'count'> = {
    lr: 0.1,
    beta1: 0.9,
    beta2: 0.99,
    eps: 1e-8,
    weightDecay: 0.05,
    decoupled: 0,
    amsgrad: 0,
    maximize: 0,
    gradScale: 1,
    ...corrections,
  };
  for (const change of [
    {},
    { decoupled: 1 },
    { amsgrad: 1 },
    { maximize: 1 },
    { gradScale: 0.5 },
    { decoupled: 1, amsgrad: 1, weightDecay: 0 },
  ]) {
    it(`updates parameters and moments, with ${JSON.stringify(change)}`, () => {
      const step = { ...base, ...change };
      const [params, grads, first, second] = [
        tensorsOf(1),
        tensorsOf(2),
        tensorsOf(3),
        tensorsOf(4, { positive: true }),
      ];
      const largest = step.amsgrad ? tensorsOf(5, { positive: true }) : null;
      const [p, g, m, v] = [params, grads, first, second].map(numbersOf) as [
        number[],
        number[],
        number[],
        number[],
      ];
      const most = largest === null ? null : numbersOf(largest);
      adamStep(params, grads, first, second, largest, step);
      const at = (list: readonly number[], i: number): number => list[i] as number;
      const slope = g.map(
        (each, i) =>
          each * step.gradScale * (step.maximize ? -1 : 1) +
          (step.decoupled ? 0 : step.weightDecay * at(p, i)),
      );
      const mean = slope.map((each, i) => step.beta1 * at(m, i) + (1 - step.beta1) * each);
      const squares = slope.map(
        (each, i) => step.beta2 * at(v, i) + (1 - step.beta2) * each * each,
      );
      const bound = squares.map((each, i) => (most === null ? each : Math.max(each, at(most, i))));
      const moved = p.map((each, i) => {
        const decayed = step.decoupled ? each * (1 - step.lr * step.weightDecay) : each;
        return (
          decayed -
          ((step.lr / step.biasCorrection1) * at(mean, i)) /
            (Math.sqrt(at(bound, i)) / Math.sqrt(step.biasCorrection2) + step.eps)
        );
      });
      assertNear(first, mean, 'first moment');
      assertNear(second, squares, 'second moment');
      if (largest !== null) assertNear(largest, bound, 'largest');
      assertNear(params, moved, 'parameter');
    });
  }
});

describe('the first moment of adamStep in float32', () => {
  const momentsAfter = (beta1: number, before: number, gradient: number): unknown => {
    const [p, g, m, v] = [0, gradient, before, 0].map((x) => tensor([x, x])) as [
      Tensor,
      Tensor,
      Tensor,
      Tensor,
    ];
    const step = {
      lr: 0.1,
      beta1,
      beta2: 0.9,
      eps: 1e-8,
      weightDecay: 0,
      decoupled: 0,
      amsgrad: 0,
      maximize: 0,
      gradScale: 1,
      biasCorrection1: 1,
      biasCorrection2: 1,
    };
    adamStep([p], [g], [m], [v], null, step);
    return m.tolist();
  };

  it('is the gradient itself for beta1 = 0, whatever its earlier size', () => {
    assert.deepEqual(momentsAfter(0, 100, 1e-6), tensor([1e-6, 1e-6]).tolist());
  });

  it('equals lerp, which starts from the nearer end', () => {
    const lerp = (beta1: number, before: number, gradient: number): unknown =>
      tensor([before, before])
        .lerp(tensor([gradient, gradient]), 1 - beta1)
        .tolist();
    for (const beta1 of [0.1, 0.3, 0.5, 0.7, 0.9])
      assert.deepEqual(momentsAfter(beta1, 7000, 1e-3), lerp(beta1, 7000, 1e-3), `${beta1}`);
  });
});

describe('foreach ops', () => {
  it('add in place: foreachAdd', () => {
    const [targets, sources] = [tensorsOf(1), tensorsOf(2)];
    const [x, y] = [numbersOf(targets), numbersOf(sources)];
    foreachAdd_(targets, sources, { alpha: -0.5 });
    const sums = x.map((each, i) => each - 0.5 * (y[i] as number));
    assertNear(targets, sums, 'sum');
  });

  it('multiply in place: foreachMul', () => {
    const targets = tensorsOf(1);
    const products = numbersOf(targets).map((x) => x * 3);
    foreachMul_(targets, 3);
    assertNear(targets, products, 'product');
  });

  it('compute norms with a gradient: foreachNorm', () => {
    const x = tensor([3, 4], { dtype: float64 }).requiresGrad_();
    const y = tensor([[1, 2]], { dtype: float64 }).requiresGrad_();
    assert.ok(autograd.gradcheck((a, b) => foreachNorm([a, b]), [x, y]));
    assert.deepEqual(foreachNorm([x])[0]?.tolist(), [5]);
  });
});
