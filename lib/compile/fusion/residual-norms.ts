/**
 * Joins residual additions with the norms that read their sums: one kernel reads both summands, and
 * writes the sum and its norm.
 */
import { float32, isLowPrecision } from '../../core/dtype.js';
import { isContiguousLayout, sameShape } from '../../core/shape.js';
import { addRmsNormOp } from '../../ops/add-rms-norm.js';
import { addLayerNormOp, layerNormOp } from '../../ops/layer-norm.js';
import { addOp } from '../../ops/pointwise-binary.js';
import { rmsNormOp } from '../../ops/rms-norm.js';
import { eliminateDeadCode } from '../graph/eliminate.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value, ValueMeta } from '../graph/node.js';
import type { NodeValue } from '../partition/value-map.js';
import { isBarrier, isCandidate, metaOfValue } from './candidates.js';

/** A norm, and the addition whose sum it reads. */
interface Pair {
  readonly sum: Node;
  readonly norm: Node;
  /** The summands: that of the sum's dtype first. */
  readonly summands: readonly [Value, Value];
}

/** Joins the pairs of a graph of local ops. The norms read the sums as they are rounded. */
export function joinResidualNorms(graph: Graph, canFuse: (node: Node) => boolean): void {
  if (!graph.nodes.some(isNorm)) return;
  const users = graph.allUsers();
  const places = new Map<Node, readonly [position: number, region: number]>();
  let region = 0;
  for (const [position, node] of graph.nodes.entries())
    places.set(node, [position, isBarrier(node) ? ++region : region]);
  const joined = new Set<Node>();
  for (const norm of [...graph.nodes]) {
    const pair = pairOf(norm, users);
    if (pair === null || joined.has(pair.sum) || !canFuse(norm)) continue;
    const [position, own] = places.get(pair.sum) as readonly [number, number];
    const isEarlier = (value: Value): boolean =>
      'number' in value || (places.get(value.node)?.[0] ?? Number.POSITIVE_INFINITY) < position;
    if (places.get(norm)?.[1] !== own || !norm.inputs.slice(1).every(isEarlier)) continue;
    joined.add(pair.sum);
    join(graph, pair);
  }
  if (joined.size > 0) eliminateDeadCode(graph);
}

const isNorm = ({ op }: Node): boolean => op === rmsNormOp || op === layerNormOp;

function pairOf(norm: Node, users: ReadonlyMap<Node, readonly Node[]>): Pair | null {
  const [value] = norm.inputs;
  if (!isNorm(norm) || norm.into !== null) return null;
  if (value === undefined || 'number' in value) return null;
  const { node: sum } = value;
  const { alpha } = sum.params as { alpha?: number };
  if (sum.op !== addOp || sum.into !== null || alpha !== 1 || !isCandidate(sum)) return null;
  const [a, b] = sum.inputs as [Value, Value];
  const meta = sum.metas[0] as ValueMeta;
  for (const summands of [
    [a, b],
    [b, a],
  ] as const)
    if (fits(meta, summands, (node) => users.get(node)?.length === 1))
      return { sum, norm, summands };
  return null;
}

/** Whether a kernel can add these, and no other would have computed one of them beside it. */
function fits(
  { shape, strides, dtype }: ValueMeta,
  summands: readonly [Value, Value],
  isOnlyRead: (node: Node) => boolean,
): boolean {
  if (!isContiguousLayout(shape, strides)) return false;
  const areRows = summands.every((value) => {
    if ('number' in value) return false;
    const meta = metaOfValue(value);
    const isRow = sameShape(meta.shape, shape) && isContiguousLayout(meta.shape, meta.strides);
    return isRow && !(isCandidate(value.node) && isOnlyRead(value.node));
  });
  if (!areRows) return false;
  const [x, residual] = (summands as readonly NodeValue[]).map((value) => metaOfValue(value).dtype);
  return x === dtype && (residual === dtype || (dtype === float32 && isLow(residual)));
}

const isLow = (dtype: ValueMeta['dtype'] | undefined): boolean =>
  dtype !== undefined && isLowPrecision(dtype);

/** Puts one call in the place of the addition. */
function join(graph: Graph, { sum, norm, summands }: Pair): void {
  const { params, inputs, metas, origin, mode, tags } = norm;
  const [first, ...others] = metas as [ValueMeta];
  const isRms = norm.op === rmsNormOp;
  const node = graph.add(
    {
      kind: 'call',
      name: isRms ? 'addRmsNorm' : 'addLayerNorm',
      op: isRms ? addRmsNormOp : addLayerNormOp,
      inputs: [...summands, ...inputs.slice(1)],
      params,
      metas: [first, sum.metas[0] as ValueMeta, ...others],
      origin,
      mode,
      tags,
    },
    sum,
  );
  graph.replaceUses({ node: norm, output: 0 }, { node, output: 0 });
  for (const i of others.keys())
    graph.replaceUses({ node: norm, output: i + 1 }, { node, output: i + 2 });
  graph.replaceUses(sum, { node, output: 1 }, norm);
}
