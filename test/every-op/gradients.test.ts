/** Every differentiable op in the table passes gradcheck on its samples in float64. */
import assert from 'node:assert/strict';
import { dispatch } from '../../lib/core/dispatch.js';
import type { AnyOp, Sample } from '../../lib/core/op.js';
import { autograd, float64, type Tensor } from '../../lib/index.js';
import { ownOps } from './differentiable.js';

/** The sample with its floating inputs in float64, requiring gradients. */
function differentiable({ inputs }: Sample<object>): Tensor[] {
  return inputs.map((t) =>
    t.storage !== null && t.dtype.isFloatingPoint ? t.detach().to(float64).requiresGrad_() : t,
  );
}

function outputsOf(op: AnyOp, inputs: readonly Tensor[], params: object): Tensor[] {
  return dispatch(op, inputs, params).filter((t) => t.dtype.isFloatingPoint);
}

describe('the gradient of every op in the table', () => {
  for (const op of ownOps()) {
    if (op.vjp === null) continue;
    const samples = op.samples() as Sample<object>[];
    if (samples.length === 0) continue;
    it(`agrees with finite differences for ${op.name}`, function () {
      this.timeout(60000);
      for (const sample of samples) {
        const inputs = differentiable(sample);
        if (!inputs.some((t) => t.requiresGrad) || inputs.some((t) => t.numel() === 0)) continue;
        // Plain numbers that stand for absent operands stay unchanged.
        const tensors = inputs.filter((t) => t.storage !== null);
        const withNumbers = (given: readonly Tensor[]): Tensor[] =>
          inputs.map((t) => (t.storage === null ? t : (given[tensors.indexOf(t)] as Tensor)));
        assert.ok(
          autograd.gradcheck(
            (...given) => outputsOf(op, withNumbers(given), sample.params),
            tensors,
          ),
        );
      }
    });
  }
});

describe('the decomposition of every op that has one', () => {
  for (const op of ownOps()) {
    if (op.decompose === null) continue;
    const decompose = op.decompose as (
      inputs: readonly Tensor[],
      params: object,
    ) => readonly Tensor[];
    const samples = op.samples() as Sample<object>[];
    if (samples.length === 0) continue;
    it(`computes the same as the kernel for ${op.name}`, () => {
      for (const { inputs, params } of samples) {
        const [kernel, parts] = [dispatch(op, inputs, params), decompose(inputs, params)];
        parts.forEach((part, i) => {
          assert.ok(
            part.allclose(kernel[i] as Tensor, { rtol: 1e-4, atol: 1e-5 }),
            `${op.name} output ${i}`,
          );
        });
      }
    });
  }
});
