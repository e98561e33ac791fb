import type { DeviceType } from '../../core/device.js';
import { ArgumentError } from '../../core/errors.js';
import { type Interned, interned } from '../../core/interned-class.js';
import { checkNumber, optionsOf, unexpected } from '../../core/options.js';
import { numelOf } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import { flattenNested, type NestedRanks, nestedOf } from '../process-group/nested-ranks.js';
import { checkGroup } from '../process-group/new-group.js';
import type { ProcessGroup } from '../process-group/process-group.js';
import { contextOf, lastRank, type RankContext } from '../process-group/rank-context.js';
import {
  checkPlan,
  type DeviceMeshOptions,
  type FromGroupOptions,
  type MeshPlan,
  planKey,
} from './checks.js';
import { Mesh } from './device-mesh.js';
import { checkGroups, publishMesh } from './groups.js';

export type DeviceMesh = Mesh;

/** The root meshes of each rank; local ranks have separate ones, at different coordinates. */
const ofContext = new WeakMap<RankContext, Map<string, Mesh>>();

/** The existing mesh of the plan, or a new one. */
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

/** The `rootDims` of a root. */
const identityDims = (shape: readonly number[]): number[][] => shape.map((_, dim) => [dim]);

function meshFrom(op: string, plan: MeshPlan): Mesh {
  const context = contextOf(op);
  checkPlan(op, plan, lastRank(context));
  return meshOnce(context, plan, () => {
    let mesh: Mesh | null = null;
    const creation = publishMesh(context, op, plan, (mismatch) => mesh?.fail(mismatch));
    mesh = new Mesh(plan, context, {
      family: '',
      root: null,
      rootDims: identityDims(plan.shape),
      groups: [],
      creation,
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
  checkPlan(op, plan, lastRank(context));
  checkGroups(op, plan, context.rank, groups);
  const names = groups.map(({ name }) => name).join();
  return meshOnce(
    context,
    plan,
    () =>
      new Mesh(plan, context, {
        family: `of(${names}).`,
        root: null,
        rootDims: identityDims(shape),
        groups,
      }),
    `|${names}`,
  );
}

/** The constructor of meshes; see {@link DeviceMesh}. */
export interface DeviceMeshConstructor
  extends Interned<
    [deviceType: DeviceType, ranks: NestedRanks | Tensor, options?: DeviceMeshOptions],
    DeviceMesh
  > {
  /**
   * A mesh with existing groups: one dimension for a group, or a dimension for each of several
   * groups. Only their members call it.
   *
   * @throws ArgumentError if the ranks of a group are not those along its dimension, also where
   * this rank is not in the mesh
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
 * 'tp'] })`, with or without `new`. All ranks of the world create the same meshes in the same
 * order, including ranks outside of them; a mismatch is an error on both ranks. Creating a mesh
 * again returns the same object.
 *
 * @param ranks - ranks of the world in nested arrays of one shape, in a list for one dimension, or
 * in a tensor
 * @throws ArgumentError for ranks outside the world or repeated ranks, DistributedError without a
 * process group, CollectiveError if another rank has created a different mesh of these ranks
 * @see PyTorch `torch.distributed.device_mesh.DeviceMesh`
 */
export const DeviceMesh: DeviceMeshConstructor = Object.assign(
  interned('DeviceMesh', makeMesh, Mesh.prototype),
  { fromGroup },
);

/**
 * A mesh of the first ranks of the world in row-major order: `initDeviceMesh('cuda', [2, 4], {
 * meshDimNames: ['dp', 'tp'] })`.
 *
 * @throws ArgumentError for a mesh larger than the world, DistributedError without a process group,
 * CollectiveError as `DeviceMesh`
 * @see PyTorch `torch.distributed.device_mesh.init_device_mesh`
 * @example
 * const mesh = initDeviceMesh('cpu', [2, 1], { meshDimNames: ['dp', 'tp'] });
 * mesh.shape; // [2, 1]
 * mesh.get('dp').size(); // 2
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
      `initDeviceMesh: a mesh of [${shape.join(', ')}] needs ${count} ranks, the world has ` +
        `${worldSize}. Start more ranks, or use a smaller mesh.`,
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
