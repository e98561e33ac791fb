/** Driven by the op table: second derivatives agree with finite differences, and where there are none, asking is an error. */
import assert from 'node:assert/strict';
import { autograd, type Tensor } from '../../lib/index.js';
import { differentiableOps, float64Samples, isVariable, outputsOf } from './differentiable.js';

describe('the second gradient of every op in the table', () => {
  for (const op of differentiableOps()) {
    it(`agrees with finite differences for ${op.name}`, function () {
      this.timeout(20_000);
      for (const { inputs, params } of float64Samples(op)) {
        const variables = inputs.filter(isVariable).map((t) => t.detach().requiresGrad_());
        const withVariables = (given: readonly Tensor[]): Tensor[] => {
          let next = 0;
          return inputs.map((t) => (isVariable(t) ? (given[next++] as Tensor) : t));
        };
        assert.ok(autograd.gradgradcheck((...given) => outputsOf(op, withVariables(given), params), variables));
      }
    });
  }
});
