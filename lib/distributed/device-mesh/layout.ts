/** The part of a device mesh that sharding needs: its shape and this rank's coordinate. */
import type { RankRuntime } from '../../core/rank-runtime.js';

/** A mesh without its communication. */
export interface MeshLayout {
  /** Equal for interchangeable meshes: the same ranks, shape and names, seen from the same rank. */
  readonly id: number;
  /** Ranks along each mesh dim. */
  readonly shape: readonly number[];
  readonly meshDimNames: readonly string[] | null;
  /** The rank that it belongs to; absent if irrelevant. */
  readonly runtime?: RankRuntime;
  /** This rank's coordinate; null for a rank outside. */
  getCoordinate(): readonly number[] | null;
}

/** `tp`, or `1` if mesh dims have no names; for messages. */
export function meshDimName(mesh: MeshLayout, meshDim: number): string {
  return mesh.meshDimNames?.[meshDim] ?? String(meshDim);
}

/** `mesh (dp: 2, tp: 4)`, for messages. */
export function formatMesh(mesh: MeshLayout): string {
  const dims = mesh.shape.map((ranks, meshDim) =>
    mesh.meshDimNames === null ? String(ranks) : `${meshDimName(mesh, meshDim)}: ${ranks}`,
  );
  return `mesh (${dims.join(', ')})`;
}
