/** The arguments of meshes: plans, their text, and checks. */
import { type DeviceType, deviceTypes } from '../../core/device.js';
import { ArgumentError } from '../../core/errors.js';
import { checkNumber, checkOneOf, shown } from '../../core/options.js';
import type { Tensor } from '../../core/tensor.js';
import { type NestedRanks, nestRanks } from '../process-group/nested-ranks.js';

/** Options of meshes. */
export interface DeviceMeshOptions {
  /** A name for each dimension. */
  meshDimNames?: readonly string[];
}

/** Options of `DeviceMesh.fromGroup`. */
export interface FromGroupOptions extends DeviceMeshOptions {
  /** The ranks of the whole mesh; required for several groups. */
  mesh?: NestedRanks | Tensor;
}

/** Equal plans give a rank the same mesh. @internal */
export interface MeshPlan {
  readonly deviceType: DeviceType;
  /** Of the world, row-major. */
  readonly ranks: readonly number[];
  readonly shape: readonly number[];
  readonly meshDimNames: readonly string[] | null;
}

/** A text that is equal for equal plans only. @internal */
export function planKey({ deviceType, ranks, shape, meshDimNames }: MeshPlan): string {
  return `${deviceType}|${shape.join('x')}|${meshDimNames?.join() ?? ''}|${ranks.join()}`;
}

/** Such as `DeviceMesh(cpu, dp: 2, tp: 4)`. @internal */
export function textOf({ deviceType, shape, meshDimNames }: MeshPlan): string {
  const dims = shape.map((size, dim) =>
    meshDimNames === null ? String(size) : `${meshDimNames[dim]}: ${size}`,
  );
  return `DeviceMesh(${deviceType}, ${dims.join(', ')})`;
}

/**
 * @throws ArgumentError for ranks outside the world, for repeated ranks, and for invalid names
 * @internal
 */
export function checkPlan(op: string, plan: MeshPlan, lastRank: number): void {
  checkOneOf(op, 'deviceType', plan.deviceType, deviceTypes);
  checkNames(op, plan);
  for (const rank of plan.ranks)
    checkNumber(op, 'each rank', rank, { from: 0, to: lastRank, whole: true });
  if (new Set(plan.ranks).size !== plan.ranks.length)
    throw new ArgumentError(
      `${op}: expected each rank once, got ${shown(nestRanks(plan.ranks, plan.shape))}`,
      { op },
    );
}

function checkNames(op: string, { meshDimNames, shape }: MeshPlan): void {
  if (meshDimNames === null) return;
  const fits =
    Array.isArray(meshDimNames) &&
    meshDimNames.length === shape.length &&
    meshDimNames.every((name) => typeof name === 'string' && name !== '');
  if (!fits) {
    throw new ArgumentError(
      `${op}: expected meshDimNames to be ${shape.length} names, one for each dimension of ` +
        `[${shape.join(', ')}], got ${shown(meshDimNames)}`,
      {
        op,
        given: meshDimNames,
      },
    );
  }
  if (new Set(meshDimNames).size !== meshDimNames.length)
    throw new ArgumentError(
      `${op}: expected each of meshDimNames once, got ${shown(meshDimNames)}`,
      { op, given: meshDimNames },
    );
}

/**
 * The number of a mesh dimension.
 *
 * @param flattened - other dimensions that the mesh finds, for the error
 * @throws ArgumentError for an unknown dimension @internal
 */
export function findDim(
  op: string,
  plan: MeshPlan,
  meshDim: number | string,
  flattened: ReadonlyMap<string, unknown>,
): number {
  const { shape, meshDimNames } = plan;
  const ndim = shape.length;
  if (typeof meshDim === 'number') {
    checkNumber(`DeviceMesh.${op}`, 'meshDim', meshDim, { from: -ndim, to: ndim - 1, whole: true });
    return meshDim < 0 ? meshDim + ndim : meshDim;
  }
  const found = meshDimNames?.indexOf(meshDim) ?? -1;
  if (found >= 0) return found;
  const known =
    meshDimNames === null
      ? 'its dimensions have no names: give meshDimNames at its creation'
      : `it has ${shown([...meshDimNames, ...flattened.keys()])}`;
  throw new ArgumentError(
    `DeviceMesh.${op}: there is no dimension ${shown(meshDim)} in ${textOf(plan)}; ${known}`,
    { op, given: meshDim },
  );
}

/** The coordinate of the `index`-th rank; null for -1. @internal */
export function coordinateOf(index: number, shape: readonly number[]): readonly number[] | null {
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
