/**
 * The DTensor layer of the dispatcher: an op on distributed tensors becomes an op on the local
 * shard of each rank. Layers below see plain tensors and collectives only.
 *
 * An op passes through the files of this folder in this order:
 *
 * 1. `dtensor-layer.ts` collects the specs of the inputs. Factories go to `factory-dispatch.ts`,
 *    ops on lists to `foreach.ts`, and redistribute, toLocal and fromLocal to `ops.ts`.
 * 2. `propagation/propagate.ts` looks for the decision in its cache; the key is the op, its params
 *    (`cache-key.ts`) and the ids of the specs (`spec/spec.ts`).
 * 3. On a miss, `propagation/decision.ts` decides: `strategies.ts` chooses a strategy of the op's
 *    sharding rule (`lib/ops/sharding`) for each mesh dim by the cost of redistribution
 *    (`redistribute/cost.ts`), and `operand-specs.ts` computes the spec of each operand.
 * 4. `redistribute/run.ts` redistributes the inputs by the steps of `redistribute/plan.ts`. Its
 *    collectives (`lib/ops/collectives.ts`) are ops, and call the process group of a mesh dim.
 * 5. The op, or the `run` of the strategy, computes on the local shards, and `createDTensor` in
 *    `ops.ts` wraps the results. An op without a fitting strategy runs as its decomposition, whose
 *    ops begin at 1.
 */

import type { TensorOrigin } from '../core/backend.js';
import { decomposed } from '../core/decompose.js';
import { belowDTensor } from '../core/dispatch.js';
import { InPlaceError, ShardingError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import type { AnyOp } from '../core/op.js';
import { belongsToOtherRank, otherRankError } from '../core/rank-runtime.js';
import { formatShape } from '../core/shape.js';
import type { ShardedCall } from '../core/sharding-rule.js';
import type { Tensor } from '../core/tensor.js';
import { isPendingFactory, runPendingFactory } from './factory-dispatch.js';
import { runForeach } from './foreach.js';
import { createDTensor } from './ops.js';
import { type Decision, propagate } from './propagation/propagate.js';
import {
  checkImplicit,
  nameCaller,
  runDecomposition,
  warnReplicated,
} from './redistribute/policy.js';
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
    return into === null && isPendingFactory(inputs)
      ? runPendingFactory(op, params)
      : belowDTensor(op, inputs, params, into);
  const { spec, local } = shard;
  if (belongsToOtherRank(local.device.runtime))
    throw otherRankError(op.name, `the distributed tensor ${spec}`, local.device.runtime);
  checkAlive(op, inputs, into);
  if (op.compute !== null && op.traits.includes('placement')) return op.compute(inputs, params);
  if (op.traits.includes('communicates')) return belowDTensor(op, inputs, params, into);
  if (op.traits.includes('collective')) throw collectiveError(op);
  const follows = op.sharding?.follows;
  if (follows !== undefined) return runForeach(op, inputs, params, follows);
  try {
    return runSharded(op, inputs, params, into, spec);
  } catch (error) {
    throw nameCaller(error);
  }
}

/**
 * A disposed tensor must not be read through its local shard, whose memory other tensors may keep.
 * @throws FreedError
 */
