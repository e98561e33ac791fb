/**
 * Steps whose rate and counts are tensors equal, to the bit, those that get numbers, which
 * optimizer-steps.test.ts compares with loops.
 */
import assert from 'node:assert/strict';
import { bfloat16, type DType, float32, float64, type Tensor, tensor } from '../../lib/index.js';
import {
  adamStepCapturable,
  foreachAddScalar_,
  sgdStepCapturable,
} from '../../lib/ops/capturable-steps.js';
import { adamStep, sgdStep } from '../../lib/ops/optimizer-steps.js';

const shapes = [[3, 4], [5], [], [2, 0], [1, 2, 3], [70, 70]];
/** More tensors than one command can take. */
const many = Array.from({ length: 300 }, (_, i) => shapes[i % 5] as number[]);

function tensorsOf(of: readonly number[][], seed: number, dtype: DType): Tensor[] {
  return of.map((shape, i) => {
    const count = shape.reduce((a, b) => a * b, 1);
    const data = Array.from({ length: count }, (_, k) => Math.abs(Math.sin(seed + i + k * 1.3)));
    const dense = tensor(data, { dtype }).reshape(shape);
    return shape.length === 2 && i % 2 === 1 ? dense.t().contiguous().t() : dense;
  });
}

/** Counts of steps that differ: 1, 2, 3, 1 and so on. */
const countsOf = (list: readonly unknown[]): Tensor[] =>
  list.map((_, i) => tensor((i % 3) + 1, { dtype: float32 }));

const same = (a: readonly Tensor[], b: readonly Tensor[], what: string): void =>
  a.forEach((t, i) => assert.deepEqual(t.tolist(), b[i]?.tolist(), `${what} ${i}`));

const adam = {
  beta1: 0.9,
  beta2: 0.99,
  eps: 1e-8,
  weightDecay: 0.05,
  decoupled: 0,
  amsgrad: 0,
  maximize: 0,
  gradScale: 1,
};

describe('adamStepCapturable', () => {
  for (const dtype of [float32, float64, bfloat16])
    for (const change of [{}, { decoupled: 1, amsgrad: 1 }, { maximize: 1, gradScale: 0.5 }])
      it(`steps as adamStep does, in ${dtype.name}, with ${JSON.stringify(change)}`, () => {
        const step = { ...adam, ...change };
        for (const lr of [0.1, tensor(0.1), tensor([0.1], { dtype: float64 })]) {
          const lists = (): Tensor[][] => [1, 2, 3, 4, 5].map((s) => tensorsOf(shapes, s, dtype));
          const [a, b] = [lists(), lists()] as [Tensor[][], Tensor[][]];
          const steps = countsOf(shapes);
          const [params, grads, first, second, largest] = a as [
            Tensor[],
            Tensor[],
            Tensor[],
            Tensor[],
            Tensor[],
          ];
          const maxima = step.amsgrad ? largest : null;
          const given = { params, grads, first, second, largest: maxima, steps };
          adamStepCapturable(given, { lr, foundInf: null }, step);
          const rate = typeof lr === 'number' ? lr : lr.item<number>();
          shapes.forEach((_, i) => {
            const count = (i % 3) + 1;
            const [p, g, m, v, most] = b.map((list) => [list[i] as Tensor]) as [
              Tensor[],
              Tensor[],
              Tensor[],
              Tensor[],
              Tensor[],
            ];
            adamStep(p, g, m, v, step.amsgrad ? most : null, {
              ...step,
              lr: rate,
              biasCorrection1: 1 - step.beta1 ** count,
              biasCorrection2: 1 - step.beta2 ** count,
            });
          });
          a.forEach((list, i) => {
            same(list, b[i] as Tensor[], `list ${i}, tensor`);
          });
        }
      });
});

describe('sgdStepCapturable', () => {
  for (const change of [
    { momentum: 0 },
    { momentum: 0.9, dampening: 0.2 },
    { momentum: 0.9, nesterov: 1, maximize: 1 },
  ])
    it(`steps as sgdStep does, and starts momentum at step 1, with ${JSON.stringify(change)}`, () => {
      const step = { dampening: 0, weightDecay: 0.05, nesterov: 0, maximize: 0, ...change };
      const lists = (): Tensor[][] => [1, 2, 3].map((seed) => tensorsOf(many, seed, float32));
      const [a, b] = [lists(), lists()] as [Tensor[][], Tensor[][]];
      const [params, grads, buffers] = a as [Tensor[], Tensor[], Tensor[]];
      const momentum = step.momentum === 0 ? null : { buffers, steps: countsOf(many) };
      const lr = tensor(0.1, { dtype: float64 });
      sgdStepCapturable({ params, grads, momentum }, { lr, foundInf: null }, step);
      for (const firstStep of [1, 0]) {
        const part = b.map((list) => list.filter((_, i) => (i % 3 === 0 ? 1 : 0) === firstStep));
        const [p, g, m] = part as [Tensor[], Tensor[], Tensor[]];
        sgdStep(p, g, momentum === null ? null : m, { ...step, lr: 0.1, firstStep });
      }
      same(params, b[0] as Tensor[], 'parameter');
      same(buffers, b[2] as Tensor[], 'buffer');
    });
});

describe('a step with foundInf', () => {
  const sgd = { momentum: 0.9, dampening: 0.1, weightDecay: 0.05, nesterov: 0, maximize: 0 };
  const lists = (dtype: DType): Tensor[][] =>
    [1, 2, 3, 4, 5].map((seed) => tensorsOf(many, seed, dtype));
  const stepped = (name: string, dtype: DType, foundInf: Tensor | null): Tensor[][] => {
    const all = lists(dtype);
    const [params, grads, first, second, largest] = all as [
      Tensor[],
      Tensor[],
      Tensor[],
      Tensor[],
      Tensor[],
    ];
    const steps = countsOf(many);
    const control = { lr: 0.1, foundInf };
    if (name === 'sgd')
      sgdStepCapturable({ params, grads, momentum: { buffers: first, steps } }, control, sgd);
    else {
      const given = { params, grads, first, second, largest, steps };
      adamStepCapturable(given, control, { ...adam, amsgrad: 1 });
    }
    return all;
  };
  for (const name of ['sgd', 'adam'])
    for (const dtype of [float32, float64, bfloat16])
      it(`changes nothing if it is 1, and all if it is 0: ${name} in ${dtype.name}`, () => {
        const skipped = stepped(name, dtype, tensor(1));
        lists(dtype).forEach((list, i) => {
          same(list, skipped[i] as Tensor[], `list ${i}, tensor`);
        });
        const taken = stepped(name, dtype, tensor([0], { dtype: float64 }));
        stepped(name, dtype, null).forEach((list, i) => {
          same(list, taken[i] as Tensor[], `list ${i}, tensor`);
        });
        assert.notDeepEqual(taken[0]?.[0]?.tolist(), skipped[0]?.[0]?.tolist());
      });
});

describe('foreachAddScalar', () => {
  it('adds a number to each tensor, whatever its dtype and strides', () => {
    for (const dtype of [float32, float64, bfloat16]) {
      const [a, b] = [tensorsOf(many, 1, dtype), tensorsOf(many, 1, dtype)];
      foreachAddScalar_(a, -0.25);
      same(
        a,
        b.map((t) => t.sub(0.25)),
        'sum',
      );
    }
  });
});
