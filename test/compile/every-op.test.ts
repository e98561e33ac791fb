/**
 * Every op of the table, and every function made of ops, has compiled the values, gradients and
 * layouts that it has eagerly.
 */
import { dispatch } from '../../lib/core/dispatch.js';
import type { AnyOp, Sample } from '../../lib/core/op.js';
import { compile, manualSeed, type Tensor, tree } from '../../lib/index.js';
import { allComposites, type Composite } from '../../lib/ops/composite.js';
import { isVariable, ownOps } from '../every-op/differentiable.js';
import { assertSame, backends } from './backends.js';

type Fn = (...given: Tensor[]) => unknown;

/** The op as a function of the tensors among its operands. */
function ofOp(op: AnyOp, { inputs, params }: Sample<object>): Fn {
  return (...given) => {
    let next = 0;
    const operands = inputs.map((t) => (t.storage === null ? t : (given[next++] as Tensor)));
    return dispatch(op, operands, params);
  };
}

/** The function of the tensors among its arguments. */
function ofComposite({ fn }: Composite, args: readonly unknown[]): Fn {
  return (...given) => {
    let next = 0;
    const all = tree.map(() => given[next++] as Tensor, args) as unknown[];
    return (fn as (...all: unknown[]) => unknown)(...all);
  };
}

/** What a caller sees of one call. */
function observed(inputs: readonly Tensor[], tracks: boolean, fn: Fn): unknown {
  manualSeed(3);
  const given = inputs.map((t) =>
    tracks && isVariable(t) ? t.detach().requiresGrad_() : t.detach(),
  );
  const result = fn(...given);
  const outputs = tree.tensors(result);
  const tracked = outputs.filter((t) => t.requiresGrad && t.dtype.isFloatingPoint);
  const losses = tracked.map((t) => t.mul(t.detach()).sum());
  if (losses.length > 0) losses.reduce((sum, t) => sum.add(t)).backward();
  return {
    values: outputs.map((t) => t.detach().tolist()),
    layouts: outputs.map((t) => [t.dtype.name, t.shape, t.strides, t.requiresGrad, t.isLeaf]),
    objects: outputs.map((t) => given.indexOf(t)),
    memory: outputs.map((t) => given.findIndex((a) => a.untypedStorage() === t.untypedStorage())),
    gradients: given.map((t) => t.grad?.tolist() ?? null),
    plain: outputs.length === 0 ? result : null,
  };
}

describe('every op, compiled,', () => {
  for (const op of ownOps()) {
    if (op.samples().length === 0 || op.traits.includes('collective')) continue;
    for (const backend of backends)
      it(`equals the op run eagerly by ${backend}: ${op.name}`, function () {
        this.timeout(60_000);
        for (const sample of op.samples() as Sample<object>[]) {
          const fn = ofOp(op, sample);
          const compiled = compile(fn, { backend, fullgraph: true });
          const inputs = sample.inputs.filter((t) => t.storage !== null);
          const expected = observed(inputs, op.vjp !== null, fn);
          for (const call of ['capture', 'replay'])
            assertSame(observed(inputs, op.vjp !== null, compiled), expected, backend, call);
        }
      });
  }
});

describe('every function made of ops, compiled,', () => {
  for (const composite of allComposites())
    for (const backend of backends)
      it(`equals the function run eagerly by ${backend}: ${composite.name}`, function () {
        this.timeout(60_000);
        for (const args of composite.samples()) {
          const fn = ofComposite(composite, args);
          const compiled = compile(fn, { backend, fullgraph: !composite.readsValues });
          const inputs = tree.tensors(args);
          const expected = observed(inputs, true, fn);
          for (const call of ['capture', 'replay'])
            assertSame(observed(inputs, true, compiled), expected, backend, call);
        }
      });
});
