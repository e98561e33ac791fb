/**
 * In-place ops where only another operand requires a gradient, which may need the overwritten
 * values.
 */
import assert from 'node:assert/strict';
import { autograd, Tensor } from '../../lib/index.js';
import { allComposites } from '../../lib/ops/composite.js';

const copyOf = (value: unknown, requiresGrad: boolean): unknown =>
  value instanceof Tensor
    ? value
        .detach()
        .clone()
        .requiresGrad_(requiresGrad && value.dtype.isFloatingPoint)
    : value;

describe('in-place compositions', () => {
  for (const { name, fn, inPlace, samples } of allComposites()) {
    if (!inPlace) continue;
    for (const [i, sample] of samples().entries()) {
      const others = sample.slice(1).filter((t) => t instanceof Tensor && t.dtype.isFloatingPoint);
      if (others.length === 0) continue;
      it(`keep the operands that other gradients read: ${name}_, sample ${i}`, () => {
        const gradients = [false, true].map((writes) => {
          const target = copyOf(sample[0], false) as Tensor;
          const args = sample.slice(1).map((arg) => copyOf(arg, true));
          const method = (target as unknown as Record<string, (...args: unknown[]) => Tensor>)[
            `${name}_`
          ] as (...args: unknown[]) => Tensor;
          const result = writes ? method.apply(target, args) : (fn(target, ...args) as Tensor);
          const leaves = args.filter((t): t is Tensor => t instanceof Tensor && t.requiresGrad);
          return autograd.grad(result.square().sum(), leaves).map((g) => g?.tolist());
        });
        assert.deepEqual(gradients[1], gradients[0]);
      });
    }
  }
});
