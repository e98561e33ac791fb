/**
 * Which saved values backward may overwrite and free: those that only the compiled function's node
 * owns while no pass comes after.
 *
 * @see PyTorch `torch._functorch.config.donated_buffer`
 */
import type { Value } from '../graph/node.js';
import { isTensor } from '../partition/extract.js';
import type { JointGraph, Partition } from '../partition/joint-graph.js';
import { Memory } from '../partition/memory.js';

/**
 * The positions of saved values whose memory ops of the graph made, and which no input, constant,
 * result, effect or op of the program shares. @internal
 */
export function donatedValues(joint: JointGraph, saved: Partition['saved']): number[] {
  const { graph, forwardOutputs } = joint;
  const memory = new Memory(graph);
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const seen = new Set<object>();
  const see = (value: Value): void => {
    if ('node' in value) seen.add(memory.of(value));
  };
  for (const node of nodes.values()) {
    if (node.kind === 'call' && node.op?.compute === null) continue;
    node.reads.forEach(see);
    for (let output = 0; output < Math.max(1, node.metas.length); output++) see({ node, output });
  }
  graph.outputs.slice(0, forwardOutputs).forEach(see);
  return saved.flatMap(({ node: { id }, output }, i) => {
    const node = nodes.get(id);
    if (node === undefined || !isTensor({ node, output })) return [];
    const isPlain = node.metas[output]?.placements === null;
    return isPlain && !seen.has(memory.of({ node, output })) ? [i] : [];
  });
}
