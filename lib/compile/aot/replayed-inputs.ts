/**
 * Second derivatives of a compiled function. Its backward graph has none, so the front graph runs
 * again through autograd, on the inputs of the call, and backward is recorded from there.
 */
import { AccumulateGrad, edgeOf } from '../../autograd/accumulate-grad.js';
import { runBackward } from '../../autograd/engine.js';
import { higherOrder } from '../../autograd/higher-order.js';
import { type Edge, type Gradients, Node } from '../../autograd/node.js';
import { SavedTensor } from '../../autograd/saved-tensor.js';
import { Tensor } from '../../core/tensor.js';
import { isPlainNumber } from '../capture/number-inputs.js';
import type { RunValue } from '../graph/effects.js';
import type { GraphModule } from '../graph/graph-module.js';
import { isRandom } from '../graph/traits.js';
import type { OutputPlaces } from './compiled-function.js';
import type { JointTrace } from './joint-trace.js';
import { withConstantsAsInputs } from './retrace.js';

/** What runs again. @internal */
export interface Replay {
  /** The front graph, whose constants are inputs behind the others. */
  readonly module: () => GraphModule;
  readonly constants: readonly Tensor[];
  /** For each primal the first one that is the same tensor. */
  readonly first: readonly number[];
  /** The primals, each once, that forward does not save. */
  readonly unsaved: readonly number[];
  /** The primals that get a gradient. */
  readonly targets: ReadonlySet<unknown>;
}

/** Null for a function that does more than compute, or draws random numbers. @internal */
export function replayOf(
  module: GraphModule,
  primals: readonly RunValue[],
  { trace, places }: { trace: JointTrace; places: OutputPlaces },
  saved: readonly number[],
): Replay | null {
  const { nodes } = module.graph;
  const isPure = nodes.every(
    (node) =>
      node.kind !== 'effect' &&
      node.into === null &&
      (node.op === null || (node.op.mutates === null && !isRandom(node))),
  );
  if (!isPure || places.roots.some((at) => at < 0 || at >= trace.outputCount)) return null;
  const constants = nodes.flatMap(({ tensor }) => tensor ?? []);
  const first = firstPlaces(primals);
  return {
    module: onceMade(module),
    constants,
    first,
    unsaved: first.filter((at, i) => at === i && !saved.includes(i)),
    targets: new Set(trace.gradients.map(({ of }) => of)),
  };
}

/** Apart from {@link onceMade}, so that what is returned there does not hold the values. */
const firstPlaces = (values: readonly RunValue[]): number[] =>
  values.map((value) => values.indexOf(value));

function onceMade(module: GraphModule): () => GraphModule {
  let front: GraphModule | null = null;
  return () => (front ??= withConstantsAsInputs(module));
}

/** What a call remembers of the inputs that its forward does not save. @internal */
export class ReplayedInputs {
  private readonly replay: Replay;
  private readonly kept: readonly (SavedTensor | RunValue | undefined)[];
  private readonly versions: readonly number[];

  constructor(replay: Replay, primals: readonly RunValue[]) {
    this.replay = replay;
    const { unsaved } = replay;
    this.kept = unsaved.map((i) => this.keep(i, primals));
    this.versions = unsaved.map((i) => versionOf(primals[i] as RunValue));
  }

  /**
   * A value to keep; undefined for one that is found without, and for an activation in a program
   * that has not differentiated gradients yet: few programs do, and activations are large.
   */
  private keep(primal: number, primals: readonly RunValue[]): SavedTensor | RunValue | undefined {
    const { first, constants, targets } = this.replay;
    const value = primals[primal];
    if (!(value instanceof Tensor) || isPlainNumber(value)) return value;
    const isFound = primal >= first.length - constants.length;
    if (isFound) return undefined;
    if (targets.has(primal) && (value.leafRequiresGrad || !higherOrder.isUsed)) return undefined;
    return new SavedTensor(value, null);
  }

  /**
   * The primal, if it was kept, is a leaf that gets a gradient by this edge, or is a constant of the
   * graph; undefined if it is gone or was changed since. `node`: the one of the call.
   */
  valueOf(primal: number, edge: Edge | null, node: Node): RunValue | undefined {
    const { first, constants, unsaved } = this.replay;
    const at = unsaved.indexOf(primal);
    const kept = this.kept[at];
    if (kept instanceof SavedTensor)
      return kept.unpack(node.name, `input ${primal}`, node, false, true);
    if (kept !== undefined) return kept;
    const leaf = edge?.node instanceof AccumulateGrad ? edge.node.variable : undefined;
    const t = leaf ?? constants[primal - (first.length - constants.length)];
    return t !== undefined && t.currentVersion === this.versions[at] ? t : undefined;
  }

  release(): void {
    for (const value of this.kept) if (value instanceof SavedTensor) value.release();
  }
}

const versionOf = (value: RunValue): number => (value instanceof Tensor ? value.currentVersion : 0);

/** Passes the gradient of an input of the second run on to where that of the first run goes. */
class InputOfReplay extends Node {
  readonly name = 'CompiledFunction';

  apply(grads: Gradients): Gradients {
    return grads;
  }
}

/**
 * The gradients of the primals, with a history. `primals`: the inputs of the call and the
 * constants; `edges`: where their gradients go, in the order of the gradients of the trace.
 *
 * @internal
 */
export function differentiableGradients(
  { module, first }: Replay,
  { trace, places }: { trace: JointTrace; places: OutputPlaces },
  primals: readonly RunValue[],
  edges: readonly (Edge | null)[],
  grads: Gradients,
): Gradients {
  const inputs = [...primals];
  const ends = trace.gradients.map(({ of }, k): Edge => {
    const end = { node: new InputOfReplay(1, [edges[k] ?? null]), outputNr: 0 };
    const shadow = (primals[of as number] as Tensor).detach();
    shadow.base = null;
    shadow.node = end.node;
    inputs[of as number] = shadow;
    return end;
  });
  const given = first.map((at) => inputs[at] as RunValue);
  const outputs = module().run(given) as readonly Tensor[];
  const used = grads.flatMap((grad, i) => (grad ? [i] : []));
  const roots = used.map((i) => edgeOf(outputs[places.roots[i] as number] as Tensor) as Edge);
  const tangents = used.map((i) => {
    const grad = grads[i] as Tensor;
    return trace.roots[i]?.sharding?.fit(grad) ?? grad;
  });
  return runBackward(roots, () => tangents, {
    retainGraph: true,
    createGraph: true,
    captures: ends,
    only: null,
  });
}
