/** How programs call: options objects, closures over intermediates, compiled functions inside. */
import assert from 'node:assert/strict';
import { compile, graphBreak, nn, ones, type Tensor, tensor } from '../../../lib/index.js';
import { CompileCounter } from '../../../lib/testing/index.js';
import { assertSameAsEager } from '../same-as-eager.js';

const leaf = (...values: number[]): Tensor => tensor(values, { requiresGrad: true });

describe('a captured function', () => {
  it('takes tensors and plain values from an options object, in any depth', () => {
    const fn = (
      x: Tensor,
      { scale = 1, shift }: { scale?: number; shift?: { by: Tensor; of?: Tensor[] } } = {},
    ): { y: Tensor; parts: Map<string, Tensor> } => {
      const y = shift === undefined ? x.mul(scale) : x.mul(scale).add(shift.by);
      return { y, parts: new Map([['last', shift?.of?.at(-1) ?? y]]) };
    };
    const counter = CompileCounter();
    const compiled = compile(fn, { fullgraph: true, backend: counter });
    for (let call = 0; call < 3; call++) {
      const [eager, results] = [fn, compiled].map((run) => {
        const by = leaf(1 + call, 2);
        const list = [leaf(5), leaf(6, 7)];
        const all = [
          run(leaf(3, 4)),
          run(leaf(3, 4), { scale: 2 }),
          run(leaf(3, 4), { scale: 2, shift: { by, of: list } }),
        ];
        const last = all[2] as { y: Tensor; parts: Map<string, Tensor> };
        assert.equal(last.parts.get('last'), list[1]);
        last.y.sum().backward();
        return [all.map(({ y }) => y.tolist()), by.grad?.tolist()];
      });
      assert.deepEqual(results, eager);
    }
    assert.equal(counter.frameCount, 3);
  });

  it('passes closures over its intermediates to other functions', () => {
    const twice = (f: (t: Tensor) => Tensor, t: Tensor): Tensor => f(f(t));
    assertSameAsEager(() => (w) => {
      const h = w.sin();
      let sum = h;
      const add = (t: Tensor): Tensor => {
        sum = sum.add(t);
        return t.mul(h);
      };
      return [twice(add, w), sum];
    });
  });

  it('inlines compiled functions and modules that it calls', () => {
    const inner = CompileCounter();
    assertSameAsEager(() => {
      const model = new nn.Linear(2, 2);
      model.weight.data.fill_(0.5);
      model.bias?.data.fill_(1);
      const compiledModel = compile(model, { backend: inner });
      const scaled = compile((x: Tensor, k: number) => x.mul(k), { backend: inner });
      return {
        fn: (w) => scaled(compiledModel(scaled(w, 2)), 3),
        state: () => model.weight.grad?.tolist() ?? null,
      };
    });
    // The eager program runs them by themselves: one model, and two values of k.
    assert.equal(inner.frameCount, 3);
  });

  it('runs compiled functions by themselves when it cannot be captured', () => {
    const inner = CompileCounter();
    const outer = CompileCounter();
    const scaled = compile((x: Tensor) => x.mul(3), { backend: inner });
    const fn = compile((x: Tensor) => (graphBreak(), scaled(x)), { backend: outer });
    for (let call = 0; call < 2; call++) assert.deepEqual(fn(tensor([1, 2])).tolist(), [3, 6]);
    assert.deepEqual([outer.frameCount, inner.frameCount], [0, 1]);
  });

  it('breaks where a function is returned, which may hold its tensors', () => {
    const fn = (x: Tensor): (() => Tensor) => {
      const h = x.mul(2);
      return () => h;
    };
    const compiled = compile(fn);
    for (let i = 0; i < 3; i++) assert.deepEqual(compiled(ones([1]))().tolist(), [2]);
    assert.throws(() => compile(fn, { fullgraph: true })(ones([1])), /a function was returned/);
  });
});
