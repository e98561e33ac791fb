/**
 * How a distributed tensor gets from one spec to another: the fewest collectives, and of those plans the one that moves the fewest bytes.
 *
 * The mesh dims that cut a tensor dim are a stack, in the order in which they cut: only the innermost piece can be joined or sent elsewhere,
 * and a new cut goes on the end. So what stands above the first difference between the stacks of both specs must come off, each mesh dim
 * once, and nothing else need move. Each such mesh dim goes to its target at once or by way of Replicate; the search is over these ways.
 */
import { ShardingError } from '../core/errors.js';
import { type Placement, Replicate } from '../core/placement.js';
import { formatShape, sameShape } from '../core/shape.js';
import { formatMesh, meshDimName } from '../mesh/mesh-layout.js';
import { planCost, stepBytes } from './cost.js';
import { isCollective, type Step, type StepKind } from './redistribute-steps.js';
import { type DTensorSpec, internSpec, placeSpec } from './spec.js';

/** Options of {@link planRedistribute}. */
export interface PlanOptions {
  /** Lets Replicate become Partial: only what computes gradients may ask for that. */
  partialFromReplicate?: boolean;
}

const plans = new WeakMap<DTensorSpec, Map<number, readonly Step[]>>();

/**
 * The steps from one spec to another of the same tensor on the same mesh; none if they are equal. The last one leaves `to`.
 *
 * @throws ShardingError for another mesh, and for a Partial target where the source is not the same Partial
 */
export function planRedistribute(from: DTensorSpec, to: DTensorSpec, { partialFromReplicate = false }: PlanOptions = {}): readonly Step[] {
  if (from === to) return NO_STEPS;
  let known = plans.get(from);
  if (known === undefined) plans.set(from, (known = new Map()));
  let steps = known.get(to.id);
  if (steps === undefined) {
    checkSameTensor(from, to);
    steps = Object.freeze(new Planner(from, to).plan());
    known.set(to.id, steps);
  }
  if (!partialFromReplicate) checkPartialTargets(from, to);
  return steps;
}

const NO_STEPS: readonly Step[] = Object.freeze([]);

/** Whether no mesh dim would have to become Partial. @internal */
export function canRedistribute(from: DTensorSpec, to: DTensorSpec): boolean {
  return to.placements.every((target, meshDim) => !target.isPartial() || target === from.placements[meshDim]);
}

/** The estimated cost of the best plan; 0 between equal specs. @internal */
export function redistributeMicroseconds(from: DTensorSpec, to: DTensorSpec): number {
  return from === to ? 0 : planCost(from, planRedistribute(from, to)).microseconds;
}

function checkSameTensor(from: DTensorSpec, to: DTensorSpec): void {
  if (from.mesh !== to.mesh) {
    throw new ShardingError(
      `redistribute: expected placements on the tensor's own ${formatMesh(from.mesh)}, got another ${formatMesh(to.mesh)}. ` +
        'Take fullTensor() and distribute it on the other mesh.',
      { from: from.mesh.shape, to: to.mesh.shape },
    );
  }
  if (!sameShape(from.shape, to.shape) || from.dtype !== to.dtype) {
    throw new ShardingError(`redistribute: expected a spec of the same tensor, ${from.dtype.name}${formatShape(from.shape)}, got ${to.dtype.name}${formatShape(to.shape)}`, {
      from: from.shape,
      to: to.shape,
    });
  }
  to.placements.forEach((target, meshDim) => {
    if (target.isPartial() && !from.placements[meshDim]?.isReplicate()) checkPartialTarget(from, target, meshDim);
  });
}

function checkPartialTargets(from: DTensorSpec, to: DTensorSpec): void {
  if (!canRedistribute(from, to)) to.placements.forEach((target, meshDim) => checkPartialTarget(from, target, meshDim));
}

