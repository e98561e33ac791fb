/**
 * Foreach ops on distributed tensors, such as an optimizer step on all parameters. The tensors of a
 * list are independent: each is brought to the placements of its leader, so plain tensors and
 * tensors of several meshes may be in one list, and there is no common decision.
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
 * Runs the op on the local shards of this rank.
 *
 * @throws ShardingError if a tensor is plain and its leader is distributed, or the reverse
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
    else if (shard === null || leaderShard === null) throw mismatchError(op, t, leader);
    else
      locals.push(
        toLeader(
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

/** The placements of the leader, with Partial reduced unless the op keeps that reduction. */
function wantedSpec(spec: DTensorSpec, leader: DTensorSpec, { reductions }: Follows): DTensorSpec {
  if (spec === leader && !spec.placements.some((placement) => placement.isPartial())) return spec;
  const placements = leader.placements.map((placement) =>
    placement.isPartial() && !reductions.includes(placement.reduceOp) ? Replicate() : placement,
  );
  return placeSpec(spec, placements, leader.order);
}

function toLeader(
  op: AnyOp,
  { local, spec }: LocalShard,
  wanted: DTensorSpec,
  isOverwritten: boolean,
  i: number,
): Tensor {
  if (spec === wanted) return local;
  if (isOverwritten) {
    throw new ShardingError(
      `${op.name}: it overwrites input ${i}, ${spec}, which would have to be redistributed ` +
        `to [${wanted.placements.join(', ')}]. Redistribute it before the call.`,
      { op: op.name },
    );
  }
  checkImplicit(op.name, [spec], [wanted]);
  return moveInput(op, i, local, spec, wanted);
}

function mismatchError(op: AnyOp, t: Tensor, leader: Tensor): ShardingError {
  const [given, needed] = [t, leader].map((each) =>
    each.sharding === null ? 'a plain tensor' : String(each.sharding.spec),
  );
  return new ShardingError(
    `${op.name}: expected distributed tensors, got a plain one where its parameter is ` +
      `distributed, or the reverse: ${given} goes with ${needed}. ` +
      'A state or a gradient needs the placements of its parameter: parallelize the model ' +
      'before the first step, or distribute the state with distributeTensor.',
    { op: op.name },
  );
}
