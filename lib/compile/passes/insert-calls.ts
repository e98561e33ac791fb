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
  like: Node = before,
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
  return inlined(
    graph,
    before,
    recorder.graph,
    new Map(placeholders.map((p, i) => [p, values[i] as NodeValue])),
    like,
  );
}

function inlined(
  graph: Graph,
  before: Node,
  calls: Graph,
  operands: ReadonlyMap<Node, NodeValue>,
  { origin, tags }: Node,
): Value[] {
  const copies = new Map<Node, Node>();
  const mapped = (value: Value): Value => {
    if ('number' in value) return value;
    const copy = copies.get(value.node);
    return copy === undefined
      ? (operands.get(value.node) as NodeValue)
      : { node: copy, output: value.output };
  };
  for (const call of calls.nodes) {
    if (operands.has(call)) continue;
    const fields = {
      ...call,
      name: call.op?.name ?? call.kind,
      inputs: call.inputs.map(mapped),
      into: call.into === null ? null : mapped(call.into),
      origin,
      tags,
    };
    copies.set(call, graph.add(fields, before));
  }
  return calls.outputs.map(mapped);
}
