/**
 * Gradients that user functions and hooks return are fitted or refused, and never broadcast to
 * wrong numbers.
 */
import assert from 'node:assert/strict';
import { AutogradError, autograd, float64, ones, type Tensor, tensor } from '../../lib/index.js';

const leaf = (values: number[] = [1, 2, 3]): Tensor => tensor(values, { requiresGrad: true });

/** y = x, whose backward returns what is given. */
function identityThatReturns(gradient: (g: Tensor) => unknown): (x: Tensor) => Tensor {
  class Identity extends autograd.Function {
    static forward(_: autograd.FunctionContext, x: Tensor): Tensor {
      return x.clone();
    }
    static backward(_: autograd.FunctionContext, g: Tensor): Tensor {
      return gradient(g) as Tensor;
    }
  }
  return (x) => Identity.apply(x);
}

describe('the gradient that a hook returns', () => {
  const refused: [string, unknown, RegExp][] = [
    ['a tensor of another shape', ones([1]), /expected float32\[3\]/],
    ['a tensor of another dtype', ones([3], { dtype: float64 }), /float64\[3\]/],
    ['a number', 2, /number/],
  ];
  for (const [what, value, message] of refused) {
    it(`is refused if it is ${what}`, () => {
      const w = leaf();
      const y = w.mul(2);
      y.registerHook(() => value as Tensor);
      assert.throws(
        () => y.sum().backward(),
        (error: Error) => error instanceof AutogradError && message.test(error.message),
      );
      assert.equal(w.grad, null);
    });
  }

  it('replaces the gradient, while a hook that returns nothing keeps it', () => {
    const w = leaf();
    const y = w.mul(2);
    y.registerHook((g) => g.mul(10));
    y.registerHook(() => undefined);
    y.sum().backward();
    assert.deepEqual(w.grad?.tolist(), [20, 20, 20]);
  });

  it('must have the number and shapes of the node’s gradients if the hook is on a node', () => {
    const y = leaf().mul(2);
    const handle = y.gradFn?.registerHook(() => [ones([2]), null]);
    assert.throws(() => y.sum().backward(undefined, { retainGraph: true }), AutogradError);
    handle?.remove();
    y.gradFn?.registerPrehook(() => []);
    assert.throws(() => y.sum().backward(), /returned 0 gradients, expected 1/);
  });
});

describe('backward of a user’s autograd.Function', () => {
  it('may return a gradient of another dtype or of a broadcast shape', () => {
    const w = leaf([1]);
    identityThatReturns(() => ones([3], { dtype: float64 }))(w)
      .sum()
      .backward();
    assert.deepEqual(w.grad?.tolist(), [3]);
    assert.equal(w.grad?.dtype.name, 'float32');
  });

  it('must not return another shape, a value that is not a tensor, or too many gradients', () => {
    const returned: [(g: Tensor) => unknown, RegExp][] = [
      [
        () => ones([2]),
        /Identity.backward returned float32\[2\] on cpu as a gradient, expected float32\[3\] on cpu/,
      ],
      [() => 1, /Identity.backward returned number/],
      [(g) => [g, g], /2 gradients, forward had 1/],
    ];
    for (const [gradient, message] of returned)
      assert.throws(() => identityThatReturns(gradient)(leaf()).sum().backward(), message);
  });

  it('gets zeros for unused outputs', () => {
    class Two extends autograd.Function {
      static forward(_: autograd.FunctionContext, x: Tensor): readonly Tensor[] {
        return [x.mul(1), x.sum()];
      }
      static backward(_: autograd.FunctionContext, a: Tensor, b: Tensor): Tensor {
        assert.deepEqual([a.shape, b.shape, b.item()], [[3], [], 0]);
        return a;
      }
    }
    const w = leaf();
    (Two.apply(w) as Tensor[])[0]?.sum().backward();
    assert.deepEqual(w.grad?.tolist(), [1, 1, 1]);
  });

  it('throws if the graph was freed, once or twice', () => {
    const w = leaf();
    const y = w.exp();
    y.sum().backward();
    for (let i = 0; i < 3; i++) assert.throws(() => y.backward(ones([3])), /a second time/);
  });
});
