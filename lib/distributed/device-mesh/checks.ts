/** What a mesh is made from, and what is wrong with it. */
import { type DeviceType, deviceTypes } from '../../core/device.js';
import { ArgumentError } from '../../core/errors.js';
import { checkNumber, checkOneOf, shown } from '../../core/options.js';
import type { Tensor } from '../../core/tensor.js';
import { type NestedRanks, nestRanks } from '../process-group/nested-ranks.js';

/** Options of meshes. */
export interface DeviceMeshOptions {
  /** A name for each dimension, by which it is found. */
  meshDimNames?: readonly string[];
}

/** Options of `DeviceMesh.fromGroup`. */
export interface FromGroupOptions extends DeviceMeshOptions {
  /** The ranks of the whole mesh; needed for several groups, one for each dimension. */
  mesh?: NestedRanks | Tensor;
}

/** Equal plans make the same mesh, to a rank. @internal */
export interface MeshPlan {
  readonly deviceType: DeviceType;
  /** Of the world, row-major. */
  readonly ranks: readonly number[];
  readonly shape: readonly number[];
  readonly meshDimNames: readonly string[] | null;
}

/** A text that only equal plans share. @internal */
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
 * @throws ArgumentError for ranks that the world has not, or that come twice, and for names that do
 * not fit @internal
 */
export function checkPlan(op: string, plan: MeshPlan, worldSize: number): void {
  checkOneOf(op, 'deviceType', plan.deviceType, deviceTypes);
  checkNames(op, plan);
  for (const rank of plan.ranks)
    checkNumber(op, 'each rank', rank, { from: 0, to: worldSize - 1, whole: true });
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
      `${op}: expected meshDimNames to be ${shape.length} names, one for each dimension of [${shape.join(', ')}], got ${shown(meshDimNames)}`,
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

/** Where the `index`-th rank stands; null for -1. @internal */
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
