/** The mesh over which a group of parameters is sharded, and the groups of this rank in it. */
import { unexpected } from '../../core/options.js';
import {
  DeviceMesh,
  getWorldSize,
  initDeviceMesh,
  type ProcessGroup,
  worldGroup,
} from '../../distributed/index.js';
import { DTensor, type Placement, Replicate, Shard } from '../../dtensor/index.js';
import { cuda, type nn, ShardingError } from '../../index.js';

/** The mesh of all ranks, by the world and the type of device: meshes make groups. */
const worldMeshes = new WeakMap<ProcessGroup, Map<string, DeviceMesh>>();

/**
 * The devices that compute with a parameter: of a sharded one those of its mesh, because its shard
 * may be offloaded. Parameters on the device meta get memory on a GPU, if there is one.
 */
function deviceType(parameter: nn.Parameter | undefined): 'cpu' | 'cuda' {
  if (parameter instanceof DTensor) return parameter.deviceMesh.deviceType;
  const type = parameter?.device.type ?? 'cpu';
  if (type !== 'meta') return type;
  return cuda.isAvailable() ? 'cuda' : 'cpu';
}

/** A mesh of all ranks for the devices of the parameters of modules. */
export function worldMesh(modules: readonly nn.AnyModule[]): DeviceMesh {
  const [parameter] = modules.flatMap((module) => [...module.parameters()]);
  const type = deviceType(parameter);
  const world = worldGroup();
  const meshes = worldMeshes.get(world) ?? new Map<string, DeviceMesh>();
  worldMeshes.set(world, meshes);
  const known = meshes.get(type) ?? initDeviceMesh(type, [getWorldSize()]);
  meshes.set(type, known);
  return known;
}

type Nested = number | readonly Nested[];

const flatten = (ranks: Nested): number[] =>
  typeof ranks === 'number' ? [ranks] : ranks.flatMap(flatten);

/** Meshes of smaller groups, by the mesh and the size: calls with equal options share them. */
const smallerMeshes = new WeakMap<DeviceMesh, Map<number, DeviceMesh>>();

/**
 * Consecutive groups of `size` ranks along the last dim of a mesh. All ranks of the mesh call it.
 */
function smallerMesh(mesh: DeviceMesh, size: number): DeviceMesh {
  const known = smallerMeshes.get(mesh) ?? new Map<number, DeviceMesh>();
  smallerMeshes.set(mesh, known);
  let made = known.get(size);
  if (made === undefined) {
    const ranks = flatten(mesh.mesh);
    const rows = Array.from({ length: ranks.length / size }, (_, i) =>
      ranks.slice(i * size, (i + 1) * size),
    );
    made = new DeviceMesh(mesh.deviceType, rows, { meshDimNames: ['outer', 'inner'] }).get('inner');
    known.set(size, made);
  }
  return made;
}

/** One dim shards; a dim before it, if there is one, replicates (hybrid sharding). */
export class ShardMesh {
  readonly mesh: DeviceMesh;
  /** The ranks that each hold a shard. */
  readonly group: ProcessGroup;
  readonly ranks: number;
  /** The place of this rank among them. */
  readonly rank: number;
  /** The ranks that hold the same shard; null if there is one. */
  readonly replicas: ProcessGroup | null;

  /** @throws ArgumentError, ShardingError */
  constructor(op: string, mesh: DeviceMesh) {
    if (!(mesh instanceof DeviceMesh)) throw unexpected(op, 'mesh', 'a DeviceMesh', mesh);
    if (mesh.ndim > 2)
      throw new ShardingError(
        `${op}: expected a mesh of one dim, which shards, or of two, of which the first ` +
          `replicates, got ${mesh}. Pass a slice such as mesh.get('dp').`,
        { op, ndim: mesh.ndim },
      );
    const coordinate = mesh.getCoordinate();
    if (coordinate === null)
      throw new ShardingError(
        `${op}: this rank, ${mesh.getRank()}, is not in ${mesh}. Call it on the ranks of the ` +
          'mesh only.',
        { op, rank: mesh.getRank() },
      );
    const shardDim = mesh.ndim - 1;
    this.mesh = mesh;
    this.group = mesh.getGroup(shardDim);
    this.ranks = mesh.size(shardDim);
    this.rank = coordinate[shardDim] as number;
    this.replicas = mesh.ndim === 2 && mesh.size(0) > 1 ? mesh.getGroup(0) : null;
  }

  /** Groups of `size` of the ranks that each hold a shard. */
  smaller(size: number): ShardMesh | null {
    return size === this.ranks ? null : new ShardMesh('fullyShard', smallerMesh(this.mesh, size));
  }

  /** The placements of a parameter that is sharded in `dim`. */
  placements(dim: number): Placement[] {
    return this.mesh.ndim === 2 ? [Replicate(), Shard(dim)] : [Shard(dim)];
  }
}
