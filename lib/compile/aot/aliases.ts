/**
 * Results that are views of inputs, or of other results: a run makes them from the real tensors,
 * with their history.
 */
import { gradMode, setGradMode } from '../../autograd/grad-mode.js';
import { belowEntry } from '../../core/dispatch.js';
import type { Tensor } from '../../core/tensor.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value } from '../graph/node.js';
import { isView } from '../graph/traits.js';

/** A chain of views that begins at an input. @internal */
export interface ViewOfPrimal {
  /** The index among the inputs and constants of the front graph. */
  readonly index: number;
  /** The views, in order. */
  readonly steps: readonly Node[];
}

/** The views that lead from an input to a value of a front graph; null if there are others. */
export function viewOfPrimal(graph: Graph, of: Value): ViewOfPrimal | null {
  const { root, steps } = viewsOf(of);
  if (!('node' in root)) return null;
  const index = primalNodes(graph).indexOf(root.node);
  return index < 0 ? null : { index, steps };
}

/** The views that lead to a value, in order, from one that is no view. */
export function viewsOf(of: Value): { readonly root: Value; readonly steps: readonly Node[] } {
  const steps: Node[] = [];
  let value = of;
  while ('node' in value && isView(value.node)) {
    steps.unshift(value.node);
    value = value.node.inputs[0] as Value;
  }
  return { root: value, steps };
}

/** The inputs of a front graph, then its constants. */
export function primalNodes(graph: Graph): Node[] {
  return [...graph.placeholders, ...graph.nodes.filter((n) => n.kind === 'constant')];
}

/** Makes the view of a real tensor. */
export function replayViews(t: Tensor, steps: readonly Node[]): Tensor {
  const outer = gradMode();
  let view = t;
  try {
    for (const { op, params, mode } of steps) {
      setGradMode(mode ?? outer);
      view = belowEntry(op as NonNullable<Node['op']>, [view], params, null)[0] as Tensor;
    }
  } finally {
    setGradMode(outer);
  }
  return view;
}
