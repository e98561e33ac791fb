/** Functions on local shards, called with distributed tensors. */
import { chunksOf } from '../core/chunks.js';
import { ShardingError } from '../core/errors.js';
import { checkFlag, checkFunction, optionsOf, unexpected } from '../core/options.js';
import { Partial, Placement } from '../core/placement.js';
import { type Shape, sameShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { mapLeaves } from '../core/tree.js';
import type { DeviceMesh } from '../distributed/device-mesh/device-mesh.js';
import { DTensor, wholeStrides } from './dtensor.js';
import { checkMesh, checkPlacements } from './spec/checks.js';
import { type LocalShard, localShardOf, meshOf } from './spec/local-shard.js';
import { type DTensorSpec, formatPlacements } from './spec/spec.js';

const OP = 'localMap';

/** Placements of a distributed tensor; null for any other value. */
export type LocalMapPlacements = readonly Placement[] | null;

/** Options of {@link localMap}. */
export interface LocalMapOptions {
  /**
   * For each input, how the ranks' gradients form its gradient. By default as the input is placed,
   * and `Partial()` where the input is replicated and the results are not.
   */
  inGradPlacements?: readonly LocalMapPlacements[];
  /** The mesh of inputs and results; that of the inputs by default. */
  deviceMesh?: DeviceMesh;
  /** Redistributes inputs with other placements than `inPlacements`, which are an error otherwise. */
  redistributeInputs?: boolean;
}

/** The checked arguments of {@link localMap}. */
interface LocalMap {
  readonly outPlacements: readonly LocalMapPlacements[];
  readonly inPlacements: readonly LocalMapPlacements[] | null;
  readonly inGradPlacements: readonly LocalMapPlacements[] | null;
  readonly redistributeInputs: boolean;
}

/**
 * A function that runs `fn` on the local shards of distributed tensors, and gives the tensors that
 * it returns placements. Arguments and results may be arrays, plain objects and maps, to any depth;
 * placements are listed for each leaf, null for what is no distributed tensor. Called without
 * distributed tensors, it is `fn`.
 *
 * A sharded dim of a result is as long as that of the inputs that are sharded over the same mesh
 * dims, if one of these does not divide evenly; else all ranks have equal parts.
 *
 * Gradient: that of `fn` on each rank. In contrast to PyTorch, the gradients of a replicated input
 * are added where no result is replicated, as each rank computes another part of the results.
 *
 * @param outPlacements - those of the result, or a list with those of each leaf of the result
 * @param inPlacements - for each leaf of the arguments; the inputs are taken as they are if left out
 * @throws ShardingError (the returned function) for inputs with other placements or on another
 * mesh, results without a size or that are distributed already, and where gradients cannot be
 * formed without `inGradPlacements`
 * @see PyTorch `torch.distributed.tensor.experimental.local_map`
 * @example
 * const x = distributeTensor(arange(10).reshape([5, 2]).float(), mesh, [Shard(0)]);
 * const double = localMap((t: Tensor) => t.mul(2), [Shard(0)], [[Shard(0)]]);
 * double(x).shape; // [5, 2]
 */
export function localMap<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  outPlacements: LocalMapPlacements | readonly LocalMapPlacements[],
  inPlacements: readonly LocalMapPlacements[] | null = null,
  options: LocalMapOptions = {},
): (...args: A) => R {
  checkFunction(OP, 'fn', fn);
  const {
    inGradPlacements = null,
    deviceMesh = null,
    redistributeInputs = false,
  } = optionsOf(OP, options, 'inGradPlacements deviceMesh redistributeInputs');
  checkFlag(OP, 'redistributeInputs', redistributeInputs);
  if (deviceMesh !== null) checkMesh(OP, deviceMesh);
  const isOne = outPlacements === null || outPlacements[0] instanceof Placement;
  const given: LocalMap = {
    outPlacements: checkList('outPlacements', isOne ? [outPlacements] : outPlacements),
    inPlacements: inPlacements && checkList('inPlacements', inPlacements),
    inGradPlacements: inGradPlacements && checkList('inGradPlacements', inGradPlacements),
    redistributeInputs,
  };
  return (...args) => {
    const inputs = new Inputs(given, deviceMesh);
    const locals = inputs.localsOf(args) as unknown as A;
    const result = fn(...locals);
    return inputs.mesh === null ? result : (distribute(result, given, inputs) as R);
  };
}