function checkPartialTarget(from: DTensorSpec, target: Placement, meshDim: number): void {
  const source = from.placements[meshDim] as Placement;
  if (!target.isPartial() || target === source) return;
  const why = source.isPartial() ? 'terms of one reduction are not those of another' : 'only an op that computes terms makes a Partial';
  throw new ShardingError(
    `redistribute: mesh dim ${meshDimName(from.mesh, meshDim)} cannot go from ${source} to ${target}: ${why}. ` +
      'Redistribute to Replicate() or Shard(dim); to declare tensors of the ranks to be terms, use DTensor.fromLocal.',
    { from, meshDim, source: String(source), target: String(target) },
  );
}

/** Where a mesh dim that must change is. */
type Status = 'source' | 'replicated' | 'target';
type State = readonly Status[];

/** A step and where it leads. */
interface Move {
  readonly step: Step;
  readonly state: State;
}

/** What is left to do from a state, at best. */
interface Way {
  readonly collectives: number;
  readonly bytes: number;
  readonly first: Move | null;
}

/** What makes tensors small goes first, what makes them large last; of ways that cost the same, the first counts. */
const priorities: readonly StepKind[] = ['reduceScatter', 'chunk', 'allToAll', 'allReduce', 'allGather', 'partialFromReplicate'];

class Planner {
  private readonly from: DTensorSpec;
  private readonly to: DTensorSpec;
  /** By mesh dim: whether more than one rank is concerned, and something must be done. */
  private readonly moves: readonly boolean[];
  private readonly ways = new Map<string, Way>();

  constructor(from: DTensorSpec, to: DTensorSpec) {
    this.from = from;
    this.to = to;
    this.moves = from.placements.map((source, meshDim) => {
      if (from.mesh.shape[meshDim] === 1) return false;
      return source !== to.placements[meshDim] || (source.isShard() && !this.stays(source.dim, meshDim));
    });
  }

  /** Whether both specs cut alike up to and including this mesh dim. */
  private stays(dim: number, meshDim: number): boolean {
    const before = this.stack(this.from, dim);
    const after = this.stack(this.to, dim);
    const depth = before.indexOf(meshDim);
    return before.every((cut, i) => i > depth || cut === after[i]);
  }

  /** The mesh dims that really cut a tensor dim. */
  private stack(spec: DTensorSpec, dim: number): readonly number[] {
    return (spec.order[dim] as readonly number[]).filter((meshDim) => spec.mesh.shape[meshDim] !== 1);
  }

  plan(): Step[] {
    const steps = this.relabelSingles();
    let state: State = this.from.placements.map((source, meshDim) => (!this.moves[meshDim] ? 'target' : source.isReplicate() ? 'replicated' : 'source'));
    for (let next = this.best(state).first; next !== null; next = this.best(state).first) {
      steps.push(next.step);
      state = next.state;
    }
    return steps;
  }

  /** One rank alone holds the same whatever its placement is called. */
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

  /** The best way on from a state. Statuses only advance, so this ends. */
  private best(state: State): Way {
    const key = state.join();
    let way = this.ways.get(key);
    if (way === undefined) {
      way = this.search(state);
      this.ways.set(key, way);
    }
    return way;
  }

  private search(state: State): Way {
    const before = this.specAt(state);
    let best: Way | null = null;
    for (const first of this.next(state)) {
      const rest = this.best(first.state);
      const collectives = rest.collectives + (isCollective(first.step) ? 1 : 0);
      const bytes = rest.bytes + stepBytes(first.step, before);
      if (best === null || collectives < best.collectives || (collectives === best.collectives && bytes < best.bytes)) best = { collectives, bytes, first };
    }
    return best ?? { collectives: 0, bytes: 0, first: null };
  }

