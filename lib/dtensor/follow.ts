/** Decides how an op on lists runs, where each input follows another: optimizer steps, each parameter placed in its own way. */
import { ShardingError } from '../core/errors.js';
import type { FollowRule } from '../core/sharding-rule.js';
import type { Decision } from './decide.js';
import type { OpCall } from './op-call.js';
import { type DTensorSpec, internSpec } from './spec.js';

/** @throws ShardingError for a leader that holds terms of a reduction that the op cannot run on */
export function decideFollowing(call: OpCall, rule: FollowRule<object>): Decision {
  const leaders = rule.leaders(call.inputs, call.params);
  const inputs = call.specs.map((spec, i) => {
    const leader = call.specs[leaders[i] as number];
    if (spec === null || leader === null || leader === undefined || leader === spec) return spec;
    return internSpec(spec.mesh, leader.placements, leader.order, spec.tensorMeta);
  });
  leaders.forEach((leader, i) => {
    if (leader === i) checkTerms(call, rule, i);
  });
  return { inputs, outputs: [], strategies: [], run: null, needsRedistribute: inputs.some((spec, i) => spec !== call.specs[i]), fallback: 'none' };
}

function checkTerms({ op, specs }: OpCall, { terms }: FollowRule<object>, i: number): void {
  const spec = specs[i] as DTensorSpec | null;
  const term = spec?.placements.find((placement) => placement.isPartial());
  if (!term?.isPartial() || terms.includes(term.reduceOp)) return;
  throw new ShardingError(
    `${op.name}: input ${i} holds terms of a reduction that is still to be done, and it would be changed as if it were done. Redistribute it to Replicate() first.\n  ${spec}`,
    {
      op: op.name,
      spec: String(spec),
    },
  );
}
