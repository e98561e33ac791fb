/**
 * In-place changes under autograd: first and second gradients equal those of the out-of-place ops.
 */
import assert from 'node:assert/strict';
import { autograd, float64, noGrad, type Tensor, tensor } from '../../lib/index.js';
import { foreachMul_ } from '../../lib/ops/optimizer-steps.js';

const input = (): Tensor => tensor([0.3, 0.7, 1.2], { dtype: float64 }).requiresGrad_();

/** Changes that read what they overwrite, on a tensor that has a history. */
const changes: Record<string, (y: Tensor) => Tensor> = {
  pow_: (y) => y.pow_(3),
  square_: (y) => y.square_(),
  'mul_ by itself': (y) => y.mul_(y),
  exp_: (y) => y.exp_(),
  sin_: (y) => y.sin_(),
  clamp_: (y) => y.clamp_({ max: 0.9 }).square_(),
  'clamp_ between tensors': (y) => y.clamp_({ min: y.mul(0.5).add(0.3), max: y.mul(-1).add(2) }),
  'addcmul_ of itself': (y) => y.addcmul_(y, y),
  'lerp_ with itself': (y) => y.lerp_(y.mul(2), y),
};

describe('an in-place change', () => {
  for (const [name, change] of Object.entries(changes)) {
    it(`has the gradients of its out-of-place op for ${name}`, () => {
      const fn = (x: Tensor): Tensor => change(x.mul(1));
      assert.ok(autograd.gradcheck(fn, [input()]));
      assert.ok(autograd.gradgradcheck(fn, [input()]));
    });

    it(`on a view has the gradients of its out-of-place op for ${name}`, () => {
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

describe('an in-place change by an op without a gradient', () => {
  it('detaches the tensor from its history', () => {
    const x = input();
    const y = x.mul(2).logicalNot_();
    y.mul(x).sum().backward();
    assert.deepEqual(x.grad?.tolist(), [0, 0, 0]);
  });

  it('detaches the window of a view from its history', () => {
    const x = input();
    const y = x.mul(2);
    y.narrow(0, 0, 2).logicalNot_();
    y.sum().backward();
    assert.deepEqual(x.grad?.tolist(), [0, 0, 2]);
  });

  it('is refused for foreach ops', () => {
    const y = input().mul(2);
    assert.throws(() => foreachMul_([y], 3), {
      code: 'ERR_IN_PLACE',
      message: /foreachMul: it has no gradient/,
    });
    noGrad(() => foreachMul_([y], 3));
  });
});
