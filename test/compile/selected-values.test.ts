/** Values with their indices, as `sort` returns them, are results of compiled functions. */
import assert from 'node:assert/strict';
import { compile, scope, type Tensor, tensor, tree } from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

type Fn = (t: Tensor) => unknown;

const functions: Record<string, Fn> = {
  sort: (t) => t.sort(),
  max: (t) => t.max(0),
  min: (t) => t.mul(2).min(0, true),
  topk: (t) => t.topk(2),
  kthvalue: (t) => t.kthvalue(1),
  median: (t) => [t.median(0), t],
};

describe('values with indices', () => {
  for (const [name, fn] of Object.entries(functions))
    it(`of ${name} are results of a graph, with their class and gradients`, () => {
      const backend = CompileCounter();
      const compiled = compile(fn, { fullgraph: true, backend });
      for (let i = 0; i < 3; i++) {
        const seen = [fn, compiled].map((run) => {
          const x = tensor([
            [3, i, -1],
            [0.5, 2, 8],
          ]).requiresGrad_();
          const result = run(x);
          const tensors = tree.tensors(result);
          tensors
            .filter((t) => t.requiresGrad)
            .reduce((sum, t) => sum.add(t.sum()), x.sum())
            .backward();
          const first = [result].flat()[0] as object;
          return [
            first.constructor,
            Object.keys(first),
            tensors.map((t) => t.tolist()),
            x.grad?.tolist(),
          ];
        });
        assert.deepEqual(seen[1], seen[0]);
      }
      assert.equal(backend.frameCount, 1);
    });

  it('are arguments, whose tensors are inputs', () => {
    const backend = CompileCounter();
    const fn = (found: { values: Tensor; indices: Tensor }): Tensor =>
      found.values.mul(found.indices);
    const compiled = compile(fn, { fullgraph: true, backend });
    for (let i = 0; i < 3; i++) {
      const found = tensor([3, i, -1]).sort();
      assert.deepEqual(compiled(found).tolist(), fn(found).tolist());
    }
    assert.equal(backend.frameCount, 1);
    const { values, indices } = tensor([3, 4]).sort();
    assert.deepEqual(compiled({ values, indices }).tolist(), values.mul(indices).tolist());
    assert.equal(backend.frameCount, 2);
  });

  it('are trees, and outlive a scope that returns them', () => {
    const found = scope(() => tensor([3, 1]).sort());
    assert.deepEqual(found.values.tolist(), [1, 3]);
    assert.deepEqual(tree.tensors([found]), [found.values, found.indices]);
    const [twice] = tree.map((t) => t.mul(2), [found]);
    assert.deepEqual(
      [...(twice ?? [])].map((t) => t.tolist()),
      [
        [2, 6],
        [2, 0],
      ],
    );
    assert.equal(twice?.constructor, found.constructor);
  });
});
