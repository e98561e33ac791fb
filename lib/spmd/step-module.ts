/** The graph of a train step as transformations get it. */
import type { Graph } from '../compile/graph/graph.js';
import { lint } from '../compile/graph/lint.js';
import type { Node } from '../compile/graph/node.js';
import type { CapturedStep } from '../compile/step/capture-step.js';
import type { StepInput } from '../compile/step/lifts.js';

/** Roles of inputs that are the same tensors in all iterations, and that only the graph changes. */
const LASTING: ReadonlySet<StepInput['role']> = new Set(['parameter', 'buffer', 'state']);

/** The graph of a train step, and what its inputs are to the program. */
export class StepModule {
  /** Forward, backward and the optimizer's step as one graph of local ops and collectives. */
  readonly graph: Graph;
  /** What each input of the graph is. */
  readonly inputs: readonly StepInput[];

  /** @internal */
  constructor({ graph, inputs }: Pick<CapturedStep, 'graph' | 'inputs'>) {
    this.graph = graph;
    this.inputs = inputs;
  }

  /** Checks edits. @throws CompileError if a node uses a later one */
  recompile(): void {
    lint(this.graph);
  }
}

/** What the copy of an input, which has its number, is to the program. */
export function inputOf(inputs: readonly StepInput[], { id }: Node): StepInput | undefined {
  return inputs.find(({ node }) => node.id === id);
}

/**
 * Whether an input is the same tensor in all iterations, and has there what the graph has written.
 * A learning rate is one tensor, too, and the program may write it in between.
 */
export const isLastingInput = (input: StepInput | undefined, isWritten: boolean): boolean =>
  input !== undefined && (LASTING.has(input.role) || (input.tensor !== null && isWritten));
