/** Ranks in a grid whose dimensions have names: what placements speak of. */
import type { Device } from '../../core/device.js';
import { type DeviceType, device as deviceOf } from '../../core/device.js';
import { ArgumentError, DistributedError } from '../../core/errors.js';
import { type Interned, interned } from '../../core/interned-class.js';
import type { DrawPlace } from '../../core/mesh-rng.js';
import { checkFunction, checkNumber, optionsOf, shown, unexpected } from '../../core/options.js';
import type { RankRuntime } from '../../core/rank-runtime.js';
import { numelOf } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import type { Difference, Making } from '../process-group/creation-log.js';
import {
  flattenNested,
  type NestedRanks,
  nestedOf,
  nestRanks,
  sliceThrough,
} from '../process-group/nested-ranks.js';
import { checkGroup } from '../process-group/new-group.js';
import type { ProcessGroup } from '../process-group/process-group.js';
import { contextOf, type RankContext } from '../process-group/rank-context.js';
import {
  checkPlan,
  coordinateOf,
  type DeviceMeshOptions,
  type FromGroupOptions,
  type MeshPlan,
  planKey,
  textOf,
} from './checks.js';
import { runUnder } from './current-mesh.js';
import { announceMesh, checkGroups, drawsOf, failOwn, groupAlong, meshId } from './groups.js';
import { meshDimName } from './layout.js';

/** Where a mesh comes from. */
interface Origin {
  /**
   * Empty, or the groups that the mesh was made of: one with groups of its own stands for no other.
   */
  readonly family: string;
  /** The mesh that this one is a slice of; null if it is none. */
  readonly root: Mesh | null;
  /** For each dimension, those of the root that it is. */
  readonly rootDims: readonly (readonly number[])[];
  /** Groups that there are already. */
  readonly groups: readonly ProcessGroup[];
  /** The call that made it, if others are to make it alike. */
  readonly making?: Making | null;
}

/**
 * Those that are no slices, of each rank; ranks that share a process have each their own, at other
 * coordinates.
 */
const ofContext = new WeakMap<RankContext, Map<string, Mesh>>();

class Mesh {
  /** @internal equal for equal meshes, unless they were made of other groups */
  readonly id: number;
  /** Of the tensors on it. */
  readonly deviceType: DeviceType;
  /** Sizes of the dimensions. */
  readonly shape: readonly number[];
  /** The name of each mesh dimension; null for a mesh without names. */
  readonly meshDimNames: readonly string[] | null;
  /** @internal ranks of the world, row-major */
  readonly ranks: readonly number[];
  /** @internal what its ranks draw together */
  readonly draws: DrawPlace;
  private readonly context: RankContext;
  private readonly coordinate: readonly number[] | null;
  private readonly groups: (ProcessGroup | undefined)[];
  /** Along several dimensions, by these. */
  private readonly across = new Map<string, ProcessGroup>();
  private readonly family: string;
  private readonly root: Mesh;
  private readonly rootDims: readonly (readonly number[])[];
  /** Of the root: dimensions made by `_flatten`, by name. */
  private readonly flattened = new Map<string, Mesh>();
  /**
   * Of the root: its slices, by the names of their dimensions. Which ranks they have is up to this
   * rank's coordinate.
   */
  private readonly slices = new Map<string, Mesh>();
  private readonly making: Making | null;
  /** Of the root. */
  private difference: Difference | null = null;

  constructor(
    plan: MeshPlan,
    context: RankContext,
    { family, root, rootDims, groups, making = null }: Origin,
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
    this.making = making;
    this.coordinate = coordinateOf(plan.ranks.indexOf(context.rank), plan.shape);
    if (root === null && groups.length === 0) this.splitWorld();
  }

  /** Whose view of the ranks it is. @internal */
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
   * Number of ranks, in all or along one dimension. @throws ArgumentError for a dimension that is
   * not there
   */
  size(meshDim?: number | string): number {
    return meshDim === undefined
      ? this.ranks.length
      : (this.shape[this.dimOf('size', meshDim)] as number);
  }

  /** This rank's place along each dimension; null for a rank outside of the mesh. */
  getCoordinate(): readonly number[] | null {
    return this.coordinate;
  }

