/** One parameter of a group: where it is used, how it is divided, and its forms. */

import { chunkOf, chunkSize } from '../../core/chunks.js';
import { contiguousStrides, numelOf } from '../../core/shape.js';
import type { DeviceMesh } from '../../distributed/index.js';
import { DTensor, type DTensorSpec, type Placement, type ShardOrder } from '../../dtensor/index.js';
import { type nn, noGrad, type Shape, ShardingError, type Tensor } from '../../index.js';
import { describeTensor } from '../common/same-parameters.js';
import type { ShardMesh } from './shard-mesh.js';

/** A property of a module that holds the parameter. */
export interface Slot {
  readonly module: nn.AnyModule;
  readonly name: string;
}

/** Placements of a parameter on the mesh of tensor parallelism. */
interface TensorParallel {
  readonly mesh: DeviceMesh;
  readonly placements: readonly Placement[];
}

/** The whole parameter as a distributed tensor. */
interface ShardedSpec {
  readonly mesh: DeviceMesh;
  readonly placements: readonly Placement[];
  readonly shape: Shape;
  readonly shardOrder: ShardOrder;
}

/**
 * A parameter whose shard is a part of its group's flat shard. Rows are padded to equal chunks
 * there, so that one collective moves all parameters of the group.
 */
export class ShardedParameter {
  /** The parameter that optimizers hold: a distributed tensor over the shard. */
  readonly parameter: nn.Parameter;
  readonly slots: readonly Slot[];
  /** The dotted path from the root, known after the first forward of the root. */
  path: string;
  /** The dim that is sharded. */
  readonly dim: number;
  /** The shape of the tensor that is sharded: with tensor parallelism that of the local shard. */
  readonly shape: Shape;
  /** The shape of each rank's padded shard. */
  readonly paddedShape: Shape;
  /** Elements of each rank's padded shard. */
  readonly paddedNumel: number;
  /** The shape of this rank's shard. */
  readonly shardShape: Shape;
  private readonly shardStrides: readonly number[];
  private readonly strides: readonly number[];
  private known: DTensorSpec | null = null;
  private readonly shards: ShardMesh;
  private readonly spec: ShardedSpec;
  private readonly tensorParallel: TensorParallel | null;

  /** @throws ShardingError for a parameter that cannot be sharded in this dim */
  constructor(path: string, slots: readonly Slot[], dim: number, shards: ShardMesh) {
    const [slot] = slots as [Slot];
    this.parameter = (slot.module as unknown as Record<string, nn.Parameter>)[
      slot.name
    ] as nn.Parameter;
    this.path = path;
    this.slots = slots;
    this.shards = shards;
    const { parameter } = this;
    this.tensorParallel =
      parameter instanceof DTensor
        ? { mesh: parameter.deviceMesh, placements: parameter.placements }
        : null;
    this.shape = noGrad(() => localOf(parameter)).shape;
    this.dim = this.checkedDim(dim);
    const rows = this.shape[this.dim] as number;
    const withRows = (count: number): Shape =>
      this.shape.map((size, i) => (i === this.dim ? count : size));
    this.paddedShape = withRows(chunkSize(rows, shards.ranks));
    this.paddedNumel = numelOf(this.paddedShape);
    this.shardShape = withRows(chunkOf(rows, shards.ranks, shards.rank).size);
    this.shardStrides = contiguousStrides(this.shardShape);
    this.strides = contiguousStrides(this.shape);
    this.spec = this.shardedSpec();
  }

  private checkedDim(dim: number): number {
    const { shape, path, shards } = this;
    if (shape.length === 0)
      throw new ShardingError(
        `fullyShard: expected parameters of at least one dim, got "${path}" without dims. Make ` +
          'it a tensor of one element: nn.Parameter(t.reshape([1])).',
        { op: 'fullyShard', parameter: path },
      );
    const wrapped = dim < 0 ? dim + shape.length : dim;
    if (wrapped < 0 || wrapped >= shape.length)
      throw new ShardingError(
        `fullyShard: shardPlacementFn returned Shard(${dim}) for "${path}" of shape ` +
          `[${shape.join(', ')}]`,
        { op: 'fullyShard', parameter: path, dim },
      );
    if (wrapped !== 0 && (shape[wrapped] as number) % shards.ranks !== 0)
      throw new ShardingError(
        `fullyShard: expected dim ${wrapped} of "${path}", of shape [${shape.join(', ')}], to be ` +
          `a multiple of the ${shards.ranks} ranks; only dim 0 may be uneven`,
        { op: 'fullyShard', parameter: path, dim: wrapped, ranks: shards.ranks },
      );
    return wrapped;
  }

