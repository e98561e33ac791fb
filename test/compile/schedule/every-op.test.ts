/** A plan of any op of the table computes what the op computes. */
import assert from 'node:assert/strict';
import { dispatch } from '../../../lib/core/dispatch.js';
import type { AnyOp, Sample } from '../../../lib/core/op.js';
import type { Tensor } from '../../../lib/index.js';
import { ownOps } from '../../every-op/differentiable.js';
import { assertSameAsSteps } from './lowered.js';

/** Calls the op with the tensors among its operands given. */
function programOf(op: AnyOp, { inputs, params }: Sample<object>) {
  const tensors = inputs.filter((t) => t.storage !== null);
  const call = (into: number, ...given: Tensor[]): Tensor[] => {
    let next = 0;
    const operands = inputs.map((t) => (t.storage === null ? t : (given[next++] as Tensor)));
    return dispatch(op, operands, params, into < 0 ? null : (given[into] as Tensor));
  };
  return { tensors, call };
}

describe('a plan of one op', () => {
  for (const op of ownOps()) {
    const samples = op.samples();
    if (samples.length === 0) continue;
    it(`has the results of the op for ${op.name}`, () => {
      for (const sample of samples) {
        const { tensors, call } = programOf(op, sample);
        const plan = assertSameAsSteps((...given) => call(-1, ...given), tensors);
        if (op.compute === null && op.name !== 'toDevice') assert.equal(plan.summary.single, 0);
      }
    });
  }

  for (const op of ownOps()) {
    if (op.pointwise === null) continue;
    it(`writes in place what the op writes for ${op.name}`, () => {
      for (const sample of op.samples()) {
        const { tensors, call } = programOf(op, sample);
        const [y] = call(-1, ...tensors) as [Tensor];
        const at = tensors.findIndex(
          (t) => t.shape.join() === y.shape.join() && t.dtype === y.dtype,
        );
        if (at >= 0) assertSameAsSteps((...given) => call(at, ...given), tensors);
      }
    });
  }
});
