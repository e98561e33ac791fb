/**
 * Ops on lists whose members have nothing to do with one another, as the parameters of an optimizer
 * step. Each member runs as its leader is held, so plain tensors and tensors of several meshes may
 * stand in one list; nothing has to be decided for all.
 */
import { belowDTensor } from '../core/dispatch.js';
import { ShardingError } from '../core/errors.js';
import type { AnyOp } from '../core/op.js';
import { Replicate } from '../core/placement.js';
import type { FollowRule } from '../core/sharding-rule.js';
import type { Tensor } from '../core/tensor.js';
import { checkImplicit } from './redistribute/policy.js';
import { moveInput } from './redistribute/run.js';
import { type LocalShard, localShardOf } from './spec/local-shard.js';
import { type DTensorSpec, placeSpec } from './spec/spec.js';

type Follows = FollowRule<object>;

/**
 * Runs the op on what this rank holds of each tensor. @throws ShardingError for a member that is
 * plain where its leader is not
 */
export function runForeach(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  follows: Follows,
): Tensor[] {
  const leaders = follows.leaders(inputs, params);
  const overwritten = new Set(op.mutates?.(inputs, params) ?? []);
  const locals: Tensor[] = [];
  for (let i = 0; i < inputs.length; i++) {
    const [t, leader] = [inputs[i] as Tensor, inputs[leaders[i] as number] as Tensor];
    const [shard, leaderShard] = [localShardOf(t), localShardOf(leader)];
    if (t.storage === null || (shard === null && leaderShard === null)) locals.push(t);
    else if (shard === null || leaderShard === null) throw apart(op, t, leader);
    else
      locals.push(
        followed(
          op,
          shard,
          wantedSpec(shard.spec, leaderShard.spec, follows),
          overwritten.has(i),
          i,
        ),
      );
  }
  return belowDTensor(op, locals, params, null);
}

/**
 * As the leader is held; where that is in terms of a reduction that the op does not pass through,
 * reduced.
 */
function wantedSpec(spec: DTensorSpec, leader: DTensorSpec, { reductions }: Follows): DTensorSpec {
  if (spec === leader && !spec.placements.some((placement) => placement.isPartial())) return spec;
  const placements = leader.placements.map((placement) =>
    placement.isPartial() && !reductions.includes(placement.reduceOp) ? Replicate() : placement,
  );
  return placeSpec(spec, placements, leader.order);
}

function followed(
  op: AnyOp,
  { local, spec }: LocalShard,
  wanted: DTensorSpec,
  isOverwritten: boolean,
  i: number,
): Tensor {
  if (spec === wanted) return local;
  if (isOverwritten) {
    throw new ShardingError(
      `${op.name}: it overwrites input ${i}, ${spec}, which would have to be redistributed to [${wanted.placements.join(', ')}]. Redistribute it before the call.`,
      { op: op.name },
    );
  }
  checkImplicit(op.name, [spec], [wanted]);
  return moveInput(op, i, local, spec, wanted);
}

function apart(op: AnyOp, t: Tensor, leader: Tensor): ShardingError {
  const [given, needed] = [t, leader].map((each) =>
    each.sharding === null ? 'a plain tensor' : String(each.sharding.spec),
  );
  return new ShardingError(
    `${op.name}: expected distributed tensors, got a plain one where its parameter is distributed, or the reverse: ${given} goes with ${needed}. ` +
      'A state or a gradient needs the placements of its parameter: parallelize the model before the first step, or distribute the state with distributeTensor.',
    { op: op.name },
  );
}
