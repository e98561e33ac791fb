/**
 * The class of device meshes: a grid of ranks with named dimensions, its slices and its groups; and
 * the current mesh, PyTorch's `with mesh:`.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import type { Device } from '../../core/device.js';
import { type DeviceType, device as deviceOf } from '../../core/device.js';
import { ArgumentError, DistributedError } from '../../core/errors.js';
import type { DrawPlace } from '../../core/mesh-rng.js';
import { checkFunction, shown, unexpected } from '../../core/options.js';
import { UNCHANGING } from '../../core/plain-object.js';
import type { RankRuntime } from '../../core/rank-runtime.js';
import type { CreationMismatch, GroupCreation } from '../process-group/diagnosis/creation-log.js';
import { type NestedRanks, nestRanks, sliceThrough } from '../process-group/nested-ranks.js';
import type { ProcessGroup } from '../process-group/process-group.js';
import type { RankContext } from '../process-group/rank-context.js';
import { coordinateOf, findDim, type MeshPlan, planKey, textOf } from './checks.js';
import { drawsOf, failOwn, groupAlong, meshId } from './groups.js';
import { meshDimName } from './layout.js';

/** The mesh of the innermost `run`; follows asynchronous calls, so each local rank has its own. */
const current = new AsyncLocalStorage<Mesh>();

/**
 * The mesh of the innermost {@link DeviceMesh.run} around the call; `op` is the caller, for the
 * error.
 *
 * @throws ArgumentError without a current mesh
 * @see PyTorch `torch.distributed.device_mesh._mesh_resources.get_current_mesh`
 */
export function getCurrentMesh(op = 'getCurrentMesh'): DeviceMesh {
  const mesh = current.getStore();
  if (mesh !== undefined) return mesh;
  throw new ArgumentError(
    `${op}: expected mesh to be a DeviceMesh, got none. Give one, or call it inside ` +
      'mesh.run(() => …), which sets the current mesh.',
    { op, argument: 'mesh' },
  );
}

/** How a mesh relates to other meshes and to existing groups. */
interface Origin {
  /** Names of the groups given to `fromGroup`, else empty: such a mesh equals no other. */
  readonly family: string;
  /** The mesh that this one is a slice of; null for a root. */
  readonly root: Mesh | null;
  /** For each dimension, the dimensions of the root that it consists of. */
  readonly rootDims: readonly (readonly number[])[];
  /** Existing groups. */
  readonly groups: readonly ProcessGroup[];
  /** The call that made it, if others are to make it alike. */
  readonly creation?: GroupCreation | null;
}

/** @internal */
export class Mesh {
  /** @internal */
  readonly [UNCHANGING] = true;
  /** @internal equal for equal meshes, except those created from groups */
  readonly id: number;
  /** Device type of the tensors on it. */
  readonly deviceType: DeviceType;
  /** Sizes of the dimensions. */
  readonly shape: readonly number[];
  /** The name of each mesh dimension; null for a mesh without names. */
  readonly meshDimNames: readonly string[] | null;
  /** @internal ranks of the world, row-major */
  readonly ranks: readonly number[];
  /** @internal the random draws of its ranks */
  readonly draws: DrawPlace;
  private readonly context: RankContext;
  private readonly coordinate: readonly number[] | null;
  private readonly groups: (ProcessGroup | undefined)[];
  /** Groups along several dimensions, by the dimensions. */
  private readonly across = new Map<string, ProcessGroup>();
  private readonly family: string;
  /** The mesh that this one is a slice of; a mesh that is no slice is its own root. */
  readonly root: Mesh;
  private readonly rootDims: readonly (readonly number[])[];
  /** Of a root: the results of `_flatten`, by name. */
  private readonly flattened = new Map<string, Mesh>();
  /** Of a root: the slices that hold this rank, by the names of their dimensions. */
  private readonly slices = new Map<string, Mesh>();
  private readonly creation: GroupCreation | null;
  /** Of the root. */
  private mismatch: CreationMismatch | null = null;

  constructor(
    plan: MeshPlan,
    context: RankContext,
    { family, root, rootDims, groups, creation = null }: Origin,
  ) {
    this.id = meshId(context, family, plan);
    this.deviceType = plan.deviceType;
    this.shape = Object.freeze([...plan.shape]);
    this.meshDimNames = plan.meshDimNames === null ? null : Object.freeze([...plan.meshDimNames]);
    this.ranks = plan.ranks;
    this.draws = drawsOf(context, plan.ranks);
    this.context = context;
    this.family = family;
    this.root = root ?? this;
    this.rootDims = rootDims;
    this.groups = [...groups];
    this.creation = creation;
    this.coordinate = Object.freeze(coordinateOf(plan.ranks.indexOf(context.rank), plan.shape));
    if (root === null && groups.length === 0) this.splitWorld();
  }

  /** The rank whose view of the mesh it is. @internal */
  get runtime(): RankRuntime {
    return this.context.runtime;
  }

  /** Number of dimensions. */
  get ndim(): number {
    return this.shape.length;
  }

  /** The ranks as nested arrays. */
  get mesh(): NestedRanks {
    return nestRanks(this.ranks, this.shape);
  }

