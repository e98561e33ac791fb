/** A train step whose parts may run in the next iteration: three graphs, and which of them runs. */

import { fusePointwise } from '../compile/fusion/fuse.js';
import { checkGraph } from '../compile/graph/check-graph.js';
import { copyGraph } from '../compile/graph/copy.js';
import type { RunValue } from '../compile/graph/effects.js';
import type { Graph } from '../compile/graph/graph.js';
import { GraphModule } from '../compile/graph/graph-module.js';
import { lint } from '../compile/graph/lint.js';
import type { Node } from '../compile/graph/node.js';
import { buildPlan } from '../compile/schedule/plan.js';
import type { StepInput } from '../compile/step/lifts.js';
import { CompileError } from '../core/errors.js';
import { checkFlag, checkNumber, optionsOf } from '../core/options.js';
import { keep } from '../core/scope.js';
import { Tensor } from '../core/tensor.js';
import { checkHazards } from './hazards.js';
import { IterGraph } from './iter-graph.js';
import { type IterGraphs, iterGraphs, writtenPlaceholders } from './iter-graphs.js';
import { inputOf, isLastingInput, type StepModule } from './step-module.js';

/** Runs a graph: one value for each input. */
export type RunGraph = (inputs: readonly RunValue[]) => readonly RunValue[];

/** Options of {@link IterGraphModule}. */
export interface IterGraphModuleOptions {
  /** The number of iterations, if it is known: the last one needs no flag then. */
  maxIters?: number | null;
  /** Compiles the graph of all iterations but the first and the last to encoded commands. */
  enableInductor?: boolean;
}

/**
 * The graph of an iteration, and what runs: the graphs of the first (`setup`), the last (`cleanup`)
 * and all other iterations (`main`). They follow from `graph` at {@link recompile}; edits have no
 * effect before.
 *
 * @see PyTorch `torch.distributed._spmd.iter_graph_module.IterGraphModule`
 */
export class IterGraphModule {
  /** The graph of one iteration, which passes edit. */
  readonly graph: IterGraph;
  private readonly inputs: readonly StepInput[] | null;
  private readonly maxIters: number | null;
  private readonly enableInductor: boolean;
  private graphs: IterGraphs;
  private runs: ReadonlyMap<string, RunGraph> = new Map();
  private iteration = 0;
  private kept: readonly RunValue[] = [];

  /**
   * `module`: the graph of a train step, as a transformation gets it, or any other graph module.
   * The inputs of the latter are taken for arguments, except those that its graph writes.
   *
   * @throws ArgumentError for options of other types, and a module without a graph
   */
  constructor(module: StepModule | GraphModule, options: IterGraphModuleOptions = {}) {
    const name = 'IterGraphModule';
    const { maxIters = null, enableInductor = false } = optionsOf(
      name,
      options,
      'maxIters enableInductor',
    );
    if (maxIters !== null) checkNumber(name, 'maxIters', maxIters, { from: 1, whole: true });
    checkFlag(name, 'enableInductor', enableInductor);
    checkGraph(name, (module as Partial<typeof module> | null)?.graph, 'the graph of module');
    this.graph = new IterGraph(module.graph);
    this.inputs = 'inputs' in module ? module.inputs : null;
    this.maxIters = maxIters;
    this.enableInductor = enableInductor;
    this.graphs = this.compiled();
  }

  /** The graph of the first iteration. */
  get setup(): Graph {
    return this.graphs.setup;
  }

  /** The graph of all other iterations. */
  get main(): Graph {
    return this.graphs.main;
  }

  /** The graph of the last iteration. */
  get cleanup(): Graph {
    return this.graphs.cleanup;
  }

  /** Whether parts of an iteration wait for the next one. */
  get hasKept(): boolean {
    return this.kept.length > 0;
  }

  /**
   * Applies edits and moves.
   *
   * @throws CompileError if a node uses a later one, or a moved node would find or leave memory
   * otherwise than in its own iteration: a parameter that is read before the moved step writes it
   */
  recompile(): void {
    if (this.kept.length > 0)
      throw new CompileError(
        'recompile: moved nodes of an iteration have not run yet. Take the last step, with ' +
          'lastTrainStep: true, before edits.',
      );
    lint(this.graph);
    checkHazards(this.graph, this.lastingInputs(), (node) => this.nameOf(node));
    this.graphs = this.compiled();
  }

  /** Applies edits, and ends moves between iterations. @throws CompileError as {@link recompile} */
  finalizeSetup(): void {
    this.graph.freezeCrossIterMovement();
    this.recompile();
    this.iteration = 0;
  }

  /**
   * Runs one iteration.
   *
   * @param isLast - whether no other iteration follows, so that everything it moved has to run
   * @throws CompileError for another number of inputs
   */
  run(inputs: readonly RunValue[], isLast = false): readonly RunValue[] {
    const last = isLast || this.iteration + 1 === this.maxIters;
    const first = this.iteration === 0;
    const { kept } = this;
    this.iteration = last ? 0 : this.iteration + 1;
    const isWhole = this.graphs.kept === 0 || (first && last);
    const part = isWhole ? 'whole' : first ? 'setup' : last ? 'cleanup' : 'main';
    const run = this.runs.get(part) as RunGraph;
    if (isWhole) return run(inputs);
    const results = run(first ? inputs : [...inputs, ...kept]);
    const { length } = this.graph.outputs;
    this.kept = last ? [] : results.slice(length).map(keepValue);
    for (const value of kept) if (value instanceof Tensor) value.dispose();
    return results.slice(0, length);
  }

  private compiled(): IterGraphs {
    const graphs = iterGraphs(this.graph, this.lastingInputs());
    const { setup, main, cleanup, kept } = graphs;
    this.runs = new Map<string, RunGraph>(
      kept === 0
        ? [['whole', this.mainRun(main)]]
        : [
            ['whole', this.opByOp(new IterGraph(this.graph))],
            ['setup', this.opByOp(setup)],
            ['main', this.mainRun(main)],
            ['cleanup', this.opByOp(cleanup)],
          ],
    );
    return graphs;
  }

  /** The inputs that are the same tensors in all iterations. */
  private lastingInputs(): ReadonlySet<Node> {
    const written = writtenPlaceholders(this.graph);
    const { inputs } = this;
    if (inputs === null) return written;
    return new Set(
      this.graph.placeholders.filter((node) =>
        isLastingInput(inputOf(inputs, node), written.has(node)),
      ),
    );
  }

  private mainRun(graph: Graph): RunGraph {
    if (!this.enableInductor) return this.opByOp(graph);
    const { graph: fused } = copyGraph(graph);
    fusePointwise(fused);
    const plan = buildPlan(fused);
    return (inputs) => plan.run(inputs);
  }

  private opByOp(graph: Graph): RunGraph {
    const module = new GraphModule(graph);
    return (inputs) => module.run(inputs);
  }

  private nameOf(placeholder: Node): string {
    const { inputs } = this;
    const input = inputs === null ? undefined : inputOf(inputs, placeholder);
    return input === undefined ? `%${placeholder.name}` : `${input.role} ${input.name}`;
  }
}

/** Keeps a value beyond the scope of its iteration. */
function keepValue(value: RunValue): RunValue {
  return value instanceof Tensor ? keep(value) : value;
}
