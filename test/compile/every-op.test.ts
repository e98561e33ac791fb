/** Every op of the table has, compiled, the values, gradients and layouts that it has eagerly. */
import { dispatch } from '../../lib/core/dispatch.js';
import type { AnyOp, Sample } from '../../lib/core/op.js';
import { compile, manualSeed, type Tensor } from '../../lib/index.js';
import { isVariable, ownOps } from '../every-op/differentiable.js';
import { assertSame, backends } from './backends.js';

type Fn = (...given: Tensor[]) => Tensor[];

/** The op as a function of the tensors among its operands. */
function functionOf(op: AnyOp, { inputs, params }: Sample<object>): Fn {
  return (...given) => {
    let next = 0;
    const operands = inputs.map((t) => (t.storage === null ? t : (given[next++] as Tensor)));
    return dispatch(op, operands, params);
  };
}

/** What a caller sees of one call. */
function observed(op: AnyOp, sample: Sample<object>, fn: Fn): unknown {
  manualSeed(3);
  const given = sample.inputs
    .filter((t) => t.storage !== null)
    .map((t) => (op.vjp !== null && isVariable(t) ? t.detach().requiresGrad_() : t.detach()));
  const outputs = fn(...given);
  const tracked = outputs.filter((t) => t.requiresGrad);
  const losses = tracked.map((t) => t.mul(t.detach()).sum());
  if (losses.length > 0) losses.reduce((sum, t) => sum.add(t)).backward();
  return {
    values: outputs.map((t) => t.detach().tolist()),
    layouts: outputs.map((t) => [t.dtype.name, t.shape, t.strides, t.requiresGrad, t.isLeaf]),
    objects: outputs.map((t) => given.indexOf(t)),
    memory: outputs.map((t) => given.findIndex((a) => a.untypedStorage() === t.untypedStorage())),
    gradients: given.map((t) => t.grad?.tolist() ?? null),
  };
}

describe('every op, compiled,', () => {
  for (const op of ownOps()) {
    if (op.samples().length === 0 || op.traits.includes('collective')) continue;
    for (const backend of backends)
      it(`equals the op run eagerly by ${backend}: ${op.name}`, function () {
        this.timeout(60_000);
        for (const sample of op.samples() as Sample<object>[]) {
          const fn = functionOf(op, sample);
          const compiled = compile(fn, { backend });
          const expected = observed(op, sample, fn);
          for (const call of ['capture', 'replay'])
            assertSame(observed(op, sample, compiled), expected, backend, call);
        }
      });
  }
});
