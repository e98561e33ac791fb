/** Graphs as the rank with the largest shards has them: estimates are then equal on all ranks. */
import type { Shape } from '../../core/shape.js';
import { copyGraph } from '../graph/copy.js';
import type { Graph } from '../graph/graph.js';
import type { ValueMeta } from '../graph/node.js';
import { isCollective } from '../graph/traits.js';

/**
 * The graph itself where all ranks have shards of one size. Else a copy in which a dim that is as
 * long as this rank's shard of an uneven collective is as long as the largest one. It is for
 * estimates alone: parameters of its nodes keep their numbers.
 */
export function atLargestShards(given: Graph): Graph {
  const sizes = largestSizes(given);
  if (sizes.size === 0) return given;
  const { graph } = copyGraph(given);
  for (const node of graph.nodes) node.metas = node.metas.map((meta) => resized(meta, sizes));
  return graph;
}

/**
 * The size of the largest shard, by that of this rank's shard, where they differ. A shard of one row
 * keeps its size: dims of size 1 that are broadcast look the same.
 */
function largestSizes(graph: Graph): ReadonlyMap<number, number> {
  const sizes = new Map<number, number>();
  for (const node of graph.nodes) {
    if (!isCollective(node)) continue;
    const { group, rows } = node.params as { group: { rank: number }; rows?: readonly number[] };
    const own = rows?.[group.rank];
    const largest = Math.max(...(rows ?? []));
    if (own !== undefined && own !== 1 && own < largest)
      sizes.set(own, Math.max(largest, sizes.get(own) ?? 0));
  }
  return sizes;
}

function resized(meta: ValueMeta, sizes: ReadonlyMap<number, number>): ValueMeta {
  const shape = meta.shape.map((size) => sizes.get(size) ?? size);
  if (shape.every((size, dim) => size === meta.shape[dim])) return meta;
  return { ...meta, shape, strides: stridesLike(meta.strides, shape) };
}

/** Dense strides of a shape, whose dims are in the order of others. */
function stridesLike(strides: Shape, shape: Shape): Shape {
  const made = [...strides];
  const dims = [...shape.keys()].sort(
    (a, b) => (strides[a] as number) - (strides[b] as number) || b - a,
  );
  let stride = 1;
  for (const dim of dims) {
    if (strides[dim] === 0) continue;
    made[dim] = stride;
    stride *= Math.max(1, shape[dim] as number);
  }
  return made;
}