  private shardedSpec(): ShardedSpec {
    const own = this.shards.placements(this.dim);
    const { tensorParallel, parameter, shards } = this;
    if (tensorParallel === null)
      return { mesh: shards.mesh, placements: own, shape: this.shape, shardOrder: [] };
    const mesh = meshOfBoth(this.path, shards.mesh, tensorParallel.mesh);
    const placements = [...own, ...tensorParallel.placements];
    // Tensor parallelism sharded first, so its mesh dims are the outer ones of a common tensor dim.
    const inner = own.length - 1;
    const outer = tensorParallel.placements.flatMap((placement, i) =>
      placement.isShard(this.dim) ? [own.length + i] : [],
    );
    const shardOrder: number[][] = [];
    if (outer.length > 0) {
      for (let dim = 0; dim < this.shape.length; dim++)
        shardOrder.push(placements.flatMap((p, i) => (p.isShard(dim) ? [i] : [])));
      shardOrder[this.dim] = [...outer, inner];
    }
    return { mesh, placements, shape: parameter.shape, shardOrder };
  }

  /** A distributed tensor over a part of a flat shard or of a flat gradient. */
  distributed(flat: Tensor, offset: number): Tensor {
    return this.overShard(this.shardIn(flat, offset));
  }

  /** The local shard in a flat shard or in a flat gradient. */
  shardIn(flat: Tensor, offset: number): Tensor {
    return flat.asStrided(this.shardShape, this.shardStrides, offset);
  }

  /** A distributed tensor over a local shard. */
  overShard(local: Tensor): Tensor {
    // Every backward pass comes here for every parameter: the checks are made once.
    if (this.known?.dtype === local.dtype && !local.requiresGrad)
      return new DTensor(local, this.known);
    const { mesh, placements, shape, shardOrder } = this.spec;
    const made = DTensor.fromLocal(local, mesh, placements, {
      shape,
      stride: contiguousStrides(shape),
      shardOrder,
    });
    this.known = made._spec;
    return made;
  }

  /** The path of what lies at an offset of the shard or of the whole parameter. */
  pathAt(_offset: number): string {
    return this.path;
  }

  /** Whether the shard is the whole parameter, as modules use it. */
  get isWhole(): boolean {
    return false;
  }

  /** The memory of this rank's shard, without history. */
  shard(): Tensor {
    return noGrad(() => localOf(this.parameter).detach());
  }

  /** This rank's rows of a whole parameter. */
  takeShard(whole: Tensor): Tensor {
    const { ranks, rank } = this.shards;
    const { offset, size } = chunkOf(this.shape[this.dim] as number, ranks, rank);
    return whole.narrow(this.dim, offset, size);
  }

  /** The whole parameter in a flat buffer: with tensor parallelism the local shard of that. */
  unsharded(flat: Tensor, offset: number): Tensor {
    return flat.asStrided(this.shape, this.strides, offset);
  }

  /** The whole parameter as modules use it. Its gradient comes in the parameter's placements. */
  asUsed(whole: Tensor): Tensor {
    if (this.tensorParallel === null) return whole;
    const { mesh, placements } = this.tensorParallel;
    const { shape } = this.parameter;
    return DTensor.fromLocal(whole, mesh, placements, { shape, stride: contiguousStrides(shape) });
  }

  /** Adds a gradient of the shard to that of the parameter. */
  addGradient(grad: Tensor): void {
    const { parameter } = this;
    const fitted = grad.to(parameter.gradDtype);
    parameter.grad = parameter.grad === null ? fitted : parameter.grad.add(fitted);
  }

  /** What all ranks must have in common. `prefix` is the path of the module with a dot. */
  describe(prefix: string): string[] {
    const { parameter, path, dim, tensorParallel } = this;
    const name = path.startsWith(prefix) ? path.slice(prefix.length) : path;
    const placements = tensorParallel?.placements.map((placement) => ` ${placement}`) ?? [];
    const sharded = dim === 0 ? '' : ` along dim ${dim}`;
    return [`${name} ${describeTensor(parameter)}${placements.join('')}${sharded}`];
  }

  /** Puts a tensor in every module that uses the parameter. */
  set(tensor: Tensor): void {
    for (const { module, name } of this.slots)
      (module as unknown as Record<string, Tensor>)[name] = tensor;
  }
}

/** How often shards were changed in place: an optimizer's step counts once for each. */
export function versionOf(parameters: readonly ShardedParameter[]): number {
  let sum = 0;
  for (const { parameter } of parameters) sum += parameter._version;
  return sum;
}

/** The tensor in the memory of this rank. */
export function localOf(t: Tensor): Tensor {
  return t instanceof DTensor ? t.toLocal() : t;
}

/** The mesh of both kinds of parallelism, of which the two given ones are slices. */
function meshOfBoth(path: string, data: DeviceMesh, tensor: DeviceMesh): DeviceMesh {
  const [first, second] = [data.meshDimNames, tensor.meshDimNames];
  if (data.root !== tensor.root || first === null || second === null)
    throw new ShardingError(
      `fullyShard: expected the mesh ${data} and the mesh ${tensor} of "${path}" to be slices of ` +
        "one mesh with names. Make it with initDeviceMesh('cpu', [2, 2], { meshDimNames: " +
        "['dp', 'tp'] }), and pass mesh.get('tp') to parallelizeModule and mesh.get('dp') here.",
      { op: 'fullyShard', parameter: path },
    );
  return data.root.get([...first, ...second]);
}