  /** This rank in the world. */
  getRank(): number {
    return this.context.rank;
  }

  /**
   * This rank's place along one dimension, which may be left out if there is only one.
   *
   * @throws ArgumentError for a dimension that is not there, DistributedError for a rank outside of
   * the mesh
   */
  getLocalRank(meshDim?: number | string): number {
    const dim = this.onlyDim('getLocalRank', meshDim);
    return this.inside('getLocalRank')[dim] as number;
  }

  /**
   * The group of the ranks along one dimension that differ from this rank in nothing else; the
   * dimension may be left out if there is only one.
   *
   * @throws ArgumentError for a dimension that is not there, DistributedError for a rank outside of
   * the mesh
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
   * The ranks that differ from this one along some dimensions only, in the order of the mesh; for
   * one, that of {@link getGroup}. @internal
   */
  groupAcross(meshDims: readonly number[]): ProcessGroup {
    if (meshDims.length === 1) return this.getGroup(meshDims[0]);
    const dims = meshDims.toSorted((a, b) => a - b);
    const key = dims.join();
    let group = this.across.get(key);
    if (group === undefined) this.across.set(key, (group = this.makeGroup(dims)));
    return group;
  }

  /** The groups of all dimensions. @throws DistributedError for a rank outside of the mesh */
  getAllGroups(): ProcessGroup[] {
    return this.shape.map((_, dim) => this.getGroup(dim));
  }

  /**
   * The part of the mesh that varies along the named dimensions only and holds this rank: it shares
   * their groups. Names may be those of flattened dimensions.
   *
   * @throws ArgumentError for names that are not there, DistributedError for a rank outside of the
   * mesh
   * @see PyTorch `mesh["dp", "tp"]`
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
        `DeviceMesh.get: expected dimensions that have nothing in common, got ${shown(list)}`,
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
   * All dimensions of this mesh as one, found by its name from the mesh that this is a slice of,
   * too.
   *
   * @param name - the dimensions' names with `_` between them, if left out
   * @throws ArgumentError for a mesh without names, or a name that is taken
   * @see PyTorch `DeviceMesh._flatten`
   */
  _flatten(name?: string): Mesh {
    if (this.meshDimNames === null)
      throw new ArgumentError(
        '_flatten: the dimensions of this mesh have no names. Give meshDimNames when it is made.',
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
        `_flatten: there is a dimension named "${chosen}" already; the mesh has ${shown(root.meshDimNames)}`,
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
   * Whether the other mesh has the same ranks, shape, device type and names. Tensors on equal
   * meshes meet in ops, and their groups are the same, unless a mesh was made by `fromGroup`: that
   * one has groups of its own.
   */
  equals(other: Mesh): boolean {
    return other === this || (other instanceof Mesh && planKey(other) === planKey(this));
  }

  /**
   * Runs `fn`, asynchronous or not, in which functions that take a mesh take this one where they
   * are given none: factories, `distributeTensor`, `DTensor.fromLocal`, `distributeModule` and
   * `parallelizeModule`. Returns what it returns. The innermost mesh counts.
   *
   * @throws ArgumentError for what is no function
   * @see PyTorch `with mesh:`
   * @example
   * const weight = mesh.run(() => dtensorRandn([512, 512], { placements: [Shard(0)] }));
   */
  run<T>(fn: () => T): T {
    checkFunction('DeviceMesh.run', 'fn', fn);
    return runUnder(this, fn);
  }

  /** The device of this rank's tensors on it. @internal */
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

  /** What describes it anywhere: kind of device, names, ranks. */
  toJSON(): { deviceType: string; meshDimNames: readonly string[] | null; mesh: NestedRanks } {
    return { deviceType: this.deviceType, meshDimNames: this.meshDimNames, mesh: this.mesh };
  }

  /**
   * Groups of GPUs come faster out of that of all ranks than each by itself: docs/decisions/0004.
   */
  private splitWorld(): void {
    const { world } = this.context;
    if (
      this.deviceType !== 'cuda' ||
      this.ranks.length !== world.size ||
      !world.canSplit(this.device)
    )
      return;
    const parts = this.getAllGroups().filter((group) => group !== world);
    if (parts.length > 0) world.splitInto(parts, this.device);
  }

  private makeGroup(dims: readonly number[]): ProcessGroup {
    const ranks = sliceThrough(this.ranks, this.shape, dims, this.inside('getGroup'));
    const group = groupAlong(
      this.context,
      this.family,
      dims.map((dim) => meshDimName(this, dim)).join('_'),
      ranks,
      this.root.making,
    );
    if (this.root.difference !== null) failOwn(this.root.making, group, this.root.difference);
    return group;
  }

  /**
   * Other ranks have made another mesh in its place: its groups fail, also those that are made from
   * now on. @internal
   */
  fail(difference: Difference): void {
    this.difference = difference;
    for (const mesh of [this, ...this.flattened.values()])
      for (const group of [...mesh.groups, ...mesh.across.values()])
        if (group) failOwn(this.root.making, group, difference);
  }

  private inside(op: string): readonly number[] {
    if (this.coordinate !== null) return this.coordinate;
    throw new DistributedError(
      `${op}: rank ${this.context.rank} is not in ${this} (ranks ${this.ranks.slice(0, 16).join(', ')}${this.ranks.length > 16 ? ', …' : ''})`,
      { op },
    );
  }

  /** A dimension by its name: an own one, or a flattened one of the root. */
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
      `${op}: ${this} has ${this.ndim} dimensions: say which one, by its name or number`,
      { op, ndim: this.ndim },
    );
  }