  /**
   * Number of ranks, in total or along one dimension. @throws ArgumentError for an unknown
   * dimension
   */
  size(meshDim?: number | string): number {
    return meshDim === undefined
      ? this.ranks.length
      : (this.shape[this.dimOf('size', meshDim)] as number);
  }

  /** This rank's coordinate; null for a rank outside of the mesh. */
  getCoordinate(): readonly number[] | null {
    return this.coordinate;
  }

  /** This rank's number in the world. @example mesh.getRank() === getRank(); // true */
  getRank(): number {
    return this.context.rank;
  }

  /**
   * This rank's coordinate along one dimension, which is optional if there is only one.
   *
   * @throws ArgumentError for an unknown dimension, DistributedError for a rank outside of the mesh
   * @example
   * mesh.getLocalRank('tp') < mesh.size('tp'); // true
   */
  getLocalRank(meshDim?: number | string): number {
    const dim = this.onlyDim('getLocalRank', meshDim);
    return this.inside('getLocalRank')[dim] as number;
  }

  /**
   * The group of this rank along one dimension, which is optional if there is only one. Its ranks
   * differ in the coordinate along that dimension only.
   *
   * @throws ArgumentError for an unknown dimension, DistributedError for a rank outside of the mesh
   * @example
   * mesh.getGroup('tp').ranks; // [0, 1]
   */
  getGroup(meshDim?: number | string): ProcessGroup {
    const dim = this.onlyDim('getGroup', meshDim);
    const found = this.groups[dim];
    if (found !== undefined) return found;
    const made = this.makeGroup([dim]);
    this.groups[dim] = made;
    return made;
  }

  /**
   * The group of this rank along several dimensions, in mesh order; for one, that of
   * {@link getGroup}. @internal
   */
  groupAcross(meshDims: readonly number[]): ProcessGroup {
    if (meshDims.length === 1) return this.getGroup(meshDims[0]);
    const dims = meshDims.toSorted((a, b) => a - b);
    const key = dims.join();
    let group = this.across.get(key);
    if (group === undefined) this.across.set(key, (group = this.makeGroup(dims)));
    return group;
  }

  /** The group along each dimension. @throws DistributedError for a rank outside of the mesh */
  getAllGroups(): ProcessGroup[] {
    return this.shape.map((_, dim) => this.getGroup(dim));
  }

  /**
   * The slice of the mesh along the named dimensions that holds this rank, with the same groups. A
   * name may be that of a flattened dimension.
   *
   * @throws ArgumentError for unknown names, DistributedError for a rank outside of the mesh
   * @see PyTorch `mesh["dp", "tp"]`
   * @example
   * const mesh = initDeviceMesh('cpu', [2, 1], { meshDimNames: ['dp', 'tp'] });
   * mesh.get('dp').shape; // [2]
   */
  get(names: string | readonly string[]): Mesh {
    const list = typeof names === 'string' ? [names] : names;
    if (!Array.isArray(list) || list.length === 0)
      throw unexpected('DeviceMesh.get', 'names', 'a name, or a list of names', names);
    const parts = list.map((name) => this.named(name));
    if (parts.length === this.ndim && parts.every(({ mesh, dim }, i) => mesh === this && dim === i))
      return this;
    if (parts.length === 1 && parts[0]?.mesh !== this) return (parts[0] as { mesh: Mesh }).mesh;
    const rootDims = parts.map(({ mesh, dim }) => mesh.rootDims[dim] as readonly number[]);
    if (new Set(rootDims.flat()).size !== rootDims.flat().length) {
      throw new ArgumentError(
        `DeviceMesh.get: expected dimensions that do not overlap, got ${shown(list)}`,
        { op: 'get', given: list },
      );
    }
    const { root } = this;
    const made = root.slices.get(list.join());
    if (made !== undefined) return made;
    const plan: MeshPlan = {
      deviceType: this.deviceType,
      shape: parts.map(({ mesh, dim }) => mesh.shape[dim] as number),
      meshDimNames: list,
      ranks: sliceThrough(root.ranks, root.shape, rootDims.flat(), root.inside('get')),
    };
    const groups = parts.map(({ mesh, dim }) => mesh.getGroup(dim));
    const slice = new Mesh(plan, this.context, { family: root.family, root, rootDims, groups });
    root.slices.set(list.join(), slice);
    return slice;
  }

