/**
 * Second gradients of every op in the table agree with finite differences, or are refused if they
 * do not exist.
 */
import assert from 'node:assert/strict';
import type { AnyOp, Sample } from '../../lib/core/op.js';
import { autograd, float64, nn, randn, type Tensor } from '../../lib/index.js';
import { differentiableOps, float64Samples, isVariable, outputsOf } from './differentiable.js';

/** The op as a function of its variables. */
function functionOf(
  op: AnyOp,
  { inputs, params }: Sample<object>,
): (...given: Tensor[]) => Tensor[] {
  return (...given) => {
    let next = 0;
    const operands = inputs.map((t) => (isVariable(t) ? (given[next++] as Tensor) : t));
    return outputsOf(op, operands, params);
  };
}

/**
 * Checks that recording the backward pass, which decomposes fused backward ops, keeps the values.
 */
function checkRecorded(run: (...given: Tensor[]) => Tensor[], variables: Tensor[]): void {
  const first = (createGraph: boolean): (Tensor | null)[] => {
    const loss = run(...variables).map((t) => t.sin().sum());
    return autograd.grad(loss, variables, { createGraph, allowUnused: true });
  };
  const recorded = first(true);
  first(false).forEach((g, i) => {
    const other = recorded[i] as Tensor | null;
    assert.ok(
      g === null || other === null ? g === other : g.allclose(other, { rtol: 1e-10, atol: 1e-12 }),
      `gradient ${i}: ${g}\nrecorded ${other}`,
    );
  });
}

describe('the second gradient of every op in the table', () => {
  for (const op of differentiableOps()) {
    it(`agrees with finite differences for ${op.name}`, function () {
      this.timeout(20_000);
      for (const sample of float64Samples(op)) {
        const variables = sample.inputs.filter(isVariable).map((t) => t.detach().requiresGrad_());
        const run = functionOf(op, sample);
        if (!run(...variables).some((t) => t.requiresGrad)) continue;
        checkRecorded(run, variables);
        assert.ok(autograd.gradgradcheck(run, variables));
      }
    });
  }
});

/** Functions that have a gradient but no second gradient, with the error of asking for it. */
const withoutSecond: Record<string, { fn: (x: Tensor) => Tensor; message: RegExp }> = {
  'attention with dropout': {
    fn: (x) => nn.functional.scaledDotProductAttention(x, x, x, { dropoutP: 0.5 }),
    message: /scaledDotProductAttention: a second derivative with dropout is not supported/,
  },
};

describe('a second gradient that does not exist', () => {
  for (const [name, { fn, message }] of Object.entries(withoutSecond)) {
    it(`is refused by ${name}`, () => {
      const x = randn([1, 2, 3, 4], { dtype: float64 }).requiresGrad_();
      assert.equal(autograd.grad(fn(x).sum(), x)[0]?.shape.join(), x.shape.join());
      assert.throws(() => autograd.grad(fn(x).sum(), x, { createGraph: true }), {
        code: 'ERR_ARGUMENT',
        message,
      });
    });
  }
});