  /** The steps that can be taken, by priority and then by mesh dim. */
  private next(state: State): Move[] {
    const found = state.flatMap((status, meshDim) => {
      const target = this.to.placements[meshDim] as Placement;
      if (status === 'target') return [];
      if (status === 'replicated') return this.fromReplicate(state, meshDim, target);
      const source = this.from.placements[meshDim] as Placement;
      if (source.isPartial()) return this.fromPartial(state, meshDim, target);
      return source.isShard() ? this.fromShard(state, meshDim, source.dim, target) : [];
    });
    const rank = ({ step }: Move) => priorities.indexOf(step.kind);
    return found.sort((a, b) => rank(a) - rank(b));
  }

  private fromReplicate(state: State, meshDim: number, target: Placement): Move[] {
    const after = this.advance(state, meshDim, 'target');
    if (target.isPartial()) return [{ step: { kind: 'partialFromReplicate', meshDim, reduceOp: target.reduceOp, after: this.specAt(after) }, state: after }];
    if (!target.isShard() || !this.canPush(state, meshDim, target.dim)) return [];
    return [{ step: { kind: 'chunk', meshDim, dim: target.dim, after: this.specAt(after) }, state: after }];
  }

  private fromPartial(state: State, meshDim: number, target: Placement): Move[] {
    const source = this.from.placements[meshDim];
    if (!source?.isPartial()) return [];
    const { reduceOp } = source;
    const reduced = this.advance(state, meshDim, 'replicated');
    const steps: Move[] = [{ step: { kind: 'allReduce', meshDim, reduceOp, after: this.specAt(reduced) }, state: reduced }];
    if (target.isShard() && this.canPush(state, meshDim, target.dim)) {
      const scattered = this.advance(state, meshDim, 'target');
      steps.push({ step: { kind: 'reduceScatter', meshDim, reduceOp, dim: target.dim, after: this.specAt(scattered) }, state: scattered });
    }
    return steps;
  }

  private fromShard(state: State, meshDim: number, dim: number, target: Placement): Move[] {
    if (this.stackAt(state, dim).at(-1) !== meshDim) return [];
    const gathered = this.advance(state, meshDim, 'replicated');
    const steps: Move[] = [{ step: { kind: 'allGather', meshDim, dim, after: this.specAt(gathered) }, state: gathered }];
    if (target.isShard() && target.dim !== dim && this.canPush(state, meshDim, target.dim)) {
      const moved = this.advance(state, meshDim, 'target');
      steps.push({ step: { kind: 'allToAll', meshDim, fromDim: dim, toDim: target.dim, after: this.specAt(moved) }, state: moved });
    }
    return steps;
  }

  /** A mesh dim whose target is Replicate is there once it is replicated. */
  private advance(state: State, meshDim: number, status: Status): State {
    return state.with(meshDim, this.to.placements[meshDim]?.isReplicate() ? 'target' : status);
  }

  /** Whether all that cuts `dim` before this mesh dim in the target does so already, and nothing else does. */
  private canPush(state: State, meshDim: number, dim: number): boolean {
    const wanted = this.stack(this.to, dim);
    const now = this.stackAt(state, dim);
    return wanted.indexOf(meshDim) === now.length && now.every((cut, i) => cut === wanted[i]);
  }

  /** What is left of the source's cuts, and those of the target that were made. */
  private stackAt(state: State, dim: number): number[] {
    const left = this.stack(this.from, dim).filter((meshDim) => !this.moves[meshDim] || state[meshDim] === 'source');
    const made = this.stack(this.to, dim).filter((meshDim) => this.moves[meshDim] && state[meshDim] === 'target');
    return [...left, ...made];
  }

  private specAt(state: State): DTensorSpec {
    const { from, to } = this;
    const placements = state.map((status, meshDim) => {
      if (status === 'replicated') return Replicate();
      return (status === 'source' ? from : to).placements[meshDim] as Placement;
    });
    const singles = (dim: number) => placements.flatMap((placement, meshDim) => (placement.isShard(dim) && from.mesh.shape[meshDim] === 1 ? [meshDim] : []));
    const order = from.shape.map((_, dim) => [...singles(dim), ...this.stackAt(state, dim)]);
    return internSpec(from.mesh, placements, order, from.tensorMeta);
  }
}
