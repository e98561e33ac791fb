/** The methods and properties of distributed tensors, added to Tensor. */
import { asynchronous } from '../core/asynchronous.js';
import { atCallSite } from '../core/call-site.js';
import { ShardingError } from '../core/errors.js';
import { checkFlag, optionsOf, unexpected } from '../core/options.js';
import type { Placement } from '../core/placement.js';
import { Tensor } from '../core/tensor.js';
import type { DeviceMesh } from '../distributed/device-mesh/device-mesh.js';
import { requireLocalShard, toLocalTensor, toSpec } from './ops.js';
import { checkMesh, checkPlacements, checkShardOrder } from './spec/checks.js';
import { meshOf } from './spec/local-shard.js';
import { type DTensorSpec, placeSpec, replicateSpec, type ShardOrder } from './spec/spec.js';

/** Options of `redistribute`. */
export interface RedistributeOptions {
  /** For each tensor dim, the mesh dims that shard it, outermost first; see `DTensorSpec`. */
  shardOrder?: ShardOrder;
  /**
   * Whether the result of `toLocal()` is an `AsyncCollectiveTensor`. Results need no wait, with or
   * without this option.
   */
  asyncOp?: boolean;
}

/** Options of `toLocal` and `fullTensor`. */
export interface ToLocalOptions {
  /** The placements of the gradient of the local tensor; by default those of the tensor. */
  gradPlacements?: readonly Placement[];
}

function redistribute(
  t: Tensor,
  mesh: DeviceMesh | readonly Placement[] | undefined,
  placements?: readonly Placement[],
  options: RedistributeOptions = {},
): Tensor {
  const { spec } = requireLocalShard('redistribute', t);
  if (Array.isArray(mesh))
    return redistribute(t, undefined, mesh, placements as RedistributeOptions | undefined);
  const { shardOrder, asyncOp } = optionsOf('redistribute', options, 'shardOrder asyncOp');
  if (asyncOp !== undefined) checkFlag('redistribute', 'asyncOp', asyncOp);
  const own = meshOf(spec);
  if (mesh !== undefined) checkMesh('redistribute', mesh);
  if (mesh !== undefined && mesh.id !== own.id) {
    throw new ShardingError(
      `redistribute: expected placements on the tensor's own ${own}, got another mesh, ` +
        `${mesh}. Take fullTensor() and distribute it there.`,
      {
        op: 'redistribute',
      },
    );
  }
  const wanted = wantedSpec(spec, placements, shardOrder);
  const moved =
    wanted === spec ? toSpec(t, wanted) : atCallSite(() => toSpec(t, wanted), redistribute);
  if (asyncOp === true && wanted !== spec)
    asynchronous(requireLocalShard('redistribute', moved).local);
  return moved;
}

function wantedSpec(
  spec: DTensorSpec,
  placements: readonly Placement[] | undefined,
  shardOrder: ShardOrder | undefined,
): DTensorSpec {
  if (placements === undefined)
    throw unexpected(
      'redistribute',
      'placements',
      'one for each mesh dim, such as [Replicate()]',
      placements,
    );
  if (
    shardOrder === undefined &&
    spec.asked !== null &&
    sameItems(spec.asked.placements, placements)
  )
    return spec.asked.spec;
  const own = spec.mesh;
  const chosen = checkPlacements('redistribute', own, placements, spec.ndim);
  if (shardOrder !== undefined) checkShardOrder('redistribute', own, chosen, shardOrder);
  const wanted = placeSpec(spec, chosen, shardOrder ?? null);
  if (shardOrder === undefined) spec.asked = { placements: [...placements], spec: wanted };
  return wanted;
}

