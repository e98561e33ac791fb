/**
 * Lifts a sharding rule, which describes one mesh dim, to a mesh: for each mesh dim in order, it
 * chooses the strategy for which redistributing the inputs costs least.
 */
import { ShardingError } from '../../core/errors.js';
import type { AnyOp } from '../../core/op.js';
import { type Placement, Replicate } from '../../core/placement.js';
import type { LocalRun, MeshDimContext, Strategy } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import { redistributeMicroseconds } from '../redistribute/plan.js';
import { mixedPartials } from '../spec/checks.js';
import { type DTensorSpec, placeSpec, type TensorMeta } from '../spec/spec.js';

/** A strategy of any op. */
export type AnyStrategy = Strategy<object>;

/** One call of an op, with the metadata of the whole tensors. */
export interface OpCall {
  readonly op: AnyOp;
  /** Only metadata is read; numbers are wrapped. */
  readonly inputs: readonly Tensor[];
  /** The spec of each input; null for numbers. */
  readonly specs: readonly (DTensorSpec | null)[];
  readonly params: object;
  /** The spec of the tensor that the result is written into. */
  readonly into: DTensorSpec | null;
  /** The mesh of all specs. */
  readonly mesh: DTensorSpec['mesh'];
  readonly outputMetas: readonly TensorMeta[];
  /** Inputs that the op overwrites, which cannot be redistributed. */
  readonly overwritten: readonly number[];
}

/**
 * One strategy for each mesh dim; null if a mesh dim has no strategy that keeps the placements of
 * overwritten tensors.
 */
export function chooseStrategies(call: OpCall): AnyStrategy[] | null {
  const chosen: AnyStrategy[] = [];
  for (let meshDim = 0; meshDim < call.mesh.shape.length; meshDim++) {
    const strategy = cheapest(call, chosen, candidates(call, chosen));
    if (strategy === null) return null;
    chosen.push(strategy);
  }
  return chosen;
}

/** The strategy that replicates all inputs and outputs. */
export function replicateAll(call: OpCall): AnyStrategy {
  return {
    inputs: call.inputs.map(() => Replicate()),
    outputs: call.outputMetas.map(() => Replicate()),
  };
}

/** The strategies of the rule that fit the next mesh dim, and last the replicating one. */
function candidates(call: OpCall, chosen: readonly AnyStrategy[]): AnyStrategy[] {
  const { op, inputs, params } = call;
  const listed: readonly AnyStrategy[] =
    op.sharding?.strategies(inputs, params, contextOf(call, chosen)) ?? [];
  for (const strategy of listed) checkStrategy(call, strategy);
  return [...listed, replicateAll(call)].filter((strategy) => fits(call, chosen, strategy));
}

function contextOf({ mesh }: OpCall, chosen: readonly AnyStrategy[]): MeshDimContext {
  const ranks = mesh.shape[chosen.length] as number;
  return {
    ranks,
    divides(input, dim, size) {
      let chunks = ranks;
      chosen.forEach((strategy, meshDim) => {
        if (strategy.inputs[input]?.isShard(dim)) chunks *= mesh.shape[meshDim] as number;
      });
      return size % chunks === 0;
    },
  };
}

/** @throws ShardingError for a mistake in a rule */
function checkStrategy({ op, inputs, outputMetas }: OpCall, strategy: AnyStrategy): void {
  if (strategy.inputs.length === inputs.length && strategy.outputs.length === outputMetas.length)
    return;
  throw new ShardingError(
    `${op.name}: its sharding rule gives placements for ${strategy.inputs.length} inputs and ` +
      `${strategy.outputs.length} outputs, but this call has ` +
      `${inputs.length} and ${outputMetas.length}. Fix the rule: a strategy needs a ` +
      'placement for each tensor of the call, and Replicate() for numbers.',
    { op: op.name, inputs: strategy.inputs.map(String), outputs: strategy.outputs.map(String) },
  );
}

