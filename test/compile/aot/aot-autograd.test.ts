/** Forward and backward as two graphs compute what eager mode computes, to the bit. */
import assert from 'node:assert/strict';
import { aotAutograd } from '../../../lib/compile/index.js';
import {
  AutogradError,
  autograd,
  CompileError,
  compile,
  inferenceMode,
  int64,
  manualSeed,
  nn,
  noGrad,
  ones,
  rand,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { CompileCounterWithBackend } from '../../../lib/testing/index.js';
import { assertEqualRuns, leaf, recording } from './differential.js';

const { functional } = nn;

/**
 * A function, its arguments, and the number of graphs: 1 without backward, else 2, or 3 where the
 * passes use one of two results.
 */
const programs: Record<
  string,
  [fn: (...args: Tensor[]) => Tensor | readonly Tensor[], make: () => Tensor[], graphs: 1 | 2 | 3]
> = {
  'a product and an activation': [
    (x, w) => x.matmul(w as Tensor).gelu(),
    () => [leaf(3, 4), leaf(4, 2)],
    2,
  ],
  'an argument that is changed in place': [
    (x) => {
      x.add_(1);
      return x.mul(2);
    },
    () => [rand([3])],
    1,
  ],
  'an argument that is changed by a tensor with a gradient': [
    (x, w) => {
      x.mul_(w as Tensor);
      return x.add(1);
    },
    () => [rand([3]), leaf(3)],
    3,
  ],
  'a changed argument that is returned': [(x) => x.mul_(3), () => [rand([3])], 1],
  dropout: [(x) => functional.dropout(x, { p: 0.5 }).mul(2), () => [leaf(8)], 2],
  'attention with dropout': [
    (q) => functional.scaledDotProductAttention(q, q, q, { dropoutP: 0.3 }),
    () => [leaf(1, 2, 8, 4)],
    2,
  ],
  'views of arguments and of results': [
    (x) => [x.view([-1]), x.mul(2).view([-1])],
    () => [leaf(2, 3)],
    2,
  ],
  'a result that is changed through a view': [
    (x) => {
      const y = x.mul(2);
      y.add_(x);
      y.select(0, 0).mul_(3);
      return y.exp();
    },
    () => [leaf(3, 2)],
    2,
  ],
  'layer norm': [
    (x, w, b) => functional.layerNorm(x, [4], { weight: w as Tensor, bias: b as Tensor }),
    () => [leaf(3, 4), leaf(4), leaf(4)],
    2,
  ],
  'cross entropy': [
    (x) => functional.crossEntropy(x, tensor([1, 2, 0], { dtype: int64 })),
    () => [leaf(3, 4)],
    2,
  ],
  'several views of one result': [(x) => x.mul(2).split(2) as Tensor[], () => [leaf(4, 4)], 2],
  'an argument without influence': [(x) => x.sin(), () => [leaf(3), leaf(3)], 2],
  'a transposed result': [(x) => x.mul(2).transpose(0, 1), () => [leaf(3, 4)], 2],
  'an expanded result': [(x) => x.sum(0).expand([3, 4]), () => [leaf(3, 4)], 2],
  'a part without a gradient': [
    (x) => [noGrad(() => x.mul(2)), x.detach().add(x)],
    () => [leaf(3)],
    2,
  ],
  'the argument itself': [(x) => [x, x.sin()], () => [leaf(3)], 2],
  'one tensor as two arguments': [
    (x, y) => x.mul(y as Tensor),
    () => {
      const x = leaf(3);
      return [x, x];
    },
    2,
  ],
  'one result twice': [
    (x) => {
      const y = x.exp();
      return [y, y];
    },
    () => [leaf(3)],
    2,
  ],
};

describe('aotAutograd', () => {
  for (const [name, [fn, make, count]] of Object.entries(programs)) {
    it(`computes the values, gradients and versions of eager mode: ${name}`, () => {
      const { backend, graphs } = recording();
      assertEqualRuns(fn, make, backend);
      assert.equal(graphs.length, count, graphs.join('\n'));
    });
  }

  it('computes a transformer layer and the gradients of its parameters', () => {
    manualSeed(1);
    const model = new nn.TransformerEncoderLayer(8, 2, { dimFeedforward: 16, batchFirst: true });
    const x = rand([2, 5, 8]);
    const run = (layer: (input: Tensor) => Tensor): unknown => {
      model.zeroGrad();
      manualSeed(5);
      const y = layer(x);
      y.mul(y).sum().backward();
      return [y.tolist(), [...model.parameters()].map((p) => p.grad?.tolist())];
    };
    const { backend, graphs } = recording();
    const compiled = compile(model, { backend, fullgraph: true });
    const expected = run((input) => model(input));
    for (let i = 0; i < 3; i++)
      assert.deepEqual(
        run((input) => compiled(input)),
        expected,
      );
    assert.equal(graphs.length, 2);
  });

  it('saves for backward what the rules of gradients read, and runs no rule in forward', () => {
    const { backend, graphs } = recording();
    compile((x: Tensor) => x.sin().cos(), { backend })(leaf(3))
      .sum()
      .backward();
    const [forward, backward] = graphs as [string, string];
    assert.match(forward, /sin\(%primal\)[\s\S]*cos\(%sin\)\nreturn %cos, %primal, %sin/);
    assert.match(backward, /neg[\s\S]*cos\(%primal\)/);
  });

  it('keeps no graph for backward where gradients are off', () => {
    const { backend, graphs } = recording();
    const fn = compile((x: Tensor) => x.sin(), { backend });
    const x = leaf(3);
    noGrad(() => fn(x));
    inferenceMode(() => fn(x));
    assert.deepEqual(
      graphs.map((text) => text.split('\n')[0]),
      ['forward', 'forward'],
    );
  });

  for (const backend of ['aot_eager', 'aot_eager_decomp_partition'] as const)
    it(`refuses a second derivative of draws, with the function, its call and advice (${backend})`, () => {
      const wave = (x: Tensor): Tensor => functional.dropout(x.sin(), { p: 0.5 });
      const x = leaf(3);
      const compiled = compile(wave, { backend });
      const refused = (run: () => unknown): void =>
        assert.throws(run, (error: Error) => {
          assert.ok(error instanceof AutogradError);
          assert.match(
            error.message,
            /because wave, .* first called at \S*aot-autograd\.test\.[jt]s:\d/,
          );
          assert.match(error.message, /backend 'eager'/);
          return true;
        });
      for (let call = 0; call < 2; call++) {
        const y = compiled(x).sum();
        refused(() => autograd.grad(y, [x], { createGraph: true }));
        refused(() => y.backward({ createGraph: true }));
        y.backward();
      }
    });

  it('frees what it saved after backward, and says so at a second one', () => {
    const y = compile((x: Tensor) => x.exp(), { backend: 'aot_eager' })(leaf(3)).sum();
    y.backward();
    assert.throws(() => y.backward(), /retainGraph/);
  });

  it('runs the captured graph as it is where the lowered level cannot express it', () => {
    const counter = CompileCounterWithBackend('aot_eager');
    const fn = (x: Tensor, view: Tensor): Tensor => {
      view.mul_(2);
      return x.sum();
    };
    const run = (f: typeof fn): unknown => {
      const w = leaf(4);
      const x = w.mul(2);
      f(x, x.slice(0, 0, 2)).backward();
      return w.grad?.tolist();
    };
    manualSeed(3);
    const expected = run(fn);
    manualSeed(3);
    assert.deepEqual(run(compile(fn, { backend: counter })), expected);
    assert.equal(counter.frameCount, 1);
  });

  it('refuses a backward that returns too few or too many gradients', () => {
    const linear = new nn.Linear(2, 1);
    const graphsOf = (change: (results: readonly unknown[]) => unknown) =>
      compile(linear, {
        backend: aotAutograd({
          bwCompiler:
            (module) =>
            (...inputs) =>
              change(module.run(inputs)) as never,
        }),
      });
    for (const [change, text] of [
      [
        (results: readonly unknown[]) => results.slice(0, -1),
        /bwCompiler made of .* returned 1 output instead of 2; the first missing is %/,
      ],
      [() => [], /returned 0 outputs/],
      [(results: readonly unknown[]) => [...results, 1], /returned 3 outputs instead of 2/],
      [() => 3, /returned 3 instead of an array of 2 outputs/],
    ] as const)
      assert.throws(
        () =>
          graphsOf(change as never)(ones([1, 2]))
            .sum()
            .backward(),
        (error: Error) => error instanceof CompileError && text.test(error.message),
      );
  });
});
