/** Checks of meshes, placements and shard orders that a program passed in. */
import { IndexError, ShardingError } from '../../core/errors.js';
import { shown, unexpected } from '../../core/options.js';
import { type Partial, Placement, Shard } from '../../core/placement.js';
import { belongsToOtherRank, otherRankError } from '../../core/rank-runtime.js';
import { formatShape } from '../../core/shape.js';
import { formatMesh, type MeshLayout, meshDimName } from '../../distributed/device-mesh/layout.js';
import type { ShardOrder } from './tensor-meta.js';

/**
 * @throws ArgumentError unless `mesh` is a mesh, DistributedError if it belongs to another rank of
 * this process
 */
export function checkMesh(op: string, mesh: unknown): asserts mesh is MeshLayout {
  const fits =
    typeof mesh === 'object' &&
    mesh !== null &&
    'shape' in mesh &&
    Array.isArray(mesh.shape) &&
    'getCoordinate' in mesh;
  if (!fits) throw unexpected(op, 'mesh', 'a DeviceMesh', mesh);
  const layout = mesh as unknown as MeshLayout;
  if (layout.runtime !== undefined && belongsToOtherRank(layout.runtime))
    throw otherRankError(op, `the ${formatMesh(layout)}`, layout.runtime);
}

/**
 * Returns the placements with negative dims replaced.
 *
 * @throws ShardingError unless there is one placement for each mesh dim, or if two Partial
 * placements have reductions that do not commute
 * @throws IndexError for a shard dim that the tensor does not have
 */
export function checkPlacements(
  op: string,
  mesh: MeshLayout,
  placements: readonly Placement[],
  ndim: number,
): readonly Placement[] {
  const wrong = Array.isArray(placements)
    ? placements.find((placement) => !(placement instanceof Placement))
    : placements;
  if (!Array.isArray(placements) || wrong !== undefined)
    throw unexpected(op, 'placements', 'an array of Shard(dim), Replicate() and Partial()', wrong);
  if (placements.length !== mesh.shape.length) {
    throw new ShardingError(
      `${op}: expected ${mesh.shape.length} placements, one for each dim of the ` +
        `${formatMesh(mesh)}, got ${placements.length}: [${placements.join(', ')}]. Use ` +
        'Replicate() for mesh dims that do not shard the tensor.',
      { op, placements, meshShape: mesh.shape },
    );
  }
  const wrapped = placements.map((placement) =>
    placement.isShard() ? wrapShard(op, placement, ndim) : placement,
  );
  const [first, second] = mixedPartials(wrapped) ?? [];
  if (first !== undefined && second !== undefined) throw doNotCommute(op, first, second);
  return wrapped;
}

function wrapShard(op: string, placement: Shard, ndim: number): Placement {
  const { dim } = placement;
  if (dim >= 0 && dim < ndim) return placement;
  if (dim < 0 && dim >= -ndim) return Shard(dim + ndim);
  const advice =
    ndim === 0
      ? 'a 0-d tensor cannot be sharded, use Replicate()'
      : `expected a dim from ${-ndim} to ${ndim - 1}`;
  throw new IndexError(`${op}: ${placement} does not fit a tensor of ${ndim} dims: ${advice}`, {
    op,
    dim,
    ndim,
  });
}

const linear = (placement: Partial) => placement.reduceOp === 'sum' || placement.reduceOp === 'avg';

/**
 * Two Partial placements whose result depends on which reduction is done first, such as the maximum
 * of sums and the sum of maxima; null if all reductions commute.
 */
export function mixedPartials(
  placements: readonly Placement[],
): readonly [Partial, Partial] | null {
  const partials = placements.filter((placement) => placement.isPartial());
  const first = partials[0];
  const other = partials.find(
    (placement) => placement !== first && !(linear(placement) && linear(first as Partial)),
  );
  return first === undefined || other === undefined ? null : [first, other];
}

function doNotCommute(op: string, first: Partial, second: Partial): ShardingError {
  return new ShardingError(
    `${op}: ${first} on one mesh dim and ${second} on another have no defined value: it ` +
      'depends on which reduction is done first. Redistribute one of them to Replicate() or ' +
      'Shard(dim) before the op that produces the other.',
    { op, reduceOps: [first.reduceOp, second.reduceOp] },
  );
}

/**
 * @throws ShardingError unless each entry of the order lists the mesh dims that shard its tensor
 * dim, each once. An entry may be empty where at most one mesh dim does.
 */
export function checkShardOrder(
  op: string,
  mesh: MeshLayout,
  placements: readonly Placement[],
  order: ShardOrder,
): void {
  if (!Array.isArray(order) || !order.every(Array.isArray))
    throw unexpected(
      op,
      'shardOrder',
      'an array with the mesh dims that shard each tensor dim, such as [[1, 0]]',
      order,
    );
  order.forEach((given: readonly number[], dim) => {
    const meshDims = placements.flatMap((placement, meshDim) =>
      placement.isShard(dim) ? [meshDim] : [],
    );
    if (given.length === 0 && meshDims.length < 2) return;
    if (given.length === meshDims.length && meshDims.every((meshDim) => given.includes(meshDim)))
      return;
    const names = meshDims.map((meshDim) =>
      mesh.meshDimNames === null ? `${meshDim}` : `${meshDim} (${meshDimName(mesh, meshDim)})`,
    );
    throw new ShardingError(
      `${op}: expected shardOrder[${dim}] to name the mesh dims that shard tensor dim ` +
        `${dim}, each once: ${names.join(', ') || 'none'}; got ${shown(given)}. ` +
        `The placements are [${placements.join(', ')}] on a mesh of shape ` +
        `${formatShape(mesh.shape)}.`,
      { op, dim, expected: meshDims, given },
    );
  });
}
