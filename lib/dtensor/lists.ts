/**
 * Ops on lists of tensors that have nothing to do with one another, as a step of an optimizer: each tensor stays as it is held, those that
 * go with it become alike, and every rank runs the op on what it holds. Tensors of one call may live on several meshes, or be plain.
 */
import { belowDTensor } from '../core/dispatch.js';
import { ShardingError } from '../core/errors.js';
import type { AnyOp } from '../core/op.js';
import type { FollowRule } from '../core/sharding-rule.js';
import type { Tensor } from '../core/tensor.js';
import { type LocalPart, partOf } from './local-part.js';
import { redistributeLocal } from './redistribute-local.js';
import { because, checkImplicit } from './redistribution.js';
import { type DTensorSpec, formatPlacements, heldAlike, internSpec } from './spec.js';

/** What a call has beside its inputs. */
interface ListCall {
  readonly op: AnyOp;
  readonly rule: FollowRule<object>;
  readonly inputs: readonly Tensor[];
  readonly overwritten: readonly number[];
}

/** @throws ShardingError where a tensor that is overwritten would have to change its placement, and for plain tensors that go with distributed ones */
export function runLists(op: AnyOp, rule: FollowRule<object>, inputs: readonly Tensor[], params: object): Tensor[] {
  const leaders = rule.leaders(inputs, params);
  const call: ListCall = { op, rule, inputs, overwritten: op.mutates?.(inputs, params) ?? [] };
  const locals: Tensor[] = [];
  for (let i = 0; i < inputs.length; i++) locals.push(localOf(call, i, leaders[i] as number));
  return belowDTensor(op, locals, params, null);
}

function localOf(call: ListCall, i: number, leader: number): Tensor {
  const t = call.inputs[i] as Tensor;
  if (t.storage === null) return t;
  const [part, leading] = [partOf(t), partOf(call.inputs[leader] as Tensor)];
  if (part === null && leading === null) return t;
  if (part === null || leading === null) throw mixed(call, i, leader);
  if (i === leader) return ledBy(call, i, part);
  return heldAlike(part.spec, leading.spec) ? part.local : followed(call, i, part, leading.spec);
}

/** A leader stays as it is: its terms must be ones that the op can work on. */
function ledBy({ op, rule }: ListCall, i: number, part: LocalPart): Tensor {
  const wrong = part.spec.placements.find((placement) => placement.isPartial() && !rule.terms.includes(placement.reduceOp));
  if (wrong === undefined) return part.local;
  throw new ShardingError(`${op.name}: input ${i} is held as ${formatPlacements(part.spec.placements)}, and it cannot work on the terms of ${wrong}. Redistribute it first.`, {
    op: op.name,
    input: i,
  });
}

function followed({ op, overwritten }: ListCall, i: number, { local, spec }: LocalPart, leader: DTensorSpec): Tensor {
  const target = internSpec(leader.mesh, leader.placements, leader.order, spec.tensorMeta);
  const text = `${op.name}: input ${i} from ${formatPlacements(spec.placements)} to ${formatPlacements(target.placements)}`;
  if (overwritten.includes(i))
    throw new ShardingError(`${text}: it is overwritten, so it must be held as what it goes with. Redistribute one of them first.`, { op: op.name, input: i });
  checkImplicit(op.name, [spec], [target]);
  return because(text, () => redistributeLocal(local, spec, target));
}

function mixed({ op, inputs }: ListCall, i: number, leader: number): ShardingError {
  const describe = (at: number): string => `input ${at} is ${partOf(inputs[at] as Tensor)?.spec ?? 'a plain tensor'}`;
  return new ShardingError(`${op.name}: expected both to be distributed, or neither: ${describe(leader)}, and ${describe(i)}, which goes with it.`, { op: op.name, input: i });
}
