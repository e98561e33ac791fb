/**
 * The middle layer of the dispatcher: an op on distributed tensors becomes an op on the part that
 * each rank holds, after inputs were redistributed where the op's sharding rule asks for that.
 * Below it there are plain tensors and collectives only.
 */
import { decomposed } from '../core/decompose.js';
import { belowDTensor } from '../core/dispatch.js';
import { InPlaceError, ShardingError } from '../core/errors.js';
import { isAnothers, usedByAnother } from '../core/home.js';
import type { AnyOp } from '../core/op.js';
import { formatShape } from '../core/shape.js';
import type { ShardedCall } from '../core/sharding-rule.js';
import type { Tensor } from '../core/tensor.js';
import { createShard, isFactoryCall } from './factory-dispatch.js';
import { runForeach } from './foreach.js';
import { createDTensor } from './ops.js';
import { type Decision, propagate } from './propagation/propagate.js';
import { calledAs } from './redistribute/called-as.js';
import { checkImplicit, decomposing, warnReplicated } from './redistribute/policy.js';
import { moveInput } from './redistribute/run.js';
import { type LocalShard, localShardOf } from './spec/local-shard.js';
import { shardAt } from './spec/shard-geometry.js';
import { type DTensorSpec, formatPlacements, replicatedSpec } from './spec/spec.js';

type Specs = readonly (DTensorSpec | null)[];

export function dtensorLayer(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  let shard = into === null ? null : localShardOf(into);
  for (let i = 0; shard === null && i < inputs.length; i++)
    shard = localShardOf(inputs[i] as Tensor);
  if (shard === null)
    return into === null && isFactoryCall(inputs)
      ? createShard(op, params)
      : belowDTensor(op, inputs, params, into);
  const { spec, local } = shard;
  if (isAnothers(local.device.home))
    throw usedByAnother(op.name, `the distributed tensor ${spec}`, local.device.home);
  if (op.compute !== null && op.traits.includes('placement')) return op.compute(inputs, params);
  if (op.traits.includes('collective')) throw collective(op);
  const follows = op.sharding?.follows;
  if (follows !== undefined) return runForeach(op, inputs, params, follows);
  try {
    return runSharded(op, inputs, params, into, spec);
  } catch (error) {
    throw calledAs(error, null);
  }
}

function runSharded(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
  found: DTensorSpec,
): Tensor[] {
  const specs = specsOf(op, inputs, found);
  const target = into === null ? null : localShardOf(into);
  if (into !== null && target === null) throw mixed(op, inputs, into);
  if (target !== null) checkIsView(op, target);
  const decision = propagate(op, inputs, specs, params, target === null ? null : target.spec);
  if (decision.needsRedistribute) checkImplicit(op.name, specs, decision.inputs);
  if (decision.fallback === 'decompose') return runDecomposed(op, inputs, params, into);
  if (decision.fallback === 'replicate') warnReplicated(op.name);
  const locals = localInputs(op, inputs, specs, decision);
  const outputs = runLocal(op, inputs, locals, params, target, decision, found);
  if (into !== null) return [into];
  const results: Tensor[] = [];
  for (let i = 0; i < outputs.length; i++)
    results.push(createDTensor(outputs[i] as Tensor, decision.outputs[i] as DTensorSpec));
  if (op.view !== null) markView(results[0] as Tensor, inputs[0] as Tensor);
  return results;
}

/** Says of a result that has other memory than what it should be a view of. */
function markView(view: Tensor, of: Tensor): void {
  const [shard, whole] = [localShardOf(view), localShardOf(of)];
  if (shard === null || whole === null) return;
  shard.noView =
    whole.noView ??
    (view.storage === of.storage
      ? null
      : `it is a view of a tensor placed as ${formatPlacements(whole.spec.placements)} whose data had to be moved for it`);
}

/** @throws InPlaceError for what should be a view and is none */
function checkIsView(op: AnyOp, { noView }: LocalShard): void {
  if (noView === null) return;
  throw new InPlaceError(
    `${op.name}: this tensor cannot be changed in place: ${noView}, so it has its own memory. Use the out-of-place op, or change a clone().`,
    {
      op: op.name,
    },
  );
}

/** Of each input; null for numbers. A plain tensor without dims counts as replicated. */
function specsOf(op: AnyOp, inputs: readonly Tensor[], found: DTensorSpec): Specs {
  const specs: (DTensorSpec | null)[] = [];
  for (let i = 0; i < inputs.length; i++) {
    const t = inputs[i] as Tensor;
    const shard = localShardOf(t);
    if (shard !== null) specs.push(shard.spec);
    else if (t.storage === null) specs.push(null);
    else if (t.shape.length === 0) specs.push(replicatedSpec(found.mesh, t));
    else throw mixed(op, inputs, t);
  }
  return specs;
}