function checkList(name: string, given: unknown): readonly LocalMapPlacements[] {
  const isList = (each: unknown): boolean =>
    each === null || (Array.isArray(each) && each.every((p) => p instanceof Placement));
  if (!Array.isArray(given) || !given.every(isList))
    throw unexpected(OP, name, 'lists of Shard(dim), Replicate() and Partial(), or null', given);
  return given as LocalMapPlacements[];
}

/** @throws ShardingError unless there is an entry for each leaf */
function checkCount(name: string, list: readonly unknown[] | null, leaves: number): void {
  if (list === null || list.length === leaves) return;
  const what = name === 'outPlacements' ? 'result' : 'arguments';
  throw new ShardingError(
    `${OP}: expected ${name} of each leaf of the ${what}, which has ${leaves}, got ` +
      `${list.length}. Pass null for what is no distributed tensor.`,
    { op: OP, leaves, given: list.length },
  );
}

/** The distributed tensors of one call. */
class Inputs {
  /** Null until a distributed tensor is found. */
  mesh: DeviceMesh | null = null;
  readonly shards: LocalShard[] = [];
  private readonly given: LocalMap;
  private readonly wantedMesh: DeviceMesh | null;

  constructor(given: LocalMap, wantedMesh: DeviceMesh | null) {
    this.given = given;
    this.wantedMesh = wantedMesh;
  }

  /** The arguments with local shards in place of distributed tensors. */
  localsOf(args: readonly unknown[]): readonly unknown[] {
    let leaves = 0;
    const locals = mapLeaves((leaf) => this.localOf(leaf, leaves++), args);
    checkCount('inPlacements', this.given.inPlacements, leaves);
    checkCount('inGradPlacements', this.given.inGradPlacements, leaves);
    return locals as readonly unknown[];
  }

  private localOf(leaf: unknown, i: number): unknown {
    const wanted = this.given.inPlacements?.[i];
    if (!(leaf instanceof Tensor) || localShardOf(leaf) === null) {
      if (wanted == null) return leaf;
      throw unexpected(OP, `leaf ${i} of the arguments`, 'a distributed tensor', leaf);
    }
    const t = this.placed(leaf, i, wanted);
    const shard = localShardOf(t) as LocalShard;
    this.shards.push(shard);
    const gradPlacements =
      this.given.inGradPlacements?.[i] ?? this.gradPlacementsOf(t, shard.spec, i);
    return gradPlacements === null ? t.toLocal() : t.toLocal({ gradPlacements });
  }

  /** The input on the mesh of the call, in the placements that were asked for. */
  private placed(t: Tensor, i: number, wanted: LocalMapPlacements | undefined): Tensor {
    const { spec } = localShardOf(t) as LocalShard;
    this.mesh ??= this.wantedMesh ?? meshOf(spec);
    if (this.mesh.id !== meshOf(spec).id)
      throw new ShardingError(
        `${OP}: expected inputs on the ${this.mesh}, got leaf ${i} on the ${meshOf(spec)}. Take ` +
          'fullTensor() and distribute it there.',
        { op: OP, input: i },
      );
    if (wanted === undefined) return t;
    if (wanted === null)
      throw unexpected(OP, `inPlacements[${i}]`, 'placements of a DTensor', null);
    const chosen = checkPlacements(OP, spec.mesh, wanted, spec.ndim);
    if (chosen.every((placement, dim) => placement === spec.placements[dim])) return t;
    if (this.given.redistributeInputs) return t.redistribute(chosen);
    throw new ShardingError(
      `${OP}: expected leaf ${i} of the arguments as ${formatPlacements(chosen)}, got ` +
        `${formatPlacements(spec.placements)}. Redistribute it, or pass redistributeInputs: true.`,
      { op: OP, input: i },
    );
  }

  /** Null for those of the input. */
  private gradPlacementsOf(
    t: Tensor,
    { placements, mesh }: DTensorSpec,
    i: number,
  ): readonly Placement[] | null {
    if (!t.requiresGrad) return null;
    const results = this.given.outPlacements.filter((each) => each !== null);
    const adds = placements.map((placement, meshDim) => {
      if (!placement.isReplicate()) return false;
      const replicated = results.filter((each) => each[meshDim]?.isReplicate());
      if (replicated.length === 0) return results.length > 0;
      if (replicated.length === results.length) return false;
      throw new ShardingError(
        `${OP}: leaf ${i} of the arguments is replicated along dim ${meshDim} of the ` +
          `${mesh}, and only some results are, so its gradient is neither equal on all ranks nor ` +
          'their sum. Pass inGradPlacements, or call localMap for each result.',
        { op: OP, input: i, meshDim },
      );
    });
    if (!adds.includes(true)) return null;
    return placements.map((placement, meshDim) => (adds[meshDim] ? Partial() : placement));
  }
}

