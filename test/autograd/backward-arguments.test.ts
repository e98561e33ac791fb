/** The arguments of backward: by position in PyTorch's order, or as options. */
import assert from 'node:assert/strict';
import { ArgumentError, AutogradError, autograd, type Tensor, tensor } from '../../lib/index.js';

type Call = (y: Tensor, g: Tensor) => void;
const twice: Record<string, Call> = {
  'backward({ retainGraph: true })': (y) => y.sum().backward({ retainGraph: true }),
  'backward(null, true)': (y) => y.sum().backward(null, true),
  'backward(null, { retainGraph: true })': (y) => y.sum().backward(null, { retainGraph: true }),
  'backward({ createGraph: true })': (y) => y.sum().backward({ createGraph: true }),
  'backward(g, true)': (y, g) => y.backward(g, true),
  'backward({ gradient, retainGraph })': (y, gradient) =>
    y.backward({ gradient, retainGraph: true }),
  'autograd.backward(y, g, true)': (y, g) => autograd.backward(y, g, true),
  'autograd.backward([y], { gradTensors, retainGraph })': (y, g) =>
    autograd.backward([y], { gradTensors: [g], retainGraph: true }),
};

describe('backward', () => {
  for (const [name, call] of Object.entries(twice)) {
    it(`can run a second time after ${name}`, () => {
      const x = tensor([1, 2]).requiresGrad_();
      const y = x.mul(x);
      for (let i = 0; i < 2; i++) call(y, tensor([1, 1]));
      assert.deepEqual(x.grad?.tolist(), [4, 8]);
    });
  }

  it('frees saved tensors with { retainGraph: false }, also if createGraph is on', () => {
    const x = tensor([1, 2]).requiresGrad_();
    const y = x.mul(x).sum();
    y.backward({ retainGraph: false, createGraph: true });
    assert.throws(() => y.backward(), AutogradError);
  });

  it('takes inputs by position and as an option', () => {
    for (const call of [
      (l: Tensor, w: Tensor) => l.backward(null, null, false, [w]),
      (l: Tensor, w: Tensor) => l.backward({ inputs: w }),
    ]) {
      const [x, w] = [tensor([2]).requiresGrad_(), tensor([3]).requiresGrad_()];
      call(x.mul(w).sum(), w);
      assert.deepEqual([x.grad, w.grad?.tolist()], [null, [2]]);
    }
  });

  it('autograd.grad takes gradOutputs, retainGraph and createGraph by position, too', () => {
    const x = tensor([1, 2]).requiresGrad_();
    const y = x.mul(x);
    const g = tensor([1, 10]);
    for (let i = 0; i < 2; i++)
      assert.deepEqual(autograd.grad(y, x, g, true)[0]?.tolist(), [2, 40]);
    const [first] = autograd.grad(y, [x], [g], null, true);
    assert.deepEqual(autograd.grad(first?.sum() as Tensor, x)[0]?.tolist(), [2, 20]);
    const unused = tensor([1]).requiresGrad_();
    assert.deepEqual(autograd.grad(x.sum(), [unused], { allowUnused: true }), [null]);
    assert.throws(
      () => autograd.grad(x.sum(), x, { unused: true } as never),
      /grad: there is no option "unused"; options are gradOutputs, retainGraph, createGraph, allowUnused/,
    );
  });

  it('refuses an unknown option', () => {
    const x = tensor([1]).requiresGrad_();
    assert.throws(
      () => x.sum().backward({ retain: true } as never),
      (e: Error) =>
        e instanceof ArgumentError &&
        /options are gradient, retainGraph, createGraph, inputs/.test(e.message),
    );
  });
});
