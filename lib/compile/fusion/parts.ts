/**
 * Prepares parts of tensors for fusion: what is written into parts of a new tensor is joined
 * instead, and parts are converted instead of the whole, beside what else computes or reads them.
 * Rotary positions are such code: forward joins halves of features, backward writes into them.
 */
import { contiguousStrides, isContiguousLayout, sameShape } from '../../core/shape.js';
import { copyOp } from '../../ops/copy.js';
import { catOp } from '../../ops/join.js';
import { sliceOp } from '../../ops/window.js';
import { eliminateDeadCode } from '../graph/eliminate.js';
import type { Graph } from '../graph/graph.js';
import type { Node, ValueMeta } from '../graph/node.js';
import { standIn } from '../partition/memory.js';
import type { NodeValue } from '../partition/value-map.js';
import { areInOneOrder, isBarrier, isCandidate, isJoin, metaOfValue } from './candidates.js';
import { joinWrittenParts } from './written-parts.js';

/** Rewrites a graph of local ops so that more of its calls can be fused. */
export function prepareParts(graph: Graph, canFuse: (node: Node) => boolean): void {
  if (!graph.nodes.some(({ op }) => op === catOp || op === sliceOp)) return;
  joinWrittenParts(graph);
  convertJoinedParts(graph, canFuse);
  convertSlices(graph, canFuse);
  eliminateDeadCode(graph);
}

/** The value that a call converts to another dtype in new memory; null for other nodes. */
function convertedBy({ op, into, inputs: [value], metas }: Node): NodeValue | null {
  if (op !== copyOp || into !== null || value === undefined || 'number' in value) return null;
  const [from, to] = [value.node.metas[value.output], metas[0]];
  return from?.dtype === to?.dtype || from?.placements !== null ? null : value;
}

/** Converts what is joined before it is, where a kernel computes it. */
function convertJoinedParts(graph: Graph, canFuse: (node: Node) => boolean): void {
  const users = graph.allUsers();
  for (const node of [...graph.nodes]) {
    const joined = convertedBy(node)?.node;
    if (joined === undefined || !isJoin(joined) || !isCandidate(joined) || !canFuse(node)) continue;
    const isResult = graph.outputs.some((value) => 'node' in value && value.node === joined);
    if (isResult || users.get(joined)?.length !== 1) continue;
    const parts = joined.inputs as NodeValue[];
    const [from, to] = [joined.metas[0], node.metas[0]] as [ValueMeta, ValueMeta];
    if (!sameShape(from.strides, to.strides) || !parts.every(isComputed)) continue;
    joined.inputs = parts.map((part) => addConversion(graph, part, node, joined));
    joined.metas = node.metas;
    graph.replaceUses(node, joined);
    graph.erase(node);
  }
}

/** Whether a kernel may compute a value, in row-major order. */
const isComputed = ({ node }: NodeValue): boolean => isRowMajor(node);

/** Converts slices instead of the whole, where nothing but kernels reads these. */
function convertSlices(graph: Graph, canFuse: (node: Node) => boolean): void {
  const users = graph.allUsers();
  const results = new Set(graph.outputs.map((value) => ('node' in value ? value.node : null)));
  let region = 0;
  const regions = new Map(
    graph.nodes.map((node) => [node, isBarrier(node) ? ++region : region] as const),
  );
  for (const node of [...graph.nodes]) {
    const whole = convertedBy(node);
    const slices = users.get(node) ?? [];
    if (whole === null || results.has(node) || slices.length === 0 || !canFuse(node)) continue;
    const isRead = (slice: Node): boolean =>
      slice.op === sliceOp &&
      regions.get(slice) === regions.get(node) &&
      slice.into === null &&
      !results.has(slice) &&
      (users.get(slice) as Node[]).every(isRowMajor) &&
      areInOneOrder(slicedMeta(slice, whole), convertedMeta(slice));
    if (!slices.every(isRead)) continue;
    for (const slice of slices) {
      const { op, params, origin, mode, tags } = slice;
      const metas = [slicedMeta(slice, whole)];
      const fields = { name: 'slice', op, inputs: [whole], params, metas, origin, mode, tags };
      const part = { node: graph.add({ kind: 'call', ...fields }, slice), output: 0 };
      graph.replaceUses(slice, addConversion(graph, part, node, slice));
    }
  }
}

/** Whether a kernel may compute the node, whose result is row-major whatever its operands are. */
const isRowMajor = (node: Node): boolean => {
  const { shape, strides } = node.metas[0] ?? { shape: [], strides: [1] };
  return isCandidate(node) && isContiguousLayout(shape, strides);
};

/** The meta of a slice of another tensor of the same shape. */
function slicedMeta({ params }: Node, whole: NodeValue): ValueMeta {
  const meta = metaOfValue(whole);
  const view = sliceOp.view?.(standIn(meta, Number.POSITIVE_INFINITY), params as never);
  return { ...meta, shape: view?.shape ?? [], strides: view?.strides ?? [] };
}

/** The meta of a conversion of a slice, as the slice of the conversion but without gaps. */
function convertedMeta({ metas: [meta] }: Node): ValueMeta {
  const { shape } = meta as ValueMeta;
  return { ...(meta as ValueMeta), strides: contiguousStrides(shape) };
}

/** Adds a conversion of a value, to the dtype of another conversion, in front of a node. */
function addConversion(graph: Graph, value: NodeValue, like: Node, before: Node): NodeValue {
  const { op, metas, origin, mode, tags } = like;
  const { dtype } = metas[0] as ValueMeta;
  const meta = metaOfValue(value);
  const strides = contiguousStrides(meta.shape);
  const node = graph.add(
    {
      kind: 'call',
      name: 'copy',
      op,
      inputs: [value],
      params: { dtype },
      metas: [{ ...meta, dtype, strides }],
      origin,
      mode,
      tags,
    },
    before,
  );
  return { node, output: 0 };
}
