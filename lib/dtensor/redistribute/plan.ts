/**
 * Plans how a distributed tensor gets from one spec to another: with the fewest collectives, and
 * among those plans with the fewest bytes.
 *
 * The mesh dims that shard a tensor dim form a stack, in shard order: only the innermost shards can
 * be gathered or exchanged, and a new mesh dim shards last. So all mesh dims from the first
 * difference between the stacks of both specs must be removed, each once, and nothing else moves.
 * Each of them goes to its target directly or through Replicate; the search is over these routes.
 */
import { ShardingError } from '../../core/errors.js';
import { type Placement, type ReduceOpName, Replicate } from '../../core/placement.js';
import { formatShape, sameShape } from '../../core/shape.js';
import { formatMesh, meshDimName } from '../../distributed/device-mesh/layout.js';
import {
  type DTensorSpec,
  hasSharedTensorDim,
  internSpec,
  placeSpec,
  type ShardOrder,
} from '../spec/spec.js';
import { planCost, stepBytes } from './cost.js';
import { isCollective, type Step, type StepKind } from './steps.js';

/** Options of {@link planRedistribute}. */
export interface PlanOptions {
  /** Allows Replicate to Partial, which only gradients need. */
  partialFromReplicate?: boolean;
}

/** A plan and its estimated cost. */
interface Plan {
  readonly steps: readonly Step[];
  readonly microseconds: number;
}

const plans = new WeakMap<DTensorSpec, Map<number, Plan>>();

/**
 * The steps from one spec of a tensor to another on the same mesh; empty if they are equal. The
 * last step results in `to`.
 *
 * @throws ShardingError for another mesh, and for a Partial target unless the source is the same
 * Partial
 */
export function planRedistribute(
  from: DTensorSpec,
  to: DTensorSpec,
  { partialFromReplicate = false }: PlanOptions = {},
): readonly Step[] {
  if (from === to) return NO_STEPS;
  const { steps } = planOf(from, to);
  if (!partialFromReplicate) checkPartialTargets(from, to);
  return steps;
}

function planOf(from: DTensorSpec, to: DTensorSpec): Plan {
  let known = plans.get(from);
  if (known === undefined) plans.set(from, (known = new Map()));
  let plan = known.get(to.id);
  if (plan === undefined) {
    checkSameTensor(from, to);
    const steps = Object.freeze(new Planner(from, to).plan());
    plan = { steps, microseconds: planCost(from, steps).microseconds };
    known.set(to.id, plan);
  }
  return plan;
}

const NO_STEPS: readonly Step[] = Object.freeze([]);

/** Whether no mesh dim has to become Partial. */
function canRedistribute(from: DTensorSpec, to: DTensorSpec): boolean {
  return to.placements.every(
    (target, meshDim) => !target.isPartial() || target === from.placements[meshDim],
  );
}

/**
 * The estimated cost of the best plan: 0 between equal specs, infinite if a mesh dim has to become
 * Partial. @internal
 */
export function redistributeMicroseconds(from: DTensorSpec, to: DTensorSpec): number {
  if (from === to) return 0;
  return canRedistribute(from, to) ? planOf(from, to).microseconds : Number.POSITIVE_INFINITY;
}

function checkSameTensor(from: DTensorSpec, to: DTensorSpec): void {
  if (from.mesh !== to.mesh) {
    throw new ShardingError(
      `redistribute: expected placements on the tensor's own ${formatMesh(from.mesh)}, got ` +
        `another ${formatMesh(to.mesh)}. ` +
        'Take fullTensor() and distribute it on the other mesh.',
      { from: from.mesh.shape, to: to.mesh.shape },
    );
  }
  if (!sameShape(from.shape, to.shape) || from.dtype !== to.dtype) {
    throw new ShardingError(
      'redistribute: expected a spec of the same tensor, ' +
        `${from.dtype.name}${formatShape(from.shape)}, got ` +
        `${to.dtype.name}${formatShape(to.shape)}`,
      {
        from: from.shape,
        to: to.shape,
      },
    );
  }
  to.placements.forEach((target, meshDim) => {
    if (target.isPartial() && !from.placements[meshDim]?.isReplicate())
      checkPartialTarget(from, target, meshDim);
  });
}

function checkPartialTargets(from: DTensorSpec, to: DTensorSpec): void {
  if (!canRedistribute(from, to))
    to.placements.forEach((target, meshDim) => checkPartialTarget(from, target, meshDim));
}

function checkPartialTarget(from: DTensorSpec, target: Placement, meshDim: number): void {
  const source = from.placements[meshDim] as Placement;
  if (!target.isPartial() || target === source) return;
  const why = source.isPartial()
    ? 'partial values of one reduction are not those of another'
    : 'only an op that computes partial values produces Partial';
  throw new ShardingError(
    `redistribute: mesh dim ${meshDimName(from.mesh, meshDim)} cannot go from ${source} to ` +
      `${target}: ${why}. ` +
      'Redistribute to Replicate() or Shard(dim); to declare the tensors of the ranks as ' +
      'partial values, use DTensor.fromLocal(t, mesh, [Partial()]).',
    { from, meshDim, source: String(source), target: String(target) },
  );
}

