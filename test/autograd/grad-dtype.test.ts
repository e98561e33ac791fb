/** `gradDtype`: gradients of leaves in a dtype of their own. */
import assert from 'node:assert/strict';
import { compile, compiledAutograd, compiler, type GraphModule } from '../../lib/compile/index.js';
import { autograd, nn, optim, type Tensor, tensor, zeros } from '../../lib/index.js';

const leaf = (): Tensor => tensor([1, 3], { requiresGrad: true });
/** bfloat16 has 8 bits: the gradient is 1 + 2^-8 times a value. */
const loss = (w: Tensor): Tensor => w.mul(1 + 2 ** -8).sum();

describe('gradDtype', () => {
  it('is the dtype of a leaf, unless another one is set', () => {
    const w = leaf();
    assert.equal(w.gradDtype.name, 'float32');
    assert.equal(w.double().detach().gradDtype.name, 'float64');
    w.gradDtype = 'bfloat16';
    assert.equal(w.gradDtype.name, 'bfloat16');
  });

  it('is the dtype of gradients, and of their sums, which are rounded once', () => {
    for (const options of [{}, { createGraph: true }]) {
      const w = leaf();
      w.gradDtype = 'bfloat16';
      const seen: string[] = [];
      w.registerHook((grad) => void seen.push(grad.dtype.name));
      w.registerPostAccumulateGradHook((t) => seen.push((t.grad as Tensor).dtype.name));
      loss(w).backward();
      assert.deepEqual(w.grad?.tolist(), [1, 1]);
      assert.deepEqual(seen, ['float32', 'bfloat16']);
      w.mul(w).mul(0.5).sum().backward(options);
      assert.equal(w.grad?.dtype.name, 'bfloat16');
      assert.deepEqual(w.grad?.tolist(), [2, 4]);
    }
  });

  it('leaves gradients to optimizers, which compute in the dtype of parameters', () => {
    for (const make of [
      (p: nn.Parameter) => new optim.SGD([p], { lr: 0.5, momentum: 0.9 }),
      (p: nn.Parameter) => new optim.AdamW([p], { lr: 0.5 }),
    ]) {
      const values = [undefined, 'bfloat16' as const].map((dtype) => {
        const w = new nn.Parameter(tensor([1, 3]));
        if (dtype !== undefined) w.gradDtype = dtype;
        const optimizer = make(w);
        for (let step = 0; step < 2; step++) {
          w.mul(0.75).sum().backward();
          optimizer.step();
        }
        assert.equal(w.dtype.name, 'float32');
        return w.tolist();
      });
      assert.deepEqual(values[1], values[0]);
    }
  });

  it('is part of captured backward passes and of memory for gradients', () => {
    let graphs = 0;
    const count = (module: GraphModule) => (graphs++, compile(module));
    compiler.reset();
    for (const dtype of ['float32', 'bfloat16', 'bfloat16'] as const) {
      const w = leaf();
      w.gradDtype = dtype;
      compiledAutograd.enable(count, () => loss(w).backward());
      assert.equal(w.grad?.dtype.name, dtype);
    }
    assert.equal(graphs, 2);
    const w = leaf();
    w.gradDtype = 'bfloat16';
    assert.throws(() => autograd.setGradMemory(w, zeros([2])), /bfloat16\[2\] on cpu, got float32/);
    autograd.setGradMemory(w, zeros([2], { dtype: 'bfloat16' }));
    assert.throws(() => {
      w.gradDtype = 'float32';
    }, /expected bfloat16/);
  });

  it('refuses dtypes that are not floating, tensors of ops, and gradients of another dtype', () => {
    const w = leaf();
    const set = (t: Tensor, dtype: string) => () => {
      t.gradDtype = dtype as never;
    };
    assert.throws(set(w, 'int64'), { code: 'ERR_ARGUMENT', message: /floating point dtype/ });
    assert.throws(set(w, 'float99'), { code: 'ERR_DTYPE' });
    assert.throws(set(w.mul(2), 'bfloat16'), { code: 'ERR_AUTOGRAD', message: /expected a leaf/ });
    loss(w).backward();
    assert.throws(set(w, 'bfloat16'), { code: 'ERR_AUTOGRAD', message: /Set it before backward/ });
    w.grad = null;
    set(w, 'bfloat16')();
    assert.throws(() => {
      w.grad = zeros([2]);
    }, /expected bfloat16\[2\] on cpu, got float32/);
  });
});
