/** Random differentiable programs on three 3 x 3 matrices, with views and in-place changes. */
import fc from 'fast-check';
import { nn, type Tensor } from '../../../lib/index.js';

type Program = (...args: Tensor[]) => Tensor;
type Step = readonly [kind: number, a: number, b: number];

const pick = (list: readonly Tensor[], i: number): Tensor => list[i % list.length] as Tensor;

/** Each step makes a matrix of two earlier ones. */
const steps: ((a: Tensor, b: Tensor) => Tensor)[] = [
  (a) => a.sin(),
  (a) => a.tanh(),
  (a, b) => a.mul(b),
  (a, b) => a.add(b.t()),
  (a, b) => a.matmul(b),
  (a, b) => a.mul(b.sum(0)),
  (a, b) => a.sub(b.select(0, 1).unsqueeze(1)),
  (a) => nn.functional.layerNorm(a, [3]),
  (a) => nn.functional.dropout(a, { p: 0.3 }),
  (a) => a.softmax(1).t(),
  (a) => a.relu(),
  (a, b) => {
    const c = a.mul(0.5);
    c.select(1, 0).add_(b.select(0, 2));
    return c;
  },
  (a, b) => a.clone().mul_(b),
  (a) => a.add(1).t().sin_(),
  (a, b) => {
    const c = a.clone();
    c.slice(0, 0, 2).copy_(b.slice(0, 1, 3));
    return c;
  },
];

export const programs: fc.Arbitrary<{ text: readonly Step[]; program: Program }> = fc
  .array(fc.tuple(fc.nat(steps.length - 1), fc.nat(9), fc.nat(9)), { minLength: 2, maxLength: 9 })
  .map((text) => ({
    text,
    program: (...args: Tensor[]) => {
      const made = [...args];
      for (const [kind, a, b] of text)
        made.push((steps[kind] as (typeof steps)[number])(pick(made, a), pick(made, b)));
      return [...args, ...made.slice(-3)].reduce((sum, t) => sum.add(t));
    },
  }));
