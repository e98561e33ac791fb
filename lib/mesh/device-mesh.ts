/** Ranks in a grid whose dimensions have names: what placements speak of. */

import type { Device } from '../core/device.js';
import { type DeviceType, device as deviceOf } from '../core/device.js';
import { ArgumentError, DistributedError } from '../core/errors.js';
import { checkNumber, checkOneOf, optionsOf, shown, unexpected } from '../core/options.js';
import { namedGroup } from './groups.js';
import type { ProcessGroup } from './process-group.js';
import { contextOf, type RankContext } from './rank-context.js';
import { flattenNested, type NestedRanks, nestRanks, sliceThrough } from './rank-grid.js';

/** Options of meshes. */
export interface DeviceMeshOptions {
  /** A name for each dimension, by which it is found. */
  meshDimNames?: readonly string[];
}

/** What a mesh is made from; equal ones are the same mesh to a rank. @internal */
interface MeshPlan {
  readonly deviceType: DeviceType;
  readonly ranks: readonly number[];
  readonly shape: readonly number[];
  readonly meshDimNames: readonly string[] | null;
}

let meshes = 0;
/** Of each rank; ranks that share a process have each their own, at other coordinates. */
const ofContext = new WeakMap<RankContext, Map<string, DeviceMesh>>();

const keyOf = ({ deviceType, ranks, shape, meshDimNames }: MeshPlan): string => `${deviceType}|${shape.join('x')}|${meshDimNames?.join() ?? ''}|${ranks.join()}`;

/**
 * A grid of ranks, of any dimension. All ranks of the world make the same meshes in the same order, those outside too. Making it again
 * gives the same object.
 *
 * @see PyTorch `torch.distributed.device_mesh.DeviceMesh`
 */
export class DeviceMesh {
  /** @internal */
  readonly id: number;
  /** Of the tensors on it. */
  readonly deviceType: DeviceType;
  /** Sizes of the dimensions. */
  readonly shape: readonly number[];
  readonly meshDimNames: readonly string[] | null;
  /** @internal ranks of the world, row-major */
  readonly ranks: readonly number[];
  private readonly context: RankContext;
  private readonly coordinate: readonly number[] | null;
  private readonly groups: (ProcessGroup | undefined)[] = [];
  private readonly name: string;
  /** The mesh that this one is a slice of; itself if it is none. */
  private readonly root: DeviceMesh;
  /** Of the root: dimensions made by `_flatten`. */
  private readonly flattened = new Map<string, DeviceMesh>();

  /** @internal use {@link makeMesh} */
  constructor(plan: MeshPlan, context: RankContext, name: string, root: DeviceMesh | null, groups: readonly (ProcessGroup | undefined)[] = []) {
    this.id = meshes++;
    this.deviceType = plan.deviceType;
    this.shape = plan.shape;
    this.meshDimNames = plan.meshDimNames;
    this.ranks = plan.ranks;
    this.context = context;
    this.name = name;
    this.root = root ?? this;
    this.groups.push(...groups);
    this.coordinate = coordinateOf(plan.ranks.indexOf(context.rank), plan.shape);
  }

  /** Number of dimensions. */
  get ndim(): number {
    return this.shape.length;
  }

  /** The ranks as nested arrays. */
  get mesh(): NestedRanks {
    return nestRanks(this.ranks, this.shape);
  }

