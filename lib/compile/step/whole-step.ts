/**
 * Captures a function that runs backward as `compile` captures others: forward, backward and, if it
 * is called, the step of an optimizer become one graph.
 */
import { alreadyReleased, changeHistory, Node as TapeNode } from '../../autograd/node.js';
import { OpNode } from '../../autograd/op-node.js';
import type { Tensor } from '../../core/tensor.js';
import { tensors as tensorsIn } from '../../core/tree.js';
import { loweredCompilerOf } from '../aot/aot-autograd.js';
import type { CompileBackend, CompiledGraph } from '../backends.js';
import { type AnyFunction, watchingArguments } from '../capture/capture.js';
import { refuseOpaque } from '../capture/generators.js';
import { Recorder } from '../capture/recorder.js';
import { type Rebuild, rebuildFrom, withPlaces } from '../capture/results.js';
import { copyGraph } from '../graph/copy.js';
import type { Graph } from '../graph/graph.js';
import type { GuardCollector } from '../guards/guard-collector.js';
import type { CompileSettings } from '../options.js';
import {
  type RecordedStep,
  recordStep,
  runStep,
  type Source,
  tensorOf,
  valuesOf,
} from './record-step.js';

/**
 * Captures of a function as a whole step, at most: a number that changes at each call, such as a
 * learning rate, would make one for each.
 */
const MAX_STEPS = 4;

/** Why a function that runs backward is not captured as a whole step; null if it may be. */
export function whyNoStep(
  { backend, verify }: Pick<CompileSettings, 'backend' | 'verify'>,
  others: readonly { readonly isWholeStep: boolean }[],
): string | null {
  if (loweredCompilerOf(backend) === null)
    return (
      "the backend runs graphs through autograd, which such a graph contains; 'aot_eager', " +
      "'inductor' and those of aotAutograd do not"
    );
  if (verify !== null) return 'verify would take each step twice';
  if (others.filter(({ isWholeStep }) => isWholeStep).length >= MAX_STEPS)
    return `it was captured as one ${MAX_STEPS} times`;
  return null;
}

/** A captured function that runs backward. */
export class WholeStep {
  readonly graph: Graph;
  readonly rebuild: Rebuild;
  private readonly step: RecordedStep;
  /** The name of the node of each result that has a history, which backward has ended. */
  private readonly histories: readonly (string | null)[];

  constructor(graph: Graph, step: RecordedStep, rebuild: Rebuild, histories: (string | null)[]) {
    this.graph = graph;
    this.step = step;
    this.rebuild = rebuild;
    this.histories = histories;
  }

  /** What runs the graph. Its results are those of the function, in their order. */
  compiled(backend: CompileBackend, title: string, tensors: readonly Tensor[]): CompiledGraph {
    const lower = loweredCompilerOf(backend) as NonNullable<ReturnType<typeof loweredCompilerOf>>;
    const { graph } = copyGraph(this.graph);
    graph.title = title;
    const { step, histories } = this;
    const { sources } = step;
    const run = lower(graph, valuesOf(step.inputs, tensors));
    return (...inputs) => {
      const made = runStep(step, run, inputs);
      return sources.map((source, i) => {
        const t = tensorOf(source, made, inputs);
        const name = histories[i] as string | null;
        if (name !== null) changeHistory(t, new EndedNode(name), 0);
        return t;
      });
    };
  }
}

/** The history of a result, through which the step has run backward. */
class EndedNode extends TapeNode {
  readonly name: string;

  constructor(name: string) {
    super(1, []);
    this.name = name;
  }

  apply(): never {
    throw alreadyReleased(this.name);
  }
}

/**
 * Captures `fn` for these arguments as a whole step. @throws CompileError if it has an effect that
 * such a graph cannot repeat, or what is left of it after backward has a history
 */
export function captureWholeStep(
  fn: AnyFunction,
  args: readonly unknown[],
  guards: GuardCollector,
  signal: AbortSignal | null,
): WholeStep {
  const tensors = guards.inputs();
  const recorder = new Recorder(guards, 'lowered');
  recorder.stepCaller = 'compile';
  recorder.signal = signal;
  refuseOpaque(recorder);
  const checkArguments = watchingArguments(recorder, args);
  const step = recordStep(recorder, tensors, new Map(), () => {
    const result = fn(...args);
    checkArguments();
    return result;
  });
  const { sources } = step;
  const results = tensorsIn(step.result);
  const histories = results.map((t, i) => historyOf(recorder, t, sources[i] as Source));
  const places = withPlaces(step.result, args, recorder);
  const rebuild = rebuildFrom(places, results, sources.map(placeOf));
  return new WholeStep(recorder.graph, step, rebuild, histories);
}

const placeOf = (source: Source): number | Tensor =>
  'argument' in source ? source.argument : 'tensor' in source ? source.tensor : -1;

/**
 * The name of the node of a result, if it has one. Each run makes results without what their nodes
 * saved, so backward must have ended their history.
 */
function historyOf(recorder: Recorder, t: Tensor, source: Source): string | null {
  if (!('result' in source)) {
    const isKnown = 'argument' in source || recorder.guards.constantTensors.has(source.tensor);
    return isKnown ? null : recorder.unsupported('the .grad before the call was returned');
  }
  if (t.gradTensor !== null) recorder.unsupported('a result keeps its gradient, which');
  if (!t.requiresGrad) return null;
  const node = t.currentGradFn as TapeNode | null;
  if (node === null || !isEnded(node))
    recorder.unsupported('a result was returned through which backward can run still');
  return node.name;
}

/** Whether a backward pass through the node fails because an earlier one has freed something. */
function isEnded(from: TapeNode): boolean {
  const seen = new Set([from]);
  for (const node of seen) {
    if (node instanceof OpNode && node.facts() === null) return true;
    for (const edge of node.edges) if (edge !== null) seen.add(edge.node);
  }
  return false;
}
