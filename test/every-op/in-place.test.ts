/**
 * Every op in the table has the same values and gradients in place as out of place, for any layout.
 */
import assert from 'node:assert/strict';
import { dispatch } from '../../lib/core/dispatch.js';
import type { AnyOp, Sample } from '../../lib/core/op.js';
import { autograd, type Tensor } from '../../lib/index.js';
import { differentiableOps, float64Samples, isVariable } from './differentiable.js';

/** Makes a tensor to write into, with the values and the history of `t`. */
type Target = (t: Tensor) => Tensor;

const targets: Record<string, Target> = {
  'a tensor': (t) => t.mul(1),
  'a transposed tensor': (t) => reversed(reversed(t).contiguous().mul(1)),
  'a view': (t) => t.unsqueeze(0).mul(1).select(0, 0),
  'a view with gaps': (t) => {
    const wide = t.unsqueeze(-1).mul(t.newOnes([3]));
    return wide.select(-1, 1);
  },
};

function reversed(t: Tensor): Tensor {
  return t.permute(t.shape.map((_, i) => t.ndim - 1 - i));
}

/** The operand that an in-place method would overwrite: a variable of the shape of the result. */
function targetOf(op: AnyOp, { inputs, params }: Sample<object>): number {
  if (op.pointwise === null && op.updates < 0) return -1;
  const { shape } = dispatch(op, inputs, params)[0] as Tensor;
  return inputs.findLastIndex(
    (t, i) =>
      isVariable(t) && t.shape.join() === shape.join() && (op.updates < 0 || i === op.updates),
  );
}

/** Value, first and second gradients. */
function derivatives(
  op: AnyOp,
  { inputs, params }: Sample<object>,
  at: number,
  target: Target | null,
): (Tensor | null)[] {
  const leaves = inputs.map((t) => (isVariable(t) ? t.detach().clone().requiresGrad_() : t));
  const operands = target === null ? leaves : leaves.with(at, target(leaves[at] as Tensor));
  const output = dispatch(
    op,
    operands,
    params,
    target === null ? null : (operands[at] as Tensor),
  )[0] as Tensor;
  const variables = leaves.filter(isVariable);
  const weight = (t: Tensor): Tensor =>
    t.detach().newOnes([t.numel()]).cumsum(0).sin().add(1.5).reshape(t.shape);
  const loss = output.mul(weight(output)).sum();
  const first = autograd.grad(loss, variables, { createGraph: true, allowUnused: true });
  const again = first
    .filter((g): g is Tensor => g?.requiresGrad === true)
    .map((g) => g.square().mul(weight(g)).sum());
  const second = again.length === 0 ? [] : autograd.grad(again, variables, { allowUnused: true });
  return [output, ...first, ...second].map((t) => t?.detach() ?? null);
}

describe('the in-place form of every op', () => {
  for (const op of differentiableOps()) {
    const samples = float64Samples(op).filter((sample) => targetOf(op, sample) >= 0);
    if (samples.length === 0) continue;
    it(`has the same values and gradients as the op for ${op.name}`, () => {
      for (const sample of samples) {
        const at = targetOf(op, sample);
        const expected = derivatives(op, sample, at, null);
        for (const [name, target] of Object.entries(targets)) {
          derivatives(op, sample, at, target).forEach((actual, i) =>
            assertSame(actual, expected[i] as Tensor | null, `${name}, result ${i}`),
          );
        }
      }
    });
  }
});

/** No gradient and a gradient of zeros are the same. */
function assertSame(a: Tensor | null, b: Tensor | null, what: string): void {
  const [x, y] = [a ?? b?.zerosLike(), b ?? a?.zerosLike()];
  assert.ok(
    x === undefined ||
      y === undefined ||
      x.allclose(y, { rtol: 1e-12, atol: 1e-12, equalNan: true }),
    `${what}: ${a}\nexpected ${b}`,
  );
}