  /** Number of ranks, in all or along one dimension. @throws ArgumentError for a dimension that is not there */
  size(meshDim?: number | string): number {
    return meshDim === undefined ? this.ranks.length : (this.shape[this.dimOf('size', meshDim)] as number);
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
   * @throws ArgumentError for a dimension that is not there, DistributedError for a rank outside of the mesh
   */
  getLocalRank(meshDim?: number | string): number {
    const dim = this.onlyDim('getLocalRank', meshDim);
    return this.inside('getLocalRank')[dim] as number;
  }

  /**
   * The group of the ranks along one dimension that differ from this rank in nothing else; the dimension may be left out if there is only
   * one.
   *
   * @throws ArgumentError for a dimension that is not there, DistributedError for a rank outside of the mesh
   */
  getGroup(meshDim?: number | string): ProcessGroup {
    const dim = this.onlyDim('getGroup', meshDim);
    const found = this.groups[dim];
    if (found !== undefined) return found;
    const made = this.makeGroup(dim);
    this.groups[dim] = made;
    return made;
  }

  /** The groups of all dimensions. */
  getAllGroups(): ProcessGroup[] {
    return this.shape.map((_, dim) => this.getGroup(dim));
  }

  /**
   * The part of the mesh that varies along the named dimensions only and holds this rank: it shares their groups.
   *
   * @throws ArgumentError for names that are not there, DistributedError for a rank outside of the mesh
   * @see PyTorch `mesh["dp", "tp"]`
   */
  get(names: string | readonly string[]): DeviceMesh {
    const list = typeof names === 'string' ? [names] : names;
    if (!Array.isArray(list) || list.length === 0) throw unexpected('DeviceMesh.get', 'names', 'a name, or a list of names', names);
    const flat = list.length === 1 ? this.root.flattened.get(list[0] as string) : undefined;
    if (flat !== undefined) return flat;
    const dims = list.map((name) => this.dimOf('get', name));
    if (new Set(dims).size !== dims.length) throw new ArgumentError(`DeviceMesh.get: expected each name once, got ${shown(list)}`, { op: 'get', given: list });
    if (dims.length === this.ndim && dims.every((dim, i) => dim === i)) return this;
    const plan: MeshPlan = {
      deviceType: this.deviceType,
      shape: dims.map((dim) => this.shape[dim] as number),
      meshDimNames: list,
      ranks: sliceThrough(this.ranks, this.shape, dims, this.inside('get')),
    };
    return interned(
      this.context,
      plan,
      () =>
        new DeviceMesh(
          plan,
          this.context,
          `${this.name}.${list.join('.')}`,
          this.root,
          dims.map((dim) => this.getGroup(dim)),
        ),
    );
  }

  /**
   * All dimensions of this mesh as one, found by its name from the mesh that this is a slice of, too.
   *
   * @param name - the dimensions' names with `_` between them, if left out
   * @throws ArgumentError for a mesh without names, or a name that is taken
   * @see PyTorch `DeviceMesh._flatten`
   */
  _flatten(name?: string): DeviceMesh {
    if (this.meshDimNames === null) throw new ArgumentError('_flatten: the dimensions of this mesh have no names. Give meshDimNames when it is made.', { op: '_flatten' });
    const chosen = name ?? this.meshDimNames.join('_');
    if (typeof chosen !== 'string' || chosen === '') throw unexpected('_flatten', 'name', 'a name', chosen);
    if (this.ndim === 1 && this.meshDimNames[0] === chosen) return this;
    const root = this.root;
    const known = root.flattened.get(chosen);
    if (known !== undefined && known.ranks.join() === this.ranks.join()) return known;
    if (known !== undefined || root.meshDimNames?.includes(chosen)) {
      throw new ArgumentError(`_flatten: there is a dimension named "${chosen}" already; the mesh has ${shown(root.meshDimNames)}`, { op: '_flatten', given: chosen });
    }
    const plan: MeshPlan = { deviceType: this.deviceType, shape: [this.ranks.length], meshDimNames: [chosen], ranks: this.ranks };
    const flat = interned(this.context, plan, () => new DeviceMesh(plan, this.context, `${this.name}.${chosen}`, root));
    root.flattened.set(chosen, flat);
    return flat;
  }

  /** Whether the other mesh has the same ranks, shape, device type and names. */
  equals(other: DeviceMesh): boolean {
    return other === this || (other instanceof DeviceMesh && keyOf(other) === keyOf(this));
  }

  /** The device of this rank's tensors on it. @internal */
  get device(): Device {
    return deviceOf(this.deviceType);
  }

  /** Such as `DeviceMesh(cpu, dp: 2, tp: 4)`. */
  toString(): string {
    const dims = this.shape.map((size, dim) => (this.meshDimNames === null ? String(size) : `${this.meshDimNames[dim]}: ${size}`));
    return `DeviceMesh(${this.deviceType}, ${dims.join(', ')})`;
  }

  /** @internal */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }

  private makeGroup(dim: number): ProcessGroup {
    const ranks = sliceThrough(this.ranks, this.shape, [dim], this.inside('getGroup'));
    const { world } = this.context;
    if (ranks.length === world.size && ranks.every((rank, i) => rank === i)) return world;
    return namedGroup(this.context, `${this.name}.${this.meshDimNames?.[dim] ?? dim}.${ranks[0]}`, ranks);
  }

  private inside(op: string): readonly number[] {
    if (this.coordinate !== null) return this.coordinate;
    throw new DistributedError(`${op}: rank ${this.context.rank} is not in ${this} (ranks ${this.ranks.slice(0, 16).join(', ')}${this.ranks.length > 16 ? ', …' : ''})`, { op });
  }

  private onlyDim(op: string, meshDim: number | string | undefined): number {
    if (meshDim !== undefined) return this.dimOf(op, meshDim);
    if (this.ndim === 1) return 0;
    throw new ArgumentError(`${op}: ${this} has ${this.ndim} dimensions: say which one, by its name or number`, { op, ndim: this.ndim });
  }