  /**
   * A mesh whose only dimension joins all dimensions of this mesh. The root and its slices find it
   * by name.
   *
   * @param name - by default the names of the dimensions, joined by `_`
   * @throws ArgumentError for a mesh without names, and for a name that is taken
   * @see PyTorch `DeviceMesh._flatten`
   */
  _flatten(name?: string): Mesh {
    if (this.meshDimNames === null)
      throw new ArgumentError(
        '_flatten: the dimensions of this mesh have no names. Give meshDimNames at its creation.',
        { op: '_flatten' },
      );
    const chosen = name ?? this.meshDimNames.join('_');
    if (typeof chosen !== 'string' || chosen === '')
      throw unexpected('_flatten', 'name', 'a name', chosen);
    if (this.ndim === 1 && this.meshDimNames[0] === chosen) return this;
    const { root } = this;
    const known = root.flattened.get(chosen);
    if (known !== undefined && known.ranks.join() === this.ranks.join()) return known;
    if (known !== undefined || root.meshDimNames?.includes(chosen)) {
      throw new ArgumentError(
        `_flatten: the mesh already has a dimension "${chosen}", among ${shown(root.meshDimNames)}`,
        { op: '_flatten', given: chosen },
      );
    }
    const plan: MeshPlan = {
      deviceType: this.deviceType,
      shape: [this.ranks.length],
      meshDimNames: [chosen],
      ranks: this.ranks,
    };
    const flat = new Mesh(plan, this.context, {
      family: root.family,
      root,
      rootDims: [this.rootDims.flat()],
      groups: [],
    });
    root.flattened.set(chosen, flat);
    return flat;
  }

  /**
   * Whether the other mesh has the same ranks, shape, device type and names. Ops accept tensors on
   * equal meshes, which share their groups; a mesh created by `fromGroup` has its own groups.
   */
  equals(other: Mesh): boolean {
    return other === this || (other instanceof Mesh && planKey(other) === planKey(this));
  }

  /**
   * Runs `fn`, asynchronous or not, with this mesh as the default of functions that take a mesh:
   * factories, `distributeTensor`, `DTensor.fromLocal`, `distributeModule` and `parallelizeModule`.
   * Returns the result of `fn`. Calls may be nested.
   *
   * @throws ArgumentError unless `fn` is a function
   * @see PyTorch `with mesh:`
   * @example
   * const weight = mesh.run(() => dtensorRandn([8, 4], { placements: [Shard(0)] }));
   * weight.toLocal().shape; // [4, 4]
   */
  run<T>(fn: () => T): T {
    checkFunction('DeviceMesh.run', 'fn', fn);
    return current.run(this, fn);
  }

  /** The device of this rank's local tensors. @internal */
  get device(): Device {
    return deviceOf(this.deviceType);
  }

  /** Such as `DeviceMesh(cpu, dp: 2, tp: 4)`. */
  toString(): string {
    return textOf(this);
  }

  /** @internal */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }

  /** A description in plain data: device type, names and ranks. */
  toJSON(): { deviceType: string; meshDimNames: readonly string[] | null; mesh: NestedRanks } {
    return { deviceType: this.deviceType, meshDimNames: this.meshDimNames, mesh: this.mesh };
  }

  /**
   * Splits the world's GPU group, which is faster than creating each group: docs/decisions/0004.
   */
  private splitWorld(): void {
    const { world } = this.context;
    if (
      this.deviceType !== 'cuda' ||
      this.ranks.length !== world.size ||
      !world.canSplit(this.device)
    )
      return;
    const subgroups = this.getAllGroups().filter((group) => group !== world);
    if (subgroups.length > 0) world.splitInto(subgroups, this.device);
  }

  private makeGroup(dims: readonly number[]): ProcessGroup {
    const ranks = sliceThrough(this.ranks, this.shape, dims, this.inside('getGroup'));
    const group = groupAlong(
      this.context,
      this.family,
      dims.map((dim) => meshDimName(this, dim)).join('_'),
      ranks,
      this.root.creation,
    );
    if (this.root.mismatch !== null) failOwn(this.root.creation, group, this.root.mismatch);
    return group;
  }

  /**
   * Other ranks have made another mesh in its place: its groups fail, also those that are made from
   * now on. @internal
   */
  fail(mismatch: CreationMismatch): void {
    this.mismatch = mismatch;
    for (const mesh of [this, ...this.flattened.values()])
      for (const group of [...mesh.groups, ...mesh.across.values()])
        if (group) failOwn(this.root.creation, group, mismatch);
  }

  private inside(op: string): readonly number[] {
    if (this.coordinate !== null) return this.coordinate;
    throw new DistributedError(
      `${op}: rank ${this.context.rank} is not in ${this} (ranks ` +
        `${this.ranks.slice(0, 16).join(', ')}${this.ranks.length > 16 ? ', …' : ''})`,
      { op },
    );
  }

  /** A dimension by its name: of this mesh, or a flattened one of the root. */
  private named(name: string): { mesh: Mesh; dim: number } {
    const flat = this.meshDimNames?.includes(name) ? undefined : this.root.flattened.get(name);
    return flat === undefined
      ? { mesh: this, dim: this.dimOf('get', name) }
      : { mesh: flat, dim: 0 };
  }

  private onlyDim(op: string, meshDim: number | string | undefined): number {
    if (meshDim !== undefined) return this.dimOf(op, meshDim);
    if (this.ndim === 1) return 0;
    throw new ArgumentError(
      `${op}: ${this} has ${this.ndim} dimensions: give the name or number of one`,
      { op, ndim: this.ndim },
    );
  }

  private dimOf(op: string, meshDim: number | string): number {
    return findDim(op, this, meshDim, this.root.flattened);
  }
}

// Errors name the class as users do.
Object.defineProperty(Mesh, 'name', { value: 'DeviceMesh' });
export type DeviceMesh = Mesh;
