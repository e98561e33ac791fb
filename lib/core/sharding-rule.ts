/**
 * How an op runs on sharded tensors. A rule describes one mesh dimension: it lists the strategies
 * by which each rank can run the op on its local shards, so that the results are again shards,
 * replicas or partial values of the whole result. The DTensor layer lifts the rule to meshes of any
 * dimension and chooses the strategies that move the fewest bytes.
 */
import type { Placement, ReduceOpName } from './placement.js';
import type { Shape } from './shape.js';
import type { Tensor } from './tensor.js';

/**
 * One strategy to run an op along one mesh dimension. The strategy that replicates everything
 * always exists and is never listed.
 */
export interface Strategy<P> {
  /**
   * One for each input; Replicate for a number in place of a tensor. Shard dims are not negative.
   */
  readonly inputs: readonly Placement[];
  /** One for each output. */
  readonly outputs: readonly Placement[];
  /**
   * Computes the local results from the local shards. If absent, the op itself runs, with the
   * params of `localParams`.
   */
  run?(inputs: readonly Tensor[], params: P, call: ShardedCall): readonly Tensor[];
}

/**
 * Computes the local results of a rank from its local inputs. It is written in ops on plain
 * tensors; `call` locates the shards in the whole tensors.
 *
 * On a mesh of several dimensions, strategies combine only if they have the same run (`===`) or
 * none. So a run must read from `call` how the operands are sharded along the other mesh
 * dimensions.
 */
export type LocalRun<P, Inputs extends readonly Tensor[] = readonly Tensor[]> = (
  inputs: Inputs,
  params: P,
  call: ShardedCall,
) => readonly Tensor[];

/** The sizes of a shard, and the index in the whole tensor at which it begins in each dim. */
export interface ShardMeta {
  readonly shape: Shape;
  readonly offsets: Shape;
  /** The shape of the whole tensor. */
  readonly globalShape: Shape;
}

/** The shards of a rank in one call of an op. */
export interface ShardedCall {
  readonly inputs: readonly ShardMeta[];
  readonly outputs: readonly ShardMeta[];
}

/** The mesh dimension for which a rule lists strategies. */
export interface MeshDimContext {
  /** The number of ranks along it. */
  readonly ranks: number;
  /**
   * Whether `size` elements along dim `dim` of input `input` divide into equal chunks here, given
   * the mesh dimensions that shard this dim already.
   */
  divides(input: number, dim: number, size: number): boolean;
}

/**
 * The rule of an op on lists of independent tensors, such as the parameters of an optimizer step.
 * Placements may differ between the tensors, so strategies cannot list all combinations. An op with
 * a FollowRule has no strategies.
 */
export interface FollowRule<P> {
  /**
   * For each input, the index of its leader; a leader has its own index. A follower is
   * redistributed to the placements of its leader, then each rank runs the op on its local shards.
   * Numbers lead themselves.
   */
  leaders(inputs: readonly Tensor[], params: P): readonly number[];
  /** The op keeps Partial placements of these reductions; others are reduced before it runs. */
  readonly reductions: readonly ReduceOpName[];
}

/** The sharding rule of an op; see {@link Strategy}. */
export interface ShardingRule<P, Inputs extends readonly Tensor[] = readonly Tensor[]> {
  /**
   * Lists the strategies. The inputs have the shapes of the whole tensors, and only their metadata
   * may be read. Of strategies with equal cost, the first is chosen.
   */
  strategies(inputs: Inputs, params: P, mesh: MeshDimContext): readonly Strategy<P>[];
  /** The params of the local call, if params contain sizes or positions in the whole tensor. */
  localParams?(params: P, call: ShardedCall): P;
  /**
   * True: where every strategy needs a gather, the op runs as its decomposition on the sharded
   * tensors instead. The decomposition may communicate, like a variance over a sharded dim.
   */
  decomposes?: boolean;
  /**
   * The decomposition of sharded tensors, where it is not that of the op. It is not recorded, so
   * its ops need no gradient.
   */
  decompose?(inputs: Inputs, params: P): readonly Tensor[];
  /**
   * Inputs that the decomposition reads more than once, and not linearly. Partial ones are reduced
   * before it runs, because otherwise each op that reads them would reduce them again.
   */
  readonly reducedFirst?: readonly number[];
  /** The rule of an op on lists, which has no strategies; see {@link FollowRule}. */
  readonly follows?: FollowRule<P>;
}