function checkAlive(op: AnyOp, inputs: readonly Tensor[], into: Tensor | null): void {
  for (let i = 0; i < inputs.length; i++) {
    const t = inputs[i] as Tensor;
    if (t.disposed) t.liveStorage(op.name);
  }
  if (into?.disposed) into.liveStorage(op.name);
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
  if (into !== null && target === null) throw mixedError(op, inputs, into);
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

/**
 * Marks a result that should be a view but does not share memory with its base. A rank outside of
 * the mesh has nothing to share.
 */
function markView(view: Tensor, of: Tensor): void {
  const [shard, whole] = [localShardOf(view), localShardOf(of)];
  if (shard === null || whole === null) return;
  shard.noView =
    whole.noView ??
    (view.storage === of.storage || whole.spec.mesh.getCoordinate() === null
      ? null
      : `it is a view of a tensor placed as ${formatPlacements(whole.spec.placements)} whose ` +
        'data had to be moved for it');
}

/** @throws InPlaceError for a tensor that should be a view but has its own memory */
function checkIsView(op: AnyOp, { noView }: LocalShard): void {
  if (noView === null) return;
  throw new InPlaceError(
    `${op.name}: this tensor cannot be changed in place: ${noView}, so it has its own ` +
      'memory. Use the out-of-place op, or change a clone().',
    {
      op: op.name,
    },
  );
}

/**
 * The spec of each input; null for numbers. A plain 0-d tensor counts as replicated, and so does
 * one that a captured step makes.
 */
function specsOf(op: AnyOp, inputs: readonly Tensor[], found: DTensorSpec): Specs {
  const specs: (DTensorSpec | null)[] = [];
  for (let i = 0; i < inputs.length; i++) {
    const t = inputs[i] as Tensor;
    const shard = localShardOf(t);
    if (shard !== null) specs.push(shard.spec);
    else if (t.storage === null) specs.push(null);
    else if (t.sizes.length === 0 || originOf(t) === 'made') {
      layers.backend.capture?.countsAsReplicated(t);
      specs.push(replicatedSpec(found.mesh, t));
    } else throw mixedError(op, inputs, t);
  }
  return specs;
}

/** Where a captured step has a tensor from; null outside of captures. */
const originOf = (t: Tensor): TensorOrigin | null => layers.backend.capture?.originOf(t) ?? null;

const ORIGIN_ADVICE: Readonly<Record<TensorOrigin, string>> = {
  made:
    'The step makes it, and writes what is distributed into it: call the op that returns its ' +
    'result, or make it beside a distributed tensor, such as by newZeros or zerosLike of one.',
  drawn:
    'It has random numbers that the step draws, and other ones on each rank: draw beside a ' +
    'distributed tensor, such as by randLike(x) or randnLike(x), or outside of the step.',
  other: '',
};

function mixedError(op: AnyOp, inputs: readonly Tensor[], plain: Tensor): ShardingError {
  const lines = inputs.map((t, i) => `  input ${i}: ${describe(t)}`);
  const at = inputs.indexOf(plain);
  const origin = originOf(plain);
  const advice = [ORIGIN_ADVICE[origin ?? 'other'], adviceOf(inputs)].filter(Boolean);
  return new ShardingError(
    `${op.name}: expected distributed tensors, got a plain one as ` +
      `${at < 0 ? 'the tensor to write into' : `input ${at}`} (${describe(plain)}). Distribute ` +
      'it with distributeTensor(t, mesh, [Replicate(), …]) if every rank has the same values, ' +
      'with DTensor.fromLocal if each rank has its shard, or pass toLocal() of the others.\n' +
      [...lines, ...advice.map((text) => `  ${text}`)].join('\n'),
    { op: op.name, plain: describe(plain), ...(origin !== null && { origin }) },
  );
}

/** What those who sharded a tensor say of its use. */
function adviceOf(inputs: readonly Tensor[]): string {
  for (const t of inputs) {
    const local = localShardOf(t)?.local;
    const advice = local?.storage?.explained(local.storageOffset) ?? null;
    if (advice !== null) return advice;
  }
  return '';
}

function collectiveError(op: AnyOp): ShardingError {
  return new ShardingError(
    `${op.name}: expected a plain tensor, got a distributed one. Use redistribute to ` +
      'communicate between its ranks, or pass toLocal().',
    {
      op: op.name,
    },
  );
}

function describe(t: Tensor): string {
  if (t.storage === null) return `the number ${t.scalarValue}`;
  return t.sharding === null
    ? `plain ${t.dtype.name}${formatShape(t.sizes)}`
    : String(t.sharding.spec);
}

/** Runs the decomposition on the distributed tensors, through ops that have rules. */
function runDecomposed(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  const plain = inputs.map((t) => (t.requiresGrad ? t.detach() : t));
  const outputs = runDecomposition(op.name, () =>
    decomposed(op, plain, params, op.sharding?.decompose ?? op.decompose),
  );
  if (into === null) return [...outputs];
  into.copy_(outputs[0] as Tensor);
  return [into];
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

/** The local shards of this rank in a call, by decision, because cached decisions are reused. */
const calls = new WeakMap<Decision, ShardedCall>();

function shardedCallOf(decision: Decision, found: DTensorSpec): ShardedCall {
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
    const outputs = run(locals, params, shardedCallOf(decision, found));
    if (target !== null) target.local.copy_(outputs[0] as Tensor);
    return outputs;
  }
  const localParams =
    adapts && decision.fallback === 'none'
      ? (op.sharding as NonNullable<AnyOp['sharding']>).localParams?.(
          params,
          shardedCallOf(decision, found),
        )
      : params;
  if (op.view !== null && target === null)
    return viewLocal(op, inputs[0] as Tensor, locals[0] as Tensor, localParams as object);
  return belowDTensor(op, locals, localParams as object, target === null ? null : target.local);
}

/**
 * A view that is possible for the strides of the whole tensor may be impossible for those of the
 * local shard, so a shard that is not contiguous is copied if the whole tensor would be contiguous.
 */
function viewLocal(op: AnyOp, whole: Tensor, local: Tensor, params: object): readonly Tensor[] {
  return belowDTensor(
    op,
    [whole.isContiguous() && !local.isContiguous() ? local.contiguous() : local],
    params,
    null,
  );
}

/** A rank outside of the mesh has empty shards and computes nothing. */
function outsideMesh(
  locals: readonly Tensor[],
  decision: Decision,
  target: LocalShard | null,
): readonly Tensor[] {
  if (target !== null) return [];
  const some = locals.find((t) => t.storage !== null) as Tensor;
  return decision.outputs.map((spec) => some.newEmpty([0], { dtype: spec.dtype }));
}
