/** What sharding has to know of a device mesh: its extent and where this rank stands. */
import type { RankRuntime } from '../../core/rank-runtime.js';

/** A mesh without its communication. */
export interface MeshLayout {
  /**
   * Meshes of the same id are interchangeable: the same ranks, shape and names, seen from the same
   * rank.
   */
  readonly id: number;
  /** Ranks along each mesh dim. */
  readonly shape: readonly number[];
  readonly meshDimNames: readonly string[] | null;
  /** Whose it is; absent where that does not matter. */
  readonly runtime?: RankRuntime;
  /** Own position along each mesh dim, or null for a rank outside. */
  getCoordinate(): readonly number[] | null;
}

/** `tp`, or `1` where mesh dims have no names: for messages. */
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
