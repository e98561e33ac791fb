/** The class DTensor, and the functions that create distributed tensors from plain ones. */
import { withPurpose } from '../core/call-context.js';
import { chunksOf } from '../core/chunks.js';
import type { CollectiveGroup } from '../core/collective.js';
import { AutogradError, ShapeError, ShardingError } from '../core/errors.js';
import { checkFlag, optionsOf, unexpected } from '../core/options.js';
import { type Placement, Replicate } from '../core/placement.js';
import { contiguousStrides, formatShape, numelOf, type Shape, sameShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import type { DeviceMesh } from '../distributed/device-mesh/device-mesh.js';
import { getCurrentMesh } from '../distributed/device-mesh/device-mesh.js';
import { broadcastTensor } from '../ops/collectives.js';
import { cat } from '../ops/join.js';
import { checkLocalShape, localShardOf } from './spec/local-shard.js';
import './tensor-methods.js';
import { createDTensor, fromLocalTensor } from './ops.js';
import { checkMesh, checkPlacements, checkShardOrder } from './spec/checks.js';
import {
  type DTensorSpec,
  formatPlacements,
  internSpec,
  placeSpec,
  type ShardOrder,
} from './spec/spec.js';
import { fitLocalShards, type UnevenOptions } from './uneven.js';

/** Options of {@link DTensor.fromLocal}. */
export interface FromLocalOptions {
  /**
   * Compares shapes, dtypes and placements of the ranks, with one small collective for each mesh
   * dimension; a mismatch is a CollectiveError when a value is read. It also makes replicas equal:
   * the values of the first rank of a replicating mesh dimension win. False by default.
   */
  runCheck?: boolean;
  /** The sizes of the whole tensor, if local shards differ in size; requires `stride`. */
  shape?: Shape;
  /** The strides of the whole tensor. */
  stride?: Shape;
  /**
   * For each tensor dim, the mesh dims that shard it, outermost first; see `DTensorSpec`. By
   * default in ascending order.
   */
  shardOrder?: ShardOrder;
}

/**
 * A tensor that is distributed over the ranks of a mesh. It has the shape of the whole tensor; ops
 * run on the local shards and communicate where necessary. `t instanceof DTensor` is true for any
 * tensor with a sharding, also a parameter.
 *
 * @see PyTorch `torch.distributed.tensor.DTensor`
 */
export class DTensor extends Tensor {
  /**
   * A distributed tensor over the local shard `local`, on the same memory. Nothing is checked
   * across ranks.
   *
   * @throws ShardingError if `local` does not have the shape of the shard
   */
  constructor(local: Tensor, spec: DTensorSpec, options: { requiresGrad?: boolean } = {}) {
    const { requiresGrad = false } = optionsOf('DTensor', options, 'requiresGrad');
    super(
      spec.shape,
      spec.tensorMeta.strides,
      0,
      spec.dtype,
      local.device,
      local.liveStorage('DTensor'),
    );
    this.sharding = createDTensor(local, spec).sharding;
    this.versionCounter = local.sharedVersion();
    this.requiresGrad_(requiresGrad);
  }

  static override [Symbol.hasInstance](value: unknown): boolean {
    return value instanceof Tensor && value.sharding !== null;
  }

  /**
   * A distributed tensor over the local shard `local`. The shards of all ranks have one shape,
   * unless `shape` and `stride` of the whole tensor are given. Gradient: the local shard of the
   * gradient in the same placements; for Partial, the whole gradient.
   *
   * @param mesh - that of `mesh.run` around the call if left out
   * @param placements - replicated if left out
   * @throws ShardingError, ShapeError if `local` does not fit the placements
   * @see PyTorch `torch.distributed.tensor.DTensor.from_local`
   * @example
   * const t = DTensor.fromLocal(ones([2, 3]), mesh, [Shard(0)]);
   * t.shape; // [4, 3]
   */
  static fromLocal(
    local: Tensor,
    mesh: DeviceMesh = getCurrentMesh('DTensor.fromLocal'),
    placements?: readonly Placement[],
    options: FromLocalOptions = {},
  ): Tensor {
    const op = 'DTensor.fromLocal';
    requirePlainTensor(op, local);
    const {
      runCheck = false,
      shape,
      stride,
      shardOrder = [],
    } = optionsOf(op, options, 'runCheck shape stride shardOrder');
    checkFlag(op, 'runCheck', runCheck);
    checkMesh(op, mesh);
    const chosen = checkPlacements(
      op,
      mesh,
      placements ?? mesh.shape.map(() => Replicate()),
      local.dim(),
    );
    if ((shape === undefined) !== (stride === undefined))
      throw new ShapeError(
        `${op}: expected both shape and stride of the whole tensor, or neither, got only ` +
          `${shape === undefined ? 'stride' : 'shape'}`,
        { op },
      );
    checkShardOrder(op, mesh, chosen, shardOrder);
    const whole = shape ?? wholeShape(local.sizes, mesh, chosen);
    const spec = internSpec(mesh, chosen, shardOrder, {
      shape: whole,
      strides: stride ?? wholeStrides(local, whole),
      dtype: local.dtype,
    });
    // A rank outside of the mesh holds nothing of the tensor, whatever it passes.
    if (mesh.getCoordinate() === null) return fromLocalTensor(local.newEmpty(NOTHING), spec);
    if (shape !== undefined) checkLocalShape(op, local, spec, WHOLE_SHAPE);
    return fromLocalTensor(
      local,
      spec,
      runCheck ? agreementText(local, spec, shape === undefined) : null,
    );
  }

  /**
   * Like {@link DTensor.fromLocal}, for local shards that may differ in size. The ranks exchange
   * their sizes with one small collective for each mesh dimension. A rank outside of the mesh gets
   * an empty tensor of unknown shape. Gradient: as of `fromLocal`.
   *
   * @throws ShardingError (the promise is rejected), on all ranks, unless the sizes are those of
   * `Shard`, or `rebalance` can make them so
   */
  static async fromLocalUneven(
    local: Tensor,
    mesh: DeviceMesh,
    placements: readonly Placement[],
    options: UnevenOptions = {},
  ): Promise<Tensor> {
    const op = 'DTensor.fromLocalUneven';
    requirePlainTensor(op, local);
    const { rebalance = false } = optionsOf(op, options, 'rebalance');
    checkFlag(op, 'rebalance', rebalance);
    checkMesh(op, mesh);
    const chosen = checkPlacements(op, mesh, placements, local.dim());
    if (mesh.getCoordinate() === null) return DTensor.fromLocal(local, mesh, chosen);
    const { local: fitted, shape } = await fitLocalShards(op, local, mesh, chosen, rebalance);
    return fromLocalTensor(
      fitted,
      internSpec(mesh, chosen, [], {
        shape,
        strides: contiguousStrides(shape),
        dtype: local.dtype,
      }),
    );
  }
}

const NOTHING: Shape = [0];
const WHOLE_SHAPE =
  'shape and stride are those of the whole tensor; leave them out if all ranks have local ' +
  'shards of one shape.';

function requirePlainTensor(op: string, local: Tensor): void {
  if (!(local instanceof Tensor) || local.storage === null)
    throw unexpected(op, 'local', 'a tensor', local);
  if (localShardOf(local) !== null)
    throw new ShardingError(
      `${op}: expected a plain tensor, got a distributed one. Use redistribute, or toLocal() ` +
        'first.',
      { op },
    );
}

/**
 * What must be equal on all ranks; the errors of a mismatch quote it. The mesh comes last, because
 * a long text loses its end.
 */
function agreementText(
  { dtype, sizes: shape }: Tensor,
  spec: DTensorSpec,
  equalShapes: boolean,
): string {
  const placed = `as ${spec.placementsInWords()}`;
  if (!equalShapes) {
    const whole =
      `${spec.tensorInWords()} ${placed}, strides ${formatShape(spec.tensorMeta.strides)}, on ` +
      `${spec.meshInWords()}`;
    return (
      `with a shard of ${whole}\nPass the same shape, stride and placements of the whole ` +
      'tensor on all ranks.'
    );
  }
  const advice =
    'All ranks need the same placements on the same mesh, and local shards of one shape and ' +
    'dtype. For shards of different sizes use DTensor.fromLocalUneven, or pass shape and ' +
    'stride of the whole tensor.';
  return (
    `with a local shard ${dtype.name}${formatShape(shape)} ${placed} on ${spec.meshInWords()}\n` +
    `${advice}`
  );
}

/** The shape of the whole tensor if all local shards have the shape of this one. */
function wholeShape(local: Shape, mesh: DeviceMesh, placements: readonly Placement[]): Shape {
  const shape = [...local];
  placements.forEach((placement, meshDim) => {
    if (placement.isShard())
      shape[placement.dim] = (shape[placement.dim] as number) * (mesh.shape[meshDim] as number);
  });
  return shape;
}

/** Strides of the whole tensor, with the dims in the memory order of the local shard. @internal */
export function wholeStrides(local: Tensor, shape: Shape): Shape {
  if (sameShape(local.sizes, shape) || local.isContiguous())
    return sameShape(local.sizes, shape) ? local.strides : contiguousStrides(shape);
  const byStride = local.strides
    .map((stride, dim) => ({ stride, dim }))
    .sort((a, b) => a.stride - b.stride || b.dim - a.dim);
  const strides = new Array<number>(shape.length);
  let next = 1;
  for (const { dim } of byStride) {
    strides[dim] = next;
    next *= Math.max(1, shape[dim] as number);
  }
  return strides;
}

/** Options of {@link distributeTensor}. */
export interface DistributeOptions {
  /**
   * The source of values. 0: the first rank along each mesh dimension sends its values. null: every
   * rank takes its shard from its own tensor, and nothing is sent.
   */
  srcDataRank?: 0 | null;
  /**
   * For each tensor dim, the mesh dims that shard it, outermost first; see `DTensorSpec`. By
   * default in ascending order.
   */
  shardOrder?: ShardOrder;
}

/**
 * Distributes a leaf tensor that every rank has as a whole; the result is a leaf. The values of the
 * mesh's first rank win. All ranks of the mesh call it. A tensor on `meta` stays there, without
 * communication.
 *
 * @param mesh - that of `mesh.run` around the call if left out
 * @param placements - one for each mesh dimension; replicated if left out
 * @throws ShardingError for Partial, or a tensor that is distributed with another spec;
 * AutogradError for a tensor that is not a leaf
 * @see PyTorch `torch.distributed.tensor.distribute_tensor`
 * @example
 * const t = distributeTensor(arange(4), mesh, [Shard(0)]);
 * t.shape; // [4]
 * t.toLocal().shape; // [2]
 */
export function distributeTensor(
  tensor: Tensor,
  mesh: DeviceMesh = getCurrentMesh('distributeTensor'),
  placements?: readonly Placement[],
  options: DistributeOptions = {},
): Tensor {
  const op = 'distributeTensor';
  if (!(tensor instanceof Tensor) || tensor.storage === null)
    throw unexpected(op, 'tensor', 'a tensor', tensor);
  const { srcDataRank = 0, shardOrder = [] } = optionsOf(op, options, 'srcDataRank shardOrder');
  if (srcDataRank !== 0 && srcDataRank !== null)
    throw unexpected(op, 'srcDataRank', '0 or null', srcDataRank);
  const spec = chosenSpec(op, tensor, mesh, placements, shardOrder);
  const known = localShardOf(tensor);
  if (known !== null) {
    const { order, placements: chosen } = spec;
    if (placeSpec(known.spec, chosen, order) === known.spec && known.spec.mesh === spec.mesh)
      return tensor;
    throw new ShardingError(
      `${op}: expected a plain tensor, got one that is distributed already: ${known.spec}. ` +
        'Use redistribute.',
      { op },
    );
  }
  if (!tensor.isLeaf)
    throw new AutogradError(
      `${op}: expected a leaf tensor, got a computed one. Use DTensor.fromLocal(t, ` +
        'mesh).redistribute(…), which has a gradient.',
      { op },
    );
  const purpose =
    `of ${spec.tensorInWords()} as ${spec.placementsInWords()} on ${spec.meshInWords()}\nPass ` +
    'a tensor of the same shape and the same placements on all ranks.';
  const shard = withPurpose(purpose, () =>
    tensor.isMeta
      ? shardTensor(tensor.detach(), mesh, spec, null)
      : shardTensor(tensor.detach().to(mesh.device), mesh, spec, srcDataRank),
  );
  const whole = createDTensor(shard, spec);
  return whole.requiresGrad_(tensor.requiresGrad);
}

/** The spec of a plain tensor that is to be distributed. */
function chosenSpec(
  op: string,
  tensor: Tensor,
  mesh: DeviceMesh,
  placements: readonly Placement[] | undefined,
  shardOrder: NonNullable<DistributeOptions['shardOrder']>,
): DTensorSpec {
  checkMesh(op, mesh);
  const chosen = checkPlacements(
    op,
    mesh,
    placements ?? mesh.shape.map(() => Replicate()),
    tensor.dim(),
  );
  if (chosen.some((placement) => placement.isPartial())) {
    throw new ShardingError(
      `${op}: expected Shard or Replicate, got ${formatPlacements(chosen)}. Create a partial ` +
        'DTensor with DTensor.fromLocal(t, mesh, [Partial()]).',
      { op },
    );
  }
  checkShardOrder(op, mesh, chosen, shardOrder);
  return internSpec(mesh, chosen, shardOrder, {
    shape: tensor.sizes,
    strides: contiguousStrides(tensor.sizes),
    dtype: tensor.dtype,
  });
}

/** Takes the local shard of this rank, one mesh dim after the other. */
function shardTensor(
  tensor: Tensor,
  mesh: DeviceMesh,
  spec: DTensorSpec,
  source: 0 | null,
): Tensor {
  if (mesh.getCoordinate() === null) return tensor.newEmpty([0]);
  let t = tensor.contiguous();
  for (const meshDim of shardSequence(spec)) {
    const placement = spec.placements[meshDim] as Placement;
    if (placement.isShard()) t = scatterShards(t, placement.dim, mesh, meshDim, source);
    else if (source !== null) t = broadcastTensor(t, 0, mesh.getGroup(meshDim), 'distributeTensor');
  }
  return t === tensor ? t.clone() : t;
}

/** All mesh dims, those that shard one tensor dim in shard order. */
function shardSequence({ placements, order }: DTensorSpec): readonly number[] {
  const left = order.map((meshDims) => [...meshDims]);
  return placements.map((placement, meshDim) =>
    placement.isShard() ? (left[placement.dim]?.shift() as number) : meshDim,
  );
}

function scatterShards(
  t: Tensor,
  dim: number,
  mesh: DeviceMesh,
  meshDim: number,
  source: 0 | null,
): Tensor {
  const ranks = mesh.shape[meshDim] as number;
  const chunks = chunksOf(t.sizes[dim] as number, ranks);
  const own = (mesh.getCoordinate() as readonly number[])[meshDim] as number;
  const { offset, size } = chunks[own] as { offset: number; size: number };
  if (source === null) return t.narrow(dim, offset, size).clone();
  const shapeOf = (count: number): Shape => t.sizes.map((n, i) => (i === dim ? count : n));
  const group: CollectiveGroup = mesh.getGroup(meshDim);
  const output = t.newEmpty(shapeOf(size));
  const counts = chunks.map((chunk) => numelOf(shapeOf(chunk.size)));
  const input =
    own === 0
      ? cat(chunks.map((chunk) => t.narrow(dim, chunk.offset, chunk.size).reshape([-1])))
      : null;
  group.run('distributeTensor', { kind: 'scatter', input, output, root: 0, counts });
  return output;
}
