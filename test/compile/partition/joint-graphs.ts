/**
 * Joint graphs for tests: recorded from a function, or written by hand; and how a partition runs.
 */
import assert from 'node:assert/strict';
import { edgeOf } from '../../../lib/autograd/accumulate-grad.js';
import { runBackward } from '../../../lib/autograd/engine.js';
import type { Edge } from '../../../lib/autograd/node.js';
import { recording } from '../../../lib/compile/capture/levels.js';
import { Recorder } from '../../../lib/compile/capture/recorder.js';
import type { RunValue } from '../../../lib/compile/graph/effects.js';
import type { Graph } from '../../../lib/compile/graph/graph.js';
import { GraphModule } from '../../../lib/compile/graph/graph-module.js';
import { GuardCollector } from '../../../lib/compile/guards/guard-collector.js';
import type { JointGraph, Partition } from '../../../lib/compile/partition/joint-graph.js';
import { belowDTensor } from '../../../lib/core/dispatch.js';
import { fakeTensor } from '../../../lib/eager/fake-backend.js';
import { manualSeed, noGrad, rand, type Tensor } from '../../../lib/index.js';

/** Records a function and the gradients of its arguments. */
export function jointOf(fn: (...args: Tensor[]) => Tensor | Tensor[], args: Tensor[]): JointGraph {
  const recorder = new Recorder(new GuardCollector(), 'lowered');
  try {
    return recording(recorder, () => {
      const primals = args.map((t, i) => recorder.placeholder(t, i));
      const outputs = [fn(...args)].flat();
      const tangents = outputs.map(fakeTensor);
      const nodes = tangents.map((t, i) => recorder.placeholder(t, args.length + i));
      const wanted = args.filter((t) => t.requiresGrad);
      const grads = runBackward(outputs.map(edge), () => tangents, {
        retainGraph: true,
        createGraph: false,
        captures: wanted.map(edge),
        only: null,
      });
      recorder.graph.outputs = [...outputs, ...(grads as Tensor[])].map((t) => recorder.valueOf(t));
      return {
        graph: recorder.graph,
        primals,
        tangents: nodes,
        forwardOutputs: outputs.length,
      };
    });
  } finally {
    recorder.restore();
  }
}

const edge = (t: Tensor): Edge => edgeOf(t) as Edge;

/** Runs a graph below autograd. */
export function runGraph(graph: Graph, inputs: readonly RunValue[]): RunValue[] {
  return noGrad(() => new GraphModule(graph, belowDTensor).run(inputs));
}

/** The outputs and the gradients of a partition. */
export function runPartition(
  { forward, backward }: Partition,
  forwardOutputs: number,
  primals: readonly RunValue[],
  tangents: readonly RunValue[],
): RunValue[] {
  const results = runGraph(forward, primals);
  return [
    ...results.slice(0, forwardOutputs),
    ...runGraph(backward, [...results.slice(forwardOutputs), ...tangents]),
  ];
}

/** The names of the ops that a graph calls, in order. */
export const opsOf = (graph: Graph): string[] => graph.callNodes.map((n) => n.op?.name ?? '');

/** Tensors as numbers, to compare. */
export const numbers = (values: readonly RunValue[]): unknown[] =>
  values.map((t) => (t as Tensor).tolist());

/** Asserts equal values to the bit. */
export function assertSame(actual: readonly RunValue[], expected: readonly RunValue[]): void {
  assert.deepEqual(numbers(actual), numbers(expected));
}

/** Compares outputs and gradients of a partition with eager ones, twice. */
export function assertFaithful(
  fn: (...args: Tensor[]) => Tensor,
  args: Tensor[],
  partition: (joint: JointGraph) => Partition,
): JointGraph {
  const joint = jointOf(fn, args);
  const parts = partition(joint);
  for (let run = 0; run < 2; run++) {
    const leaves = args.map((t) => t.detach().clone().requiresGrad_(t.requiresGrad));
    manualSeed(run);
    const y = fn(...leaves);
    const tangent = rand(y.shape);
    y.backward(tangent);
    const grads = leaves.filter((t) => t.requiresGrad).map((t) => t.grad as Tensor);
    manualSeed(run);
    const inputs = args.map((t) => t.detach().clone());
    assertSame(runPartition(parts, 1, inputs, [tangent]), [y, ...grads]);
  }
  return joint;
}
