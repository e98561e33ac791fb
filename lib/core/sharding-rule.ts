/**
 * How an op runs on sharded tensors. A rule speaks of one mesh dimension: the ways in which each
 * rank can run the op on what it holds, so that the results are again pieces, copies or terms of
 * the whole result. The DTensor layer lifts it to meshes of any dimension and chooses the way that
 * moves the fewest bytes.
 */
import type { Placement, ReduceOpName } from './placement.js';
import type { Shape } from './shape.js';
import type { Tensor } from './tensor.js';

/**
 * One way to run an op along one mesh dimension. That all is replicated is always a way and is
 * never listed.
 */
export interface Strategy<P> {
  /** Of each input; Replicate for numbers in the place of tensors. Shard dims are not negative. */
  readonly inputs: readonly Placement[];
  /** Of each output. */
  readonly outputs: readonly Placement[];
  /**
   * Runs on what the rank holds; without it, the op itself does, with the params that `localParams`
   * gives.
   */
  readonly run?: LocalRun<P>;
}

/**
 * The local results of a rank, from its local inputs. Written in ops, on plain tensors; `call` says
 * what of the whole they are.
 *
 * On a mesh of several dimensions, a run serves together with strategies of the other dimensions
 * that have the same run (`===`) or none: it must read from `call` all that it wants to know of how
 * the operands are cut. Strategies with two different runs do not go together.
 */
export type LocalRun<P> = (
  inputs: readonly Tensor[],
  params: P,
  call: ShardedCall,
) => readonly Tensor[];

/**
 * A piece of a tensor: its sizes and, in each dim, the index in the whole tensor at which it
 * begins.
 */
export interface ShardMeta {
  readonly shape: Shape;
  readonly offsets: Shape;
  /** Of the whole tensor. */
  readonly globalShape: Shape;
}

/** What a rank has in hand when it runs its part of an op. */
export interface ShardedCall {
  readonly inputs: readonly ShardMeta[];
  readonly outputs: readonly ShardMeta[];
}

/** The mesh dimension that a rule is asked about. */
export interface MeshDimContext {
  /** How many ranks it has. */
  readonly ranks: number;
  /**
   * Whether `size` elements along dim `dim` of input `input` can be cut into equal pieces here,
   * given the mesh dimensions that cut that dim already.
   */
  divides(input: number, dim: number, size: number): boolean;
}

/**
 * For ops on lists of tensors that have nothing to do with one another, as the parameters of an
 * optimizer step: placements may differ from one to the next, so that strategies cannot name all
 * combinations. This stands in the place of `strategies`, which then gives none.
 */
export interface FollowRule<P> {
  /**
   * For each input the one that it follows, its own index if it leads. A follower is redistributed
   * to the placements of its leader, which stays as it is; then each rank runs the op on what it
   * holds. Numbers lead themselves.
   */
  leaders(inputs: readonly Tensor[], params: P): readonly number[];
  /**
   * A leader may be in terms of these reductions, its followers then too; of another one only if it
   * is reduced first.
   */
  readonly reductions: readonly ReduceOpName[];
}

/** The sharding rule of an op; see {@link Strategy}. */
export interface ShardingRule<P> {
  /**
   * The inputs have the shapes of the whole tensors; only their metadata may be looked at. Ways
   * that cost the same: the first is taken.
   */
  strategies(inputs: readonly Tensor[], params: P, mesh: MeshDimContext): readonly Strategy<P>[];
  /**
   * Params of the rank's own call, where they say something about sizes or positions in the whole
   * tensor.
   */
  localParams?(params: P, call: ShardedCall): P;
  /**
   * True: where no strategy fits the placements without a gather, the op runs as its decomposition,
   * on sharded tensors. The decomposition may communicate, as a variance over a sharded dim.
   */
  decomposes?: boolean;
  /**
   * Inputs that the decomposition reads more than once, other than linearly. It gets those reduced
   * that are in terms: each op that reads them would reduce them again.
   */
  readonly reducedFirst?: readonly number[];
  /** In the place of strategies; see {@link FollowRule}. */
  readonly follows?: FollowRule<P>;
}