/** The result with distributed tensors in place of local ones. */
function distribute(result: unknown, { outPlacements }: LocalMap, inputs: Inputs): unknown {
  let leaves = 0;
  const distributed = mapLeaves((leaf) => {
    const i = leaves++;
    const wanted = outPlacements[i];
    if (wanted === undefined) return leaf;
    if (!(leaf instanceof Tensor)) {
      if (wanted === null) return leaf;
      throw unexpected(OP, `leaf ${i} of the result`, 'a tensor', leaf);
    }
    if (wanted === null || localShardOf(leaf) !== null)
      throw unexpected(
        OP,
        `leaf ${i} of the result`,
        wanted === null ? 'no tensor, by outPlacements' : 'a plain tensor',
        leaf,
      );
    return fromLocal(leaf, wanted, inputs);
  }, result);
  checkCount('outPlacements', outPlacements, leaves);
  return distributed;
}

function fromLocal(local: Tensor, wanted: readonly Placement[], inputs: Inputs): Tensor {
  const mesh = inputs.mesh as DeviceMesh;
  const placements = checkPlacements(OP, mesh, wanted, local.dim());
  if (mesh.getCoordinate() === null) return DTensor.fromLocal(local, mesh, placements);
  const shape = local.sizes.map((size, dim) => {
    const meshDims = placements.flatMap((p, meshDim) => (p.isShard(dim) ? [meshDim] : []));
    return meshDims.length === 0 ? size : wholeSize(size, dim, meshDims, inputs);
  });
  return DTensor.fromLocal(local, mesh, placements, { shape, stride: wholeStrides(local, shape) });
}

/** The size of a dim that mesh dims shard, from its size on this rank and the inputs. */
function wholeSize(size: number, dim: number, meshDims: readonly number[], inputs: Inputs): number {
  const { shape, coordinate } = layoutOf(inputs.mesh as DeviceMesh, meshDims);
  const ranks = shape.reduce((a, b) => a * b, 1);
  const known = [
    ...new Set(
      inputs.shards.flatMap(({ spec }) =>
        spec.order.flatMap((own, at) =>
          sameShape(own, meshDims) ? [spec.shape[at] as number] : [],
        ),
      ),
    ),
  ];
  if (known.every((whole) => whole % ranks === 0)) return size * ranks;
  const rank = shape.reduce((at, n, i) => at * n + (coordinate[i] as number), 0);
  const sizes = known.map((whole) => sizesOf(whole, shape));
  const fits = sizes.findIndex((each) => each[rank] === size);
  // Ranks decide alone, so a size that any of them could take for another one is refused by all.
  const isSure = sizes.every(
    (other, i) => i === fits || other.every((n, at) => n !== sizes[fits]?.[at]),
  );
  if (fits >= 0 && isSure) return known[fits] as number;
  throw new ShardingError(
    `${OP}: expected dim ${dim} of a result, which has ${size} elements on this rank, to be as ` +
      `long as one sharded dim of the inputs, of ${known.join(' or ')} elements, which do not ` +
      `divide evenly over ${ranks} ranks. Call fn with toLocal(), and DTensor.fromLocal with the ` +
      'shape and stride of the whole.',
    { op: OP, dim, size, known },
  );
}

const layoutOf = (mesh: DeviceMesh, meshDims: readonly number[]) => ({
  shape: meshDims.map((meshDim) => mesh.shape[meshDim] as number),
  coordinate: meshDims.map((meshDim) => (mesh.getCoordinate() as Shape)[meshDim] as number),
});

/** The sizes of a dim on all ranks, each mesh dim sharding the chunks of the one before. */
const sizesOf = (whole: number, ranks: Shape): number[] =>
  ranks.reduce<number[]>(
    (sizes, n) => sizes.flatMap((size) => chunksOf(size, n).map((chunk) => chunk.size)),
    [whole],
  );
