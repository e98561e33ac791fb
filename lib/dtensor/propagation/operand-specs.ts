/**
 * Computes the specs of operands from strategies. Dims that a strategy shards together have
 * matching shards only if the mesh dims shard them in the same order. So this file finds the linked
 * dims and the order that moves the fewest bytes.
 */
import { ShardingError } from '../../core/errors.js';
import type { Placement } from '../../core/placement.js';
import { meshDimName } from '../../distributed/device-mesh/layout.js';
import { redistributeMicroseconds } from '../redistribute/plan.js';
import {
  type DTensorSpec,
  internSpec,
  keptShardOrder,
  placeSpec,
  type ShardOrder,
} from '../spec/spec.js';
import type { AnyStrategy, OpCall } from './strategies.js';

/** The specs of all operands of a call. */
export interface OperandSpecs {
  /** The spec that each input must get; null for numbers. */
  readonly inputs: readonly (DTensorSpec | null)[];
  readonly outputs: readonly DTensorSpec[];
}

/** A dim of an operand; operands are the inputs, then the outputs. */
interface Slot {
  readonly operand: number;
  readonly dim: number;
}

/** Dims that are sharded together, and all mesh dims that shard any of them. */
interface LinkedDims {
  slots: Slot[];
  meshDims: number[];
}

/** @throws ShardingError if overwritten operands have different shard orders */
export function operandSpecs(call: OpCall, strategies: readonly AnyStrategy[]): OperandSpecs {
  const { specs, mesh, outputMetas, into } = call;
  const operands = specs.length + outputMetas.length;
  const placements = Array.from({ length: operands }, (_, operand) =>
    strategies.map((strategy) => placementOf(strategy, operand)),
  );
  const orders: number[][][] = placements.map(() => []);
  for (const linked of linkedDims(placements)) {
    const order = commonOrder(call, placements, linked);
    for (const { operand, dim } of linked.slots)
      (orders[operand] as number[][])[dim] = shardMeshDims(placements[operand], dim, order);
  }
  const inputs = specs.map((spec, i) =>
    spec === null ? null : placeSpec(spec, placements[i] as Placement[], orders[i]),
  );
  const outputs = outputMetas.map((meta, i) => {
    const operand = specs.length + i;
    return into !== null && i === 0
      ? into
      : internSpec(mesh, placements[operand] as Placement[], orders[operand] as ShardOrder, meta);
  });
  return { inputs, outputs };
}

function placementOf({ inputs, outputs }: AnyStrategy, operand: number): Placement {
  return (
    operand < inputs.length ? inputs[operand] : outputs[operand - inputs.length]
  ) as Placement;
}

function shardMeshDims(
  placements: readonly Placement[] | undefined,
  dim: number,
  order: readonly number[],
): number[] {
  return order.filter((meshDim) => placements?.[meshDim]?.isShard(dim));
}

/** Links the dims that one mesh dim shards, and transitively those linked with any of them. */
function linkedDims(placements: readonly (readonly Placement[])[]): LinkedDims[] {
  let groups: LinkedDims[] = [];
  const meshDims = placements[0]?.length ?? 0;
  for (let meshDim = 0; meshDim < meshDims; meshDim++) {
    const slots = placements.flatMap((own, operand): Slot[] => {
      const placement = own[meshDim];
      return placement?.isShard() ? [{ operand, dim: placement.dim }] : [];
    });
    if (slots.length === 0) continue;
    const touching = groups.filter((group) =>
      group.slots.some((slot) => slots.some((other) => isSame(slot, other))),
    );
    const merged: LinkedDims = {
      slots: [],
      meshDims: [...touching.flatMap((group) => group.meshDims), meshDim].sort((a, b) => a - b),
    };
    for (const slot of [...touching.flatMap((group) => group.slots), ...slots])
      if (!merged.slots.some((other) => isSame(slot, other))) merged.slots.push(slot);
    groups = [...groups.filter((group) => !touching.includes(group)), merged];
  }
  return groups;
}

function isSame(a: Slot, b: Slot): boolean {
  return a.operand === b.operand && a.dim === b.dim;
}

/**
 * The order of an overwritten operand. Without one, the order of the input for which redistribution
 * costs least; the first of equals.
 */
function commonOrder(
  call: OpCall,
  placements: readonly (readonly Placement[])[],
  linked: LinkedDims,
): readonly number[] {
  if (linked.meshDims.filter((meshDim) => call.mesh.shape[meshDim] !== 1).length < 2)
    return linked.meshDims;
  const forced = forcedOrder(call, linked);
  if (forced !== null) return forced;
  const orders = linked.slots.flatMap(({ operand, dim }) => {
    const spec = call.specs[operand];
    return spec ? [completed(spec.order[dim] as readonly number[], linked.meshDims)] : [];
  });
  let best: readonly number[] = linked.meshDims;
  let least = Number.POSITIVE_INFINITY;
  for (const order of [...orders, linked.meshDims]) {
    const cost = orderCost(call, placements, linked, order);
    if (cost < least) [best, least] = [order, cost];
  }
  return best;
}

/** The mesh dims of `all`: those in `order` first, in its order, then the others. */
function completed(order: readonly number[], all: readonly number[]): readonly number[] {
  return [
    ...order.filter((meshDim) => all.includes(meshDim)),
    ...all.filter((meshDim) => !order.includes(meshDim)),
  ];
}

function orderCost(
  { specs }: OpCall,
  placements: readonly (readonly Placement[])[],
  { slots }: LinkedDims,
  order: readonly number[],
): number {
  let cost = 0;
  specs.forEach((spec, i) => {
    const own = slots.filter(({ operand }) => operand === i);
    if (!spec || own.length === 0) return;
    const target = placements[i] as readonly Placement[];
    const orders = keptShardOrder(spec, target).map((kept, dim) =>
      own.some((slot) => slot.dim === dim) ? shardMeshDims(target, dim, order) : kept,
    );
    cost += redistributeMicroseconds(spec, placeSpec(spec, target, orders));
  });
  return cost;
}

/** The shard order of overwritten operands, which cannot be redistributed; null without any. */
function forcedOrder(call: OpCall, { slots, meshDims }: LinkedDims): readonly number[] | null {
  const { specs, overwritten, into, op, mesh } = call;
  let forced: readonly number[] | null = null;
  for (const { operand, dim } of slots) {
    const spec = overwritten.includes(operand)
      ? specs[operand]
      : operand === specs.length
        ? into
        : null;
    if (!spec) continue;
    const order = completed(spec.order[dim] as readonly number[], meshDims);
    forced ??= order;
    if (order.some((meshDim, i) => meshDim !== forced?.[i])) {
      const name = (meshDims: readonly number[]) =>
        meshDims.map((meshDim) => meshDimName(mesh, meshDim)).join(', then ');
      throw new ShardingError(
        `${op.name}: expected all tensors that it overwrites to have one shard order, got ` +
          `one sharded by ${name(forced)} ` +
          `and another sharded by ${name(order)}. Create them with the same shardOrder.`,
        { op: op.name, orders: [forced, order] },
      );
    }
  }
  return forced;
}
