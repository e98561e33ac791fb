/** In-place changes under autograd: the gradients, also the second ones, are those of the same ops without changes in place. */
import assert from 'node:assert/strict';
import { autograd, float64, type Tensor, tensor } from '../../lib/index.js';

const input = (): Tensor => tensor([0.3, 0.7, 1.2], { dtype: float64 }).requiresGrad_();

/** Changes that read what they overwrite, on a tensor that has a history. */
const changes: Record<string, (y: Tensor) => Tensor> = {
  pow_: (y) => y.pow_(3),
  square_: (y) => y.square_(),
  'mul_ by itself': (y) => y.mul_(y),
  exp_: (y) => y.exp_(),
  sin_: (y) => y.sin_(),
  clamp_: (y) => y.clamp_({ max: 0.9 }).square_(),
  'addcmul_ of itself': (y) => y.addcmul_(y, y),
  'lerp_ with itself': (y) => y.lerp_(y.mul(2), y),
};

describe('a change in place', () => {
  for (const [name, change] of Object.entries(changes)) {
    it(`has the gradients of its op: ${name}`, () => {
      const fn = (x: Tensor): Tensor => change(x.mul(1));
      assert.ok(autograd.gradcheck(fn, [input()]));
      assert.ok(autograd.gradgradcheck(fn, [input()]));
    });

    it(`has the gradients of its op on a view: ${name}`, () => {
      const fn = (x: Tensor): Tensor => {
        const y = x.mul(x);
        change(y.narrow(0, 1, 2));
        return y.mul(x);
      };
      assert.ok(autograd.gradcheck(fn, [input()]));
      assert.ok(autograd.gradgradcheck(fn, [input()]));
    });
  }
});