  private dimOf(op: string, meshDim: number | string): number {
    if (typeof meshDim === 'number') {
      checkNumber(`DeviceMesh.${op}`, 'meshDim', meshDim, {
        from: -this.ndim,
        to: this.ndim - 1,
        whole: true,
      });
      return meshDim < 0 ? meshDim + this.ndim : meshDim;
    }
    const found = this.meshDimNames?.indexOf(meshDim) ?? -1;
    if (found >= 0) return found;
    const known =
      this.meshDimNames === null
        ? 'its dimensions have no names: give meshDimNames when it is made'
        : `it has ${shown([...this.meshDimNames, ...this.root.flattened.keys()])}`;
    throw new ArgumentError(
      `DeviceMesh.${op}: there is no dimension ${shown(meshDim)} in ${this}; ${known}`,
      { op, given: meshDim },
    );
  }
}

// Messages say what users call it.
Object.defineProperty(Mesh, 'name', { value: 'DeviceMesh' });
export type DeviceMesh = Mesh;

/** The mesh there is, or a new one. */
function meshOnce(context: RankContext, plan: MeshPlan, make: () => Mesh, more = ''): Mesh {
  let known = ofContext.get(context);
  if (known === undefined) {
    known = new Map();
    ofContext.set(context, known);
  }
  const key = planKey(plan) + more;
  let found = known.get(key);
  if (found === undefined) {
    found = make();
    known.set(key, found);
  }
  return found;
}

const eachItself = (shape: readonly number[]): number[][] => shape.map((_, dim) => [dim]);

function meshFrom(op: string, plan: MeshPlan): Mesh {
  const context = contextOf(op);
  checkPlan(op, plan, context.worldSize);
  return meshOnce(context, plan, () => {
    let mesh: Mesh | null = null;
    const making = announceMesh(context, op, plan, (difference) => mesh?.fail(difference));
    mesh = new Mesh(plan, context, {
      family: '',
      root: null,
      rootDims: eachItself(plan.shape),
      groups: [],
      making,
    });
    return mesh;
  });
}

function makeMesh(
  deviceType: DeviceType,
  ranks: NestedRanks | Tensor,
  options: DeviceMeshOptions = {},
): Mesh {
  const { meshDimNames = null } = optionsOf('DeviceMesh', options, 'meshDimNames');
  const { flat, shape } = flattenNested('DeviceMesh', nestedOf(ranks));
  return meshFrom('DeviceMesh', { deviceType, ranks: flat, shape, meshDimNames });
}