/**
 * The status of each mesh dim as one letter: as in the source, replicated, or as in the target. A
 * string, so that it is a key.
 */
type State = string;
const [SOURCE, REPLICATED, TARGET] = ['s', 'r', 't'] as const;

/** A step and the state after it. */
interface Move {
  readonly step: Step;
  readonly state: State;
}

/** The best sequence of steps from a state to the target. */
interface Route {
  readonly collectives: number;
  readonly bytes: number;
  readonly first: Move | null;
}

/**
 * Steps that make tensors smaller come first, those that make them larger last. Of routes with
 * equal cost, the first is chosen.
 */
const priorities: readonly StepKind[] = [
  'reduceScatter',
  'chunk',
  'allToAll',
  'allReduce',
  'allGather',
  'partialFromReplicate',
];

const DONE: Route = { collectives: 0, bytes: 0, first: null };

class Planner {
  private readonly from: DTensorSpec;
  private readonly to: DTensorSpec;
  /** For each tensor dim, the mesh dims of several ranks that shard it. */
  private readonly orderBefore: ShardOrder;
  private readonly orderAfter: ShardOrder;
  /** For each mesh dim, whether it has several ranks and needs a step. */
  private readonly moves: readonly boolean[];
  private readonly routes = new Map<State, Route>();
  private readonly specs = new Map<State, DTensorSpec>();

  constructor(from: DTensorSpec, to: DTensorSpec) {
    this.from = from;
    this.to = to;
    [this.orderBefore, this.orderAfter] = [shardOrderOf(from), shardOrderOf(to)];
    this.moves = from.placements.map((source, meshDim) => {
      if (from.mesh.shape[meshDim] === 1) return false;
      return (
        source !== to.placements[meshDim] ||
        (source.isShard() && !this.isUnchanged(source.dim, meshDim))
      );
    });
  }

  /** Whether both specs shard `dim` equally up to and including this mesh dim. */
  private isUnchanged(dim: number, meshDim: number): boolean {
    const before = this.orderBefore[dim] as readonly number[];
    const after = this.orderAfter[dim] as readonly number[];
    const depth = before.indexOf(meshDim);
    return before.every((each, i) => i > depth || each === after[i]);
  }

  plan(): Step[] {
    const steps = this.relabelSingles();
    let state: State = this.from.placements
      .map((source, meshDim) =>
        !this.moves[meshDim] ? TARGET : source.isReplicate() ? REPLICATED : SOURCE,
      )
      .join('');
    for (let next = this.best(state).first; next !== null; next = this.best(state).first) {
      steps.push(next.step);
      state = next.state;
    }
    return steps;
  }

  /** Changes the placements of mesh dims of one rank, which moves nothing. */
  private relabelSingles(): Step[] {
    const steps: Step[] = [];
    let spec = this.from;
    this.from.placements.forEach((source, meshDim) => {
      const target = this.to.placements[meshDim] as Placement;
      if (this.from.mesh.shape[meshDim] !== 1 || source === target) return;
      spec = placeSpec(spec, spec.placements.with(meshDim, target));
      steps.push({ kind: 'relabel', meshDim, after: spec });
    });
    return steps;
  }

  /** The best route from a state. The status of a mesh dim only advances, so the search ends. */
  private best(state: State): Route {
    let route = this.routes.get(state);
    if (route === undefined) {
      route = this.search(state);
      this.routes.set(state, route);
    }
    return route;
  }

  private search(state: State): Route {
    let best: Route | null = null;
    for (const first of this.next(state)) {
      const rest = this.best(first.state);
      const collectives = rest.collectives + (isCollective(first.step) ? 1 : 0);
      const bytes = rest.bytes + stepBytes(first.step, this.specAt(state));
      if (
        best === null ||
        collectives < best.collectives ||
        (collectives === best.collectives && bytes < best.bytes)
      )
        best = { collectives, bytes, first };
    }
    return best ?? DONE;
  }

  /** The possible steps, by priority and then by mesh dim. */
  private next(state: State): Move[] {
    const found: Move[] = [];
    for (let meshDim = 0; meshDim < state.length; meshDim++) {
      const target = this.to.placements[meshDim] as Placement;
      const source = this.from.placements[meshDim] as Placement;
      if (state[meshDim] === TARGET) continue;
      if (state[meshDim] === REPLICATED) this.fromReplicate(found, state, meshDim, target);
      else if (source.isPartial()) this.fromPartial(found, state, meshDim, source.reduceOp, target);
      else if (source.isShard()) this.fromShard(found, state, meshDim, source.dim, target);
    }
    const rank = ({ step }: Move) => priorities.indexOf(step.kind);
    return found.length < 2 ? found : found.sort((a, b) => rank(a) - rank(b));
  }

