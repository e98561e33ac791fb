/**
 * The graph of a backward pass, and what compilers made of it. The capture is the same for all of
 * them, and so is what `compile` makes of it with one backend: a program may write the function in
 * its loop, which is another function in each step.
 */
import type { CompileBackend } from '../backends.js';
import { backendOfRun, compiledGraph } from '../compiled-graph.js';
import { whileCompiling } from '../compiling.js';
import { copyGraph } from '../graph/copy.js';
import type { RunValue } from '../graph/effects.js';
import type { Graph } from '../graph/graph.js';
import { GraphModule } from '../graph/graph-module.js';
import { checkedOnce, expectedOutputs, madeBy } from '../outputs.js';

/**
 * Compiles the graph of a backward pass. Its inputs are the tensors that the pass reads, random
 * states, and plain numbers that differ from pass to pass; its results are gradients that
 * `autograd.grad` asked for.
 */
export type BackwardCompiler = (module: GraphModule) => BackwardRun;

/** A compiled backward pass. */
export type BackwardRun = (...inputs: readonly RunValue[]) => readonly RunValue[];

/** Functions of their own that compilers may return for one graph before a warning. */
const MANY_COMPILERS = 8;

/** A captured graph, which nobody edits: each compiler gets a copy. */
export class BackwardGraph {
  readonly graph: Graph;
  private readonly ofCompilers = new WeakMap<BackwardCompiler, BackwardRun>();
  private readonly ofBackends = new WeakMap<CompileBackend, BackwardRun>();
  private compiled = 0;

  constructor(graph: Graph) {
    this.graph = graph;
  }

  /**
   * What the compiler makes of the graph. It is called once for it.
   *
   * @throws CompileError at the first run, for other results than the graph has
   */
  runOf(compiler: BackwardCompiler): BackwardRun {
    let run = this.ofCompilers.get(compiler);
    if (run === undefined) {
      run = whileCompiling('the graph of a backward pass', () => this.compiledBy(compiler));
      this.ofCompilers.set(compiler, run);
    }
    return run;
  }

  private compiledBy(compiler: BackwardCompiler): BackwardRun {
    const module = this.copy();
    const returned = compiler(module);
    const backend = backendOfRun(returned, module);
    // A module that nobody has looked at has no edits: the backend alone decides what runs.
    if (backend !== null && !module.isUsed) return this.compiledWith(backend);
    if (++this.compiled === MANY_COMPILERS) warnOfCompilers(this.graph);
    return this.checked(compiler.name, returned);
  }

  private compiledWith(backend: CompileBackend): BackwardRun {
    let run = this.ofBackends.get(backend);
    if (run === undefined) {
      run = this.checked(backend.name, compiledGraph(this.copy(), backend));
      this.ofBackends.set(backend, run);
    }
    return run;
  }

  private copy(): GraphModule {
    return new GraphModule(() => copyGraph(this.graph).graph);
  }

  private checked(name: string, returned: BackwardRun): BackwardRun {
    const { graph } = this;
    const compiler = { op: 'compiledAutograd', role: 'the compiler', fn: { name } };
    const run = madeBy(compiler, graph.title, returned);
    return checkedOnce(
      compiler,
      graph.title,
      run,
      expectedOutputs(graph, () => 'a gradient'),
    );
  }
}

function warnOfCompilers({ title }: Graph): void {
  process.emitWarning(
    `compiledAutograd.enable: ${MANY_COMPILERS} compilers were called for ${title}, and each ` +
      'compiled it again. Make the compiler once, outside of the loop, or return ' +
      'compile(module, { backend }) for a module that the compiler does not look at.',
    'CompileWarning',
  );
}