  private dimOf(op: string, meshDim: number | string): number {
    if (typeof meshDim === 'number') {
      checkNumber(`DeviceMesh.${op}`, 'meshDim', meshDim, { from: -this.ndim, to: this.ndim - 1, whole: true });
      return meshDim < 0 ? meshDim + this.ndim : meshDim;
    }
    const found = this.meshDimNames?.indexOf(meshDim) ?? -1;
    if (found >= 0) return found;
    const known =
      this.meshDimNames === null ? 'its dimensions have no names: give meshDimNames when it is made' : `it has ${shown([...this.meshDimNames, ...this.root.flattened.keys()])}`;
    throw new ArgumentError(`DeviceMesh.${op}: there is no dimension ${shown(meshDim)} in ${this}; ${known}`, { op, given: meshDim });
  }
}

function coordinateOf(index: number, shape: readonly number[]): readonly number[] | null {
  if (index < 0) return null;
  const coordinate: number[] = [];
  let rest = index;
  for (let dim = shape.length - 1; dim >= 0; dim--) {
    const size = shape[dim] as number;
    coordinate.unshift(rest % size);
    rest = Math.floor(rest / size);
  }
  return coordinate;
}

function interned(context: RankContext, plan: MeshPlan, make: () => DeviceMesh): DeviceMesh {
  let known = ofContext.get(context);
  if (known === undefined) {
    known = new Map();
    ofContext.set(context, known);
  }
  const key = keyOf(plan);
  let found = known.get(key);
  if (found === undefined) {
    found = make();
    known.set(key, found);
  }
  return found;
}

function meshFrom(op: string, plan: MeshPlan): DeviceMesh {
  const context = contextOf(op);
  checkOneOf(op, 'deviceType', plan.deviceType, ['cpu', 'cuda']);
  checkNames(op, plan);
  for (const rank of plan.ranks) checkNumber(op, 'each rank', rank, { from: 0, to: context.worldSize - 1, whole: true });
  if (new Set(plan.ranks).size !== plan.ranks.length) throw new ArgumentError(`${op}: expected each rank once, got ${shown(nestRanks(plan.ranks, plan.shape))}`, { op });
  return interned(context, plan, () => new DeviceMesh(plan, context, `mesh${context.made++}`, null));
}

function checkNames(op: string, { meshDimNames, shape }: MeshPlan): void {
  if (meshDimNames === null) return;
  const fits = Array.isArray(meshDimNames) && meshDimNames.length === shape.length && meshDimNames.every((name) => typeof name === 'string' && name !== '');
  if (!fits)
    throw new ArgumentError(`${op}: expected meshDimNames to be ${shape.length} names, one for each dimension of [${shape.join(', ')}], got ${shown(meshDimNames)}`, {
      op,
      given: meshDimNames,
    });
  if (new Set(meshDimNames).size !== meshDimNames.length)
    throw new ArgumentError(`${op}: expected each of meshDimNames once, got ${shown(meshDimNames)}`, { op, given: meshDimNames });
}

/**
 * A mesh of these ranks of the world.
 *
 * @param ranks - nested arrays of ranks, all of one size at each level; or a list, for one dimension
 * @throws ArgumentError, DistributedError without a process group
 */
export function makeMesh(deviceType: DeviceType, ranks: NestedRanks, options: DeviceMeshOptions = {}): DeviceMesh {
  const { meshDimNames = null } = optionsOf('DeviceMesh', options, 'meshDimNames');
  const { flat, shape } = flattenNested('DeviceMesh', ranks);
  return meshFrom('DeviceMesh', { deviceType, ranks: flat, shape, meshDimNames });
}

/**
 * A mesh of the first ranks of the world, row-major: `initDeviceMesh('cuda', [2, 4], { meshDimNames: ['dp', 'tp'] })`.
 *
 * @throws ArgumentError for sizes that need more ranks than there are, DistributedError without a process group
 * @see PyTorch `torch.distributed.device_mesh.init_device_mesh`
 */
export function initDeviceMesh(deviceType: DeviceType, shape: readonly number[], options: DeviceMeshOptions = {}): DeviceMesh {
  const { meshDimNames = null } = optionsOf('initDeviceMesh', options, 'meshDimNames');
  if (!Array.isArray(shape) || shape.length === 0) throw unexpected('initDeviceMesh', 'shape', 'a list of sizes', shape);
  for (const size of shape) checkNumber('initDeviceMesh', 'each size', size, { from: 1, whole: true });
  const count = shape.reduce((a, b) => a * b, 1);
  const { worldSize } = contextOf('initDeviceMesh');
  if (count > worldSize) {
    throw new ArgumentError(`initDeviceMesh: a mesh of [${shape.join(', ')}] needs ${count} ranks, the world has ${worldSize}. Start more ranks, or make the mesh smaller.`, {
      op: 'initDeviceMesh',
      shape,
      worldSize,
    });
  }
  return meshFrom('initDeviceMesh', { deviceType, ranks: Array.from({ length: count }, (_, i) => i), shape: [...shape], meshDimNames });
}
