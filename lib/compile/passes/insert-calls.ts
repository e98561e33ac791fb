/** Adds the calls of a function to a graph. */
import { noGrad } from '../../autograd/grad-mode.js';
import { setAutocast } from '../../core/autocast.js';
import type { Tensor } from '../../core/tensor.js';
import { recording } from '../capture/levels.js';
import { Recorder } from '../capture/recorder.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value, ValueMeta } from '../graph/node.js';
import { GuardCollector } from '../guards/guard-collector.js';
import { standIn } from '../partition/memory.js';
import type { NodeValue } from '../partition/value-map.js';
import { inlineCalls } from './inline.js';

/**
 * Runs `fn` on tensors without memory in place of values, and adds the calls of local ops that it
 * makes in front of a node. The calls have the origin and tags of `before`, or those of `like`.
 *
 * @returns the values that `fn` returned
 * @throws CompileError if `fn` reads values
 */
export function insertCalls(
  graph: Graph,
  before: Node,
  values: readonly NodeValue[],
  fn: (...tensors: readonly Tensor[]) => readonly Tensor[],
  like: Pick<Node, 'origin' | 'tags' | 'mode'> = before,
): Value[] {
  const recorder = new Recorder(new GuardCollector(), 'lowered');
  const autocast = setAutocast(false);
  const placeholders: Node[] = [];
  try {
    noGrad(() =>
      recording(recorder, () => {
        const tensors = values.map((value, i) => {
          const t = standIn(value.node.metas[value.output] as ValueMeta);
          placeholders.push(recorder.placeholder(t, i));
          return t;
        });
        recorder.graph.outputs = fn(...tensors).map((t) => recorder.valueOf(t));
      }),
    );
  } finally {
    recorder.restore();
    setAutocast(autocast);
  }
  const operands = new Map(placeholders.map((p, i) => [p, values[i] as NodeValue]));
  return inlineCalls(graph, recorder.graph, operands, like, before);
}