  private fromReplicate(found: Move[], state: State, meshDim: number, target: Placement): void {
    if (!target.isPartial() && !(target.isShard() && this.canPush(state, meshDim, target.dim)))
      return;
    const next = this.advance(state, meshDim, TARGET);
    const after = this.specAt(next);
    found.push({
      step: target.isPartial()
        ? { kind: 'partialFromReplicate', meshDim, reduceOp: target.reduceOp, after }
        : { kind: 'chunk', meshDim, dim: target.dim, after },
      state: next,
    });
  }

  private fromPartial(
    found: Move[],
    state: State,
    meshDim: number,
    reduceOp: ReduceOpName,
    target: Placement,
  ): void {
    const reduced = this.advance(state, meshDim, REPLICATED);
    found.push({
      step: { kind: 'allReduce', meshDim, reduceOp, after: this.specAt(reduced) },
      state: reduced,
    });
    if (!target.isShard() || !this.canPush(state, meshDim, target.dim)) return;
    const scattered = this.advance(state, meshDim, TARGET);
    found.push({
      step: {
        kind: 'reduceScatter',
        meshDim,
        reduceOp,
        dim: target.dim,
        after: this.specAt(scattered),
      },
      state: scattered,
    });
  }

  private fromShard(
    found: Move[],
    state: State,
    meshDim: number,
    dim: number,
    target: Placement,
  ): void {
    if (this.orderAt(state, dim).at(-1) !== meshDim) return;
    const gathered = this.advance(state, meshDim, REPLICATED);
    found.push({
      step: { kind: 'allGather', meshDim, dim, after: this.specAt(gathered) },
      state: gathered,
    });
    if (!target.isShard() || target.dim === dim || !this.canPush(state, meshDim, target.dim))
      return;
    const moved = this.advance(state, meshDim, TARGET);
    found.push({
      step: {
        kind: 'allToAll',
        meshDim,
        fromDim: dim,
        toDim: target.dim,
        after: this.specAt(moved),
      },
      state: moved,
    });
  }

  /** A mesh dim whose target is Replicate has reached it when it is replicated. */
  private advance(state: State, meshDim: number, status: typeof REPLICATED | typeof TARGET): State {
    return (
      state.slice(0, meshDim) +
      (this.to.placements[meshDim]?.isReplicate() ? TARGET : status) +
      state.slice(meshDim + 1)
    );
  }

  /**
   * Whether `dim` is now sharded by exactly the mesh dims that come before this one in the target.
   */
  private canPush(state: State, meshDim: number, dim: number): boolean {
    const wanted = this.orderAfter[dim] as readonly number[];
    const now = this.orderAt(state, dim);
    return wanted.indexOf(meshDim) === now.length && now.every((each, i) => each === wanted[i]);
  }

  /** The mesh dims that shard `dim`: those left from the source, then those of the target. */
  private orderAt(state: State, dim: number): number[] {
    const order: number[] = [];
    for (const meshDim of this.orderBefore[dim] as readonly number[])
      if (!this.moves[meshDim] || state[meshDim] === SOURCE) order.push(meshDim);
    for (const meshDim of this.orderAfter[dim] as readonly number[])
      if (this.moves[meshDim] && state[meshDim] === TARGET) order.push(meshDim);
    return order;
  }

  /** Computed once for each state, because several routes lead to it. */
  private specAt(state: State): DTensorSpec {
    let spec = this.specs.get(state);
    if (spec === undefined) {
      spec = this.computeSpec(state);
      this.specs.set(state, spec);
    }
    return spec;
  }

  private computeSpec(state: State): DTensorSpec {
    const { from, to } = this;
    const placements = from.placements.map((source, meshDim) =>
      state[meshDim] === SOURCE
        ? source
        : state[meshDim] === REPLICATED
          ? Replicate()
          : (to.placements[meshDim] as Placement),
    );
    const singles = (dim: number) =>
      placements.flatMap((placement, meshDim) =>
        placement.isShard(dim) && from.mesh.shape[meshDim] === 1 ? [meshDim] : [],
      );
    const order = hasSharedTensorDim(placements)
      ? from.shape.map((_, dim) => [...singles(dim), ...this.orderAt(state, dim)])
      : [];
    return internSpec(from.mesh, placements, order, from.tensorMeta);
  }
}

/** The shard order without mesh dims of one rank. */
function shardOrderOf({ order, mesh }: DTensorSpec): ShardOrder {
  return order.map((meshDims) => meshDims.filter((meshDim) => mesh.shape[meshDim] !== 1));
}
