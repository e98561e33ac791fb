/**
 * Gradients of every op in the table do not depend on the memory layout of operands and cotangents.
 */
import assert from 'node:assert/strict';
import type { AnyOp, Sample } from '../../lib/core/op.js';
import { autograd, type Tensor } from '../../lib/index.js';
import {
  differentiableOps,
  float64Samples,
  isVariable,
  outputsOf,
  stepped,
  transposed,
} from './differentiable.js';

/** Another layout of a tensor. Values stay, except where a stride of 0 makes neighbours equal. */
type Layout = (t: Tensor) => Tensor;

/** The first row for all rows, with a stride of 0. */
const expanded: Layout = (t) => (t.ndim === 0 ? t : t.narrow(0, 0, 1).contiguous().expand(t.shape));

/** One element for all, as the gradient of a sum is. */
const scalar: Layout = (t) =>
  t.numel() === 0 ? t : t.reshape(-1).select(0, 0).clone().expand(t.shape);

const layouts: Record<string, Layout> = { transposed, stepped, expanded, scalar };

function run(op: AnyOp, inputs: readonly Tensor[], params: object): Tensor[] {
  const results = op.publicCall?.(inputs, params) ?? outputsOf(op, inputs, params);
  return Array.isArray(results) ? results : [results];
}

/** Fixed cotangents, no two elements alike. */
function cotangentLike(t: Tensor): Tensor {
  return t.detach().newOnes([t.numel()]).cumsum(0).mul(0.7).sin().add(1.5).reshape(t.shape);
}

function gradients(
  op: AnyOp,
  { inputs, params }: Sample<object>,
  arrange: Layout,
): (Tensor | null)[] {
  const given = inputs.map((t) => (isVariable(t) ? t.detach().requiresGrad_() : t));
  const outputs = run(op, given, params);
  return autograd.grad(outputs, given.filter(isVariable), {
    gradOutputs: outputs.map((t) => arrange(cotangentLike(t))),
    allowUnused: true,
  });
}

function assertSame(actual: (Tensor | null)[], expected: (Tensor | null)[], what: string): void {
  expected.forEach((e, i) => {
    const a = actual[i] as Tensor | null;
    const same =
      e === null || a === null
        ? e === a
        : a.isSameSize(e) && a.allclose(e, { rtol: 1e-12, atol: 1e-12, equalNan: true });
    assert.ok(same, `${what}, gradient ${i}: ${a}\nexpected ${e}`);
  });
}

describe('the gradient of every op in the table', () => {
  for (const op of differentiableOps()) {
    it(`accepts cotangents in any layout for ${op.name}`, () => {
      for (const sample of float64Samples(op)) {
        for (const [name, layout] of Object.entries(layouts)) {
          const expected = gradients(op, sample, (g) => layout(g).contiguous().clone());
          assertSame(gradients(op, sample, layout), expected, `${name} cotangent`);
        }
      }
    });

    it(`accepts operands in any layout for ${op.name}`, () => {
      for (const { inputs, params } of float64Samples(op)) {
        for (const [name, layout] of Object.entries(layouts)) {
          inputs.forEach((t, i) => {
            if (t.storage === null) return;
            const arranged = layout(t);
            const withOperand = (operand: Tensor): Sample<object> => ({
              inputs: inputs.with(i, operand),
              params,
            });
            const expected = gradients(op, withOperand(arranged.contiguous().clone()), (g) => g);
            assertSame(
              gradients(op, withOperand(arranged), (g) => g),
              expected,
              `${name} operand ${i}`,
            );
          });
        }
      }
    });
  }
});