function fits(call: OpCall, chosen: readonly AnyStrategy[], strategy: AnyStrategy): boolean {
  return (
    strategy.inputs.every((placement, i) => inputFits(call, chosen.length, placement, i)) &&
    strategy.outputs.every((placement, i) => outputFits(call, chosen, placement, i)) &&
    followsSharding(call, chosen.length, strategy) &&
    runOf([...chosen, strategy]) !== 'several'
  );
}

function inputFits(
  { specs, overwritten }: OpCall,
  meshDim: number,
  placement: Placement,
  i: number,
): boolean {
  const spec = specs[i] ?? null;
  if (spec === null) return placement.isReplicate();
  const own = spec.placements[meshDim] as Placement;
  if (placement.isPartial() || overwritten.includes(i)) return placement === own;
  return !placement.isShard() || (placement.dim >= 0 && placement.dim < spec.ndim);
}

function outputFits(
  { into, outputMetas }: OpCall,
  chosen: readonly AnyStrategy[],
  placement: Placement,
  i: number,
): boolean {
  if (into !== null && i === 0 && placement !== into.placements[chosen.length]) return false;
  if (placement.isShard())
    return placement.dim >= 0 && placement.dim < (outputMetas[i]?.shape.length ?? 0);
  const outer = chosen.map(({ outputs }) => outputs[i] as Placement);
  return !placement.isPartial() || mixedPartials([...outer, placement]) === null;
}

/**
 * Sharding propagates and does not arise: a strategy may shard inputs only along a mesh dim that
 * shards an input or `into`. A dim of at most one element is sharded only if it is already.
 */
function followsSharding({ specs, into }: OpCall, meshDim: number, strategy: AnyStrategy): boolean {
  if (into?.placements[meshDim]?.isShard()) return true;
  let kept = false;
  let small = false;
  let shardsInput = false;
  let anySharded = false;
  strategy.inputs.forEach((placement, i) => {
    const spec = specs[i] ?? null;
    const own = spec?.placements[meshDim];
    anySharded ||= own?.isShard() ?? false;
    if (spec === null || !placement.isShard()) return;
    shardsInput = true;
    kept ||= placement === own;
    small ||= (spec.shape[placement.dim] as number) <= 1 && placement !== own;
  });
  return !shardsInput || (anySharded && (kept || !small));
}

/** The local function of the strategies, null for the op itself, `several` if they differ. */
export function runOf(strategies: readonly AnyStrategy[]): LocalRun<object> | null | 'several' {
  let found: LocalRun<object> | null = null;
  for (const { run } of strategies) {
    if (run === undefined || run === found) continue;
    if (found !== null) return 'several';
    found = run;
  }
  return found;
}

/** The cheapest strategy; the first of equals. */
function cheapest(
  call: OpCall,
  chosen: readonly AnyStrategy[],
  strategies: readonly AnyStrategy[],
): AnyStrategy | null {
  const costOf = inputCosts(call, chosen);
  let best: AnyStrategy | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const strategy of strategies) {
    let cost = 0;
    for (let i = 0; i < strategy.inputs.length && cost < least; i++)
      cost += costOf(i, strategy.inputs[i] as Placement);
    if (cost < least) [best, least] = [strategy, cost];
  }
  return best;
}

/**
 * The cost of redistributing an input to a placement on the next mesh dim, if later mesh dims keep
 * theirs. Memoized, because strategies have most placements in common.
 */
function inputCosts(
  { specs }: OpCall,
  chosen: readonly AnyStrategy[],
): (input: number, placement: Placement) => number {
  const known = specs.map(() => new Map<Placement, number>());
  return (input, placement) => {
    const spec = specs[input] ?? null;
    if (spec === null) return 0;
    const costs = known[input] as Map<Placement, number>;
    let cost = costs.get(placement);
    if (cost === undefined) {
      const wanted = (own: Placement, meshDim: number) =>
        meshDim === chosen.length ? placement : (chosen[meshDim]?.inputs[input] ?? own);
      cost = redistributeMicroseconds(spec, placeSpec(spec, spec.placements.map(wanted)));
      costs.set(placement, cost);
    }
    return cost;
  };
}