function fromGroup(
  group: ProcessGroup | readonly ProcessGroup[],
  deviceType: DeviceType,
  options: FromGroupOptions = {},
): Mesh {
  const op = 'DeviceMesh.fromGroup';
  const { mesh, meshDimNames = null } = optionsOf(op, options, 'mesh meshDimNames');
  const groups = (Array.isArray(group) ? group : [group]).map((each: ProcessGroup) =>
    checkGroup(op, each),
  );
  if (mesh === undefined && groups.length !== 1)
    throw unexpected(op, 'mesh', 'the nested ranks of the mesh, as there are several groups', mesh);
  const { flat, shape } = flattenNested(
    op,
    mesh === undefined ? (groups[0] as ProcessGroup).ranks : nestedOf(mesh),
  );
  const plan: MeshPlan = { deviceType, ranks: flat, shape, meshDimNames };
  const context = contextOf(op);
  checkPlan(op, plan, context.worldSize);
  checkGroups(op, plan, context.rank, groups);
  const names = groups.map(({ name }) => name).join();
  return meshOnce(
    context,
    plan,
    () =>
      new Mesh(plan, context, {
        family: `of(${names}).`,
        root: null,
        rootDims: eachItself(shape),
        groups,
      }),
    `|${names}`,
  );
}

/** What makes meshes; see {@link DeviceMesh}. */
export interface DeviceMeshConstructor
  extends Interned<
    [deviceType: DeviceType, ranks: NestedRanks | Tensor, options?: DeviceMeshOptions],
    DeviceMesh
  > {
  /**
   * A mesh on groups that there are: of one dimension for a group, else with a dimension for each
   * of the groups. Only their members call it.
   *
   * @throws ArgumentError for groups of other ranks than those along the dimensions of the mesh
   * @see PyTorch `DeviceMesh.from_group`
   */
  fromGroup(
    group: ProcessGroup | readonly ProcessGroup[],
    deviceType: DeviceType,
    options?: FromGroupOptions,
  ): DeviceMesh;
}

/**
 * A grid of ranks, of any dimension: `DeviceMesh('cpu', [[0, 1], [2, 3]], { meshDimNames: ['dp',
 * 'tp'] })`, with or without `new`. All ranks of the world make the same meshes in the same order,
 * those outside too: where one makes another mesh of the same ranks, both are told. Making one
 * again gives the same object.
 *
 * @param ranks - nested arrays of ranks of the world, all of one size at each level; or a list, for
 * one dimension; or a tensor
 * @throws ArgumentError for ranks that are not of the world or come twice, DistributedError without
 * a process group, CollectiveError
 *   where another rank is known to make another mesh of the same ranks
 * @see PyTorch `torch.distributed.device_mesh.DeviceMesh`
 */
export const DeviceMesh: DeviceMeshConstructor = Object.assign(
  interned('DeviceMesh', makeMesh, Mesh.prototype),
  { fromGroup },
);

/**
 * A mesh of the first ranks of the world, row-major: `initDeviceMesh('cuda', [2, 4], {
 * meshDimNames: ['dp', 'tp'] })`.
 *
 * @throws ArgumentError for sizes that need more ranks than there are, DistributedError without a
 * process group, CollectiveError as `DeviceMesh`
 * @see PyTorch `torch.distributed.device_mesh.init_device_mesh`
 */
export function initDeviceMesh(
  deviceType: DeviceType,
  shape: readonly number[],
  options: DeviceMeshOptions = {},
): DeviceMesh {
  const { meshDimNames = null } = optionsOf('initDeviceMesh', options, 'meshDimNames');
  if (!Array.isArray(shape) || shape.length === 0)
    throw unexpected('initDeviceMesh', 'shape', 'a list of sizes', shape);
  for (const size of shape)
    checkNumber('initDeviceMesh', 'each size', size, { from: 1, whole: true });
  const count = numelOf(shape);
  const { worldSize } = contextOf('initDeviceMesh');
  if (count > worldSize) {
    throw new ArgumentError(
      `initDeviceMesh: a mesh of [${shape.join(', ')}] needs ${count} ranks, the world has ${worldSize}. Start more ranks, or make the mesh smaller.`,
      {
        op: 'initDeviceMesh',
        shape,
        worldSize,
      },
    );
  }
  return meshFrom('initDeviceMesh', {
    deviceType,
    ranks: Array.from({ length: count }, (_, i) => i),
    shape: [...shape],
    meshDimNames,
  });
}