function sameItems(a: readonly Placement[], b: readonly Placement[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

function gradPlacementsOf(
  op: string,
  spec: DTensorSpec,
  options: ToLocalOptions,
): readonly Placement[] | null {
  const { gradPlacements } = optionsOf(op, options, 'gradPlacements');
  return gradPlacements === undefined
    ? null
    : checkPlacements(op, spec.mesh, gradPlacements, spec.ndim);
}

const members: PropertyDescriptorMap & ThisType<Tensor> = {
  placements: {
    get(): readonly Placement[] {
      return requireLocalShard('placements', this).spec.placements;
    },
    configurable: true,
  },
  deviceMesh: {
    get(): DeviceMesh {
      return meshOf(requireLocalShard('deviceMesh', this).spec);
    },
    configurable: true,
  },
  _localTensor: {
    get(): Tensor {
      return requireLocalShard('_localTensor', this).local;
    },
    configurable: true,
  },
  _spec: {
    get(): DTensorSpec {
      return requireLocalShard('_spec', this).spec;
    },
    configurable: true,
  },
  redistribute: {
    value(
      mesh?: DeviceMesh | readonly Placement[],
      placements?: readonly Placement[],
      options?: RedistributeOptions,
    ): Tensor {
      return redistribute(this, mesh, placements, options);
    },
    writable: true,
    configurable: true,
  },
  toLocal: {
    value(options: ToLocalOptions = {}): Tensor {
      return toLocalTensor(
        this,
        gradPlacementsOf('toLocal', requireLocalShard('toLocal', this).spec, options),
      );
    },
    writable: true,
    configurable: true,
  },
  fullTensor: {
    value(options: ToLocalOptions = {}): Tensor {
      const { spec } = requireLocalShard('fullTensor', this);
      const grads = gradPlacementsOf('fullTensor', spec, options);
      return toLocalTensor(toSpec(this, replicateSpec(spec)), grads);
    },
    writable: true,
    configurable: true,
  },
};
Object.defineProperties(Tensor.prototype, members);

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * The placements of a distributed tensor, one for each mesh dimension.
     *
     * @throws ShardingError for a plain tensor
     */
    readonly placements: readonly Placement[];
    /** The mesh of a distributed tensor. @throws ShardingError for a plain tensor */
    readonly deviceMesh: DeviceMesh;
    /**
     * The local shard of a distributed tensor, without history. It lives as long as the tensor.
     *
     * @throws ShardingError for a plain tensor
     */
    readonly _localTensor: Tensor;
    /**
     * The mesh, placements and metadata of a distributed tensor.
     *
     * @throws ShardingError for a plain tensor
     */
    readonly _spec: DTensorSpec;
    /**
     * The same tensor in other placements on the same mesh, with the fewest collectives. All ranks
     * of the mesh call it. Gradient: redistributed back, with Replicate in place of Partial.
     *
     * @throws ArgumentError without placements; ShardingError for a plain tensor, another mesh, or
     * Partial where the tensor does not have the same Partial
     * @see PyTorch `torch.distributed.tensor.DTensor.redistribute`
     * @example
     * const rows = DTensor.fromLocal(full([1], rank), mesh, [Shard(0)]);
     * await rows.redistribute([Replicate()]).toLocal().read(); // [0, 1]
     */
    redistribute(placements: readonly Placement[], options?: RedistributeOptions): Tensor;
    redistribute(
      mesh: DeviceMesh | undefined,
      placements: readonly Placement[],
      options?: RedistributeOptions,
    ): Tensor;
    /**
     * The local shard of a distributed tensor, as a plain tensor on the same memory. Gradient: the
     * gradients of the local tensors form a distributed tensor with `gradPlacements`.
     *
     * @throws ShardingError for a plain tensor
     * @see PyTorch `torch.distributed.tensor.DTensor.to_local`
     * @example
     * distributeTensor(zeros([5]), mesh, [Replicate()]).toLocal().shape; // [5]
     */
    toLocal(options?: ToLocalOptions): Tensor;
    /**
     * The whole tensor on every rank, as a plain tensor. All ranks of the mesh call it.
     *
     * @throws ShardingError for a plain tensor
     * @see PyTorch `torch.distributed.tensor.DTensor.full_tensor`
     * @example
     * const t = DTensor.fromLocal(full([1], rank), mesh, [Shard(0)]);
     * await t.fullTensor().read(); // [0, 1]
     */
    fullTensor(options?: ToLocalOptions): Tensor;
  }
}