function mixed(op: AnyOp, inputs: readonly Tensor[], plain: Tensor): ShardingError {
  const lines = inputs.map((t, i) => `  input ${i}: ${describe(t)}`);
  const at = inputs.indexOf(plain);
  return new ShardingError(
    `${op.name}: expected distributed tensors, got a plain one as ${at < 0 ? 'the tensor to write into' : `input ${at}`} (${describe(plain)}). Distribute it with distributeTensor(t, mesh, [Replicate(), …]) if every rank has the same values, with DTensor.fromLocal if each rank has its shard, or pass toLocal() of the others.\n${lines.join('\n')}`,
    { op: op.name },
  );
}

function collective(op: AnyOp): ShardingError {
  return new ShardingError(
    `${op.name}: expected a plain tensor, got a distributed one. Use redistribute to communicate between its ranks, or pass toLocal().`,
    {
      op: op.name,
    },
  );
}

function describe(t: Tensor): string {
  if (t.storage === null) return `the number ${t.scalarValue}`;
  return t.sharding === null
    ? `plain ${t.dtype.name}${formatShape(t.shape)}`
    : String(t.sharding.spec);
}

/** Runs on the whole tensors in ops that have rules. */
function runDecomposed(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  const plain = inputs.map((t) => (t.requiresGrad ? t.detach() : t));
  const outputs = decomposing(op.name, () => decompose(op, plain, params));
  if (into === null) return [...outputs];
  into.copy_(outputs[0] as Tensor);
  return [into];
}

function decompose(op: AnyOp, plain: readonly Tensor[], params: object): readonly Tensor[] {
  try {
    return decomposed(op, plain, params);
  } catch (error) {
    throw calledAs(error, op.name);
  }
}

function localInputs(
  op: AnyOp,
  inputs: readonly Tensor[],
  specs: Specs,
  decision: Decision,
): Tensor[] {
  const locals: Tensor[] = [];
  for (let i = 0; i < inputs.length; i++) {
    const t = inputs[i] as Tensor;
    const shard = localShardOf(t);
    const [spec, needed] = [specs[i], decision.inputs[i]];
    const local = shard === null ? t : shard.local;
    if (spec === needed || !spec || !needed) locals.push(local);
    else locals.push(moveInput(op, i, local, spec, needed));
  }
  return locals;
}

/** What a decision says of this rank's part; the same for every call that it is found again for. */
const calls = new WeakMap<Decision, ShardedCall>();

function callOf(decision: Decision, found: DTensorSpec): ShardedCall {
  let call = calls.get(decision);
  if (call === undefined) {
    const coordinate = found.mesh.getCoordinate();
    const number = { shape: [], offsets: [], globalShape: [] };
    call = {
      inputs: decision.inputs.map((spec) => (spec === null ? number : shardAt(spec, coordinate))),
      outputs: decision.outputs.map((spec) => shardAt(spec, coordinate)),
    };
    calls.set(decision, call);
  }
  return call;
}

function runLocal(
  op: AnyOp,
  inputs: readonly Tensor[],
  locals: readonly Tensor[],
  params: object,
  target: LocalShard | null,
  decision: Decision,
  found: DTensorSpec,
): readonly Tensor[] {
  const { run } = decision;
  const adapts = op.sharding?.localParams !== undefined;
  if (found.mesh.getCoordinate() === null) return outsideMesh(locals, decision, target);
  if (run !== null) {
    const outputs = run(locals, params, callOf(decision, found));
    if (target !== null) target.local.copy_(outputs[0] as Tensor);
    return outputs;
  }
  const own =
    adapts && decision.fallback === 'none'
      ? (op.sharding as NonNullable<AnyOp['sharding']>).localParams?.(
          params,
          callOf(decision, found),
        )
      : params;
  if (op.view !== null && target === null)
    return viewLocal(op, inputs[0] as Tensor, locals[0] as Tensor, own as object);
  return belowDTensor(op, locals, own as object, target === null ? null : target.local);
}

/**
 * A part may lie otherwise in memory than the whole would: then it is copied, because a view that
 * fits the whole may not fit it.
 */
function viewLocal(op: AnyOp, whole: Tensor, local: Tensor, params: object): readonly Tensor[] {
  return belowDTensor(
    op,
    [whole.isContiguous() && !local.isContiguous() ? local.contiguous() : local],
    params,
    null,
  );
}

/** A rank outside of the mesh holds nothing and computes nothing. */
function outsideMesh(
  locals: readonly Tensor[],
  decision: Decision,
  target: LocalShard | null,
): readonly Tensor[] {
  if (target !== null) return [];
  const some = locals.find((t) => t.storage !== null) as Tensor;
  return decision.outputs.map((spec) => some.newEmpty([0], { dtype: spec.dtype }));
}
