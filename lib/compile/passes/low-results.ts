/**
 * Lets the kernels of norms and of their gradients write the conversion of the result that mixed
 * precision makes for the next product: as an op of its own, it would read the result again. The
 * result itself is not written where nothing reads it.
 */
import { type DType, float32, isLowPrecision } from '../../core/dtype.js';
import { sameShape } from '../../core/shape.js';
import { addRmsNormOp } from '../../ops/add-rms-norm.js';
import { layerNormOp } from '../../ops/layer-norm.js';
import { rmsNormOp } from '../../ops/rms-norm.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value, ValueMeta } from '../graph/node.js';
import { Memory } from '../partition/memory.js';

/**
 * Replaces conversions to 16 bits by outputs of the calls whose results they convert. Conversions
 * stay whose tags differ from those of the call, and those of results that are changed in place.
 *
 * @returns the number of replaced conversions
 */
export function writeLowResults(graph: Graph): number {
  const converted = graph.nodes.flatMap((node) => {
    const norm = normBefore(node);
    return norm === null ? [] : [{ node, norm }];
  });
  if (converted.length === 0) return 0;
  const memory = new Memory(graph);
  let count = 0;
  for (const { node, norm } of converted) {
    if (hasLow(norm) || memory.writes({ node: norm, output: 0 }) > 0) continue;
    norm.params = { ...norm.params, low: (node.metas[0] as ValueMeta).dtype };
    norm.metas = [...norm.metas, ...node.metas];
    graph.replaceUses(node, { node: norm, output: norm.metas.length - 1 });
    graph.erase(node);
    if (isUnread(graph, norm)) dropResult(graph, norm);
    count++;
  }
  return count;
}

/** Whether nothing reads the first result of a call. */
function isUnread(graph: Graph, node: Node): boolean {
  const reads = (value: Value): boolean =>
    'node' in value && value.node === node && value.output === 0;
  return !graph.outputs.some(reads) && !graph.nodes.some((each) => each.reads.some(reads));
}

/** Lets the kernel of a norm write its result in 16 bits alone, which becomes the first output. */
function dropResult(graph: Graph, norm: Node): void {
  if (norm.op !== layerNormOp && norm.op !== rmsNormOp && norm.op !== addRmsNormOp) return;
  const last = norm.metas.length - 1;
  norm.params = { ...norm.params, alone: true };
  norm.metas = [norm.metas[last] as ValueMeta, ...norm.metas.slice(1, last)];
  graph.replaceUses({ node: norm, output: last }, { node: norm, output: 0 });
}

/** The call whose float32 result a node converts; null if its kernel could not. */
function normBefore(node: Node): Node | null {
  const [value] = node.inputs;
  if (node.op?.name !== 'copy' || node.into !== null) return null;
  if (value === undefined || 'number' in value || value.output !== 0) return null;
  const { node: norm } = value;
  if (norm.op === null || !norm.op.writesLow || norm.into !== null) return null;
  const [from, to] = [norm.metas[0], node.metas[0]] as [ValueMeta, ValueMeta];
  const converts = from.dtype === float32 && isLowPrecision(to.dtype);
  return converts && sameShape(from.strides, to.strides) && sameTags(node, norm) ? norm : null;
}

const hasLow = ({ params }: Node): boolean => (params as { low?: DType }).low !== undefined;

const sameTags = ({ tags }: Node, other: Node): boolean =>
  tags.size === other.tags.size && [...tags].every((tag) => other.tags.has(tag));
