/**
 * `aotAutograd`: makes a backend of `compile` from compilers of lowered graphs. It traces forward
 * and backward together, partitions the joint graph, and gives each part to its compiler.
 */
import { callSite } from '../../core/call-site.js';
import { ArgumentError, ShardwiseError } from '../../core/errors.js';
import { opByName } from '../../core/op.js';
import { checkFunction, optionsOf, shown } from '../../core/options.js';
import { kernelLoading } from '../../core/rank-runtime.js';
import { fakeTensor } from '../../eager/fake-backend.js';
import type { CompileBackend, CompiledGraph } from '../backends.js';
import { isNumberInput } from '../capture/number-inputs.js';
import { refusalOf } from '../capture-record.js';
import { whileCompiling } from '../compiling.js';
import { isWorthFusing } from '../fusion/candidates.js';
import { fusePointwise } from '../fusion/fuse.js';
import { copyGraph } from '../graph/copy.js';
import type { EffectName, RunValue } from '../graph/effects.js';
import type { Graph } from '../graph/graph.js';
import { GraphModule } from '../graph/graph-module.js';
import { refuseLowering } from '../graph/lowering.js';
import { BySizes } from '../graph/symbols.js';
import { config } from '../inductor.js';
import { checkedOnce, expectedOutputs, madeBy } from '../outputs.js';
import { defaultPartition } from '../partition/default.js';
import { isTagged } from '../partition/tags.js';
import { reorderForOverlap } from '../passes/collectives/reorder-for-overlap.js';
import { allButComputeBound, type Decomposed, decompose } from '../passes/decompose.js';
import { functionalise } from '../passes/functionalise.js';
import { writeLowResults } from '../passes/low-results.js';
import { buildPlan } from '../schedule/plan.js';
import { BackwardPasses, type BackwardRuns } from './backward-passes.js';
import {
  inputsOf,
  inScope,
  type LoweredFunction,
  type LoweredFunctions,
  placesOf,
  runCompiled,
} from './compiled-function.js';
import { donatedValues } from './donated.js';
import { traceJoint } from './joint.js';
import { hasOtherPasses, type JointTrace } from './joint-trace.js';
import { type PartitionFunction, partitioned } from './partitioned.js';
import { replayOf } from './replayed-inputs.js';
import { type Retrace, retraceOf } from './retrace.js';

/** Compiles a lowered graph: the graph of local ops, and values like those it will get. */
export type LoweredCompiler = (
  module: GraphModule,
  exampleInputs: readonly RunValue[],
) => LoweredFunction;

/** Options of {@link aotAutograd}. */
export interface AotAutogradOptions {
  /** Compiles the forward graph. By default it runs op by op. */
  fwCompiler?: LoweredCompiler;
  /** Compiles the backward graph; `fwCompiler` by default. */
  bwCompiler?: LoweredCompiler;
  /** Splits the joint graph; `defaultPartition` by default. */
  partitionFn?: PartitionFunction;
  /**
   * Ops to replace by simpler ones before the partition, by name; `'all'`: whatever has a
   * decomposition and is not faster as one kernel by far. By default none.
   */
  decompositions?: 'all' | readonly string[];
}

type Compilers = Required<Omit<AotAutogradOptions, 'decompositions'>>;

/** Makes a plan of a lowered graph, see {@link buildPlan}. */
type PlanBuilder = (graph: Graph, donated: readonly number[]) => LoweredFunction;

const plain: PlanBuilder = (graph, donated) => {
  const plan = buildPlan(graph, donated);
  return (...inputs) => plan.run(inputs);
};

/**
 * The same after calls were fused and reordered. Others may read the graph, so that a copy is.
 * Where kernels can be loaded no more, a plan that needs some is made again without.
 */
const fused: PlanBuilder = (from, donated) => {
  const make = (): LoweredFunction & { readonly isFused: boolean } => {
    const { graph } = copyGraph(from);
    const isFused = fusePointwise(graph, isWorthFusing) > 0;
    overlapCommunication(graph, donated);
    return Object.assign(plain(graph, donated), { isFused });
  };
  let run = make();
  let couldLoad = !kernelLoading.hasEnded;
  return (...inputs) => {
    if (couldLoad && kernelLoading.hasEnded) {
      couldLoad = false;
      if (run.isFused) run = make();
    }
    return run(...inputs);
  };
};

/** The part of its time that a graph must gain to be reordered without being asked. */
const LEAST_GAIN = 0.01;

/** Reorders the graph as the settings say. */
function overlapCommunication(graph: Graph, donated: readonly number[]): void {
  const { reorderForComputeCommOverlap: wish } = config;
  if (wish !== false)
    reorderForOverlap(graph, { donated, leastGain: wish === null ? LEAST_GAIN : 0 });
}

/** Runs the calls of a lowered graph in order, by commands that are encoded once. */
const runAsPlan: LoweredCompiler = ({ graph }) => plain(graph, []);

/** The same after calls were fused. @internal */
export const runFused: LoweredCompiler = ({ graph }) => fused(graph, []);

/** The compilers whose results are plans, which make no tensors beside their results. */
const planBuilders = new Map([
  [runAsPlan, plain],
  [runFused, fused],
]);

const makesPlan = (compiler: LoweredCompiler): boolean => planBuilders.has(compiler);

/** Runs a lowered graph through the dispatcher. */
const runOpByOp: LoweredCompiler =
  (module) =>
  (...inputs) =>
    module.run(inputs);

/**
 * A backend from compilers of lowered graphs. What the program calls becomes two graphs, forward
 * and backward, of ops on local tensors, collectives, and the ops of gradients; the result of the
 * forward compiler becomes one node of autograd.
 *
 * @throws ArgumentError for options that are no functions
 * @see PyTorch `torch._dynamo.backends.common.aot_autograd`
 */
export function aotAutograd(options: AotAutogradOptions = {}): CompileBackend {
  const {
    fwCompiler = runAsPlan,
    bwCompiler = fwCompiler,
    partitionFn = defaultPartition,
    decompositions = [],
  } = optionsOf('aotAutograd', options, 'fwCompiler bwCompiler partitionFn decompositions');
  for (const [name, value] of Object.entries({ fwCompiler, bwCompiler, partitionFn }))
    checkFunction('aotAutograd', name, value);
  const decomposed = decomposedOps(decompositions);
  const compile: CompileBackend = (module, exampleInputs) => {
    const constants = module.graph.nodes.flatMap((n) => n.tensor ?? []);
    const primals = [...exampleInputs, ...constants];
    const trace = tracedOrNull(module, primals);
    if (trace === null) return module.forward.bind(module);
    // Decompositions of calls whose numbers differ from run to run are not known.
    const chosen = exampleInputs.some(isNumberInput) ? null : decomposed;
    const simplify = ({ joint: { graph } }: JointTrace): void => {
      // What was changed in place could not be computed again.
      if (chosen !== null || fwCompiler === runFused || graph.nodes.some(isTagged))
        functionalise(graph);
      if (chosen !== null) decompose(graph, chosen);
      writeLowResults(graph);
    };
    simplify(trace);
    const again = hasOtherPasses(trace) ? retraceOf(module, primals) : null;
    const retrace: Retrace | null =
      again &&
      ((pass) => {
        const other = again(pass);
        simplify(other);
        return other;
      });
    const run = compileTrace(
      { module, trace, primals, retrace },
      { fwCompiler, bwCompiler, partitionFn },
    );
    if (constants.length === 0) return run;
    return (...inputs) => run(...inputs, ...constants);
  };
  const aotBackend: CompileBackend = (module, exampleInputs) =>
    module.graph.symbols.length > 0
      ? compiledBySizes(module, compile)
      : compile(module, exampleInputs);
  loweredCompilers.set(aotBackend, (graph, examples) => {
    const chosen = examples.some(isNumberInput) ? null : decomposed;
    if (chosen !== null || fwCompiler === runFused) functionalise(graph);
    if (chosen !== null) decompose(graph, chosen);
    writeLowResults(graph);
    const run = compiled('fwCompiler', fwCompiler, graph, examples);
    return makesPlan(fwCompiler) ? run : inScope(run);
  });
  if (fwCompiler === runFused) fusing.add(aotBackend);
  return aotBackend;
}

/** Compiles a graph that is one of local ops already, and needs no gradient. */
type GraphCompiler = (graph: Graph, examples: readonly RunValue[]) => LoweredFunction;

const loweredCompilers = new WeakMap<CompileBackend, GraphCompiler>();
const fusing = new WeakSet<CompileBackend>();

/** What a backend of {@link aotAutograd} compiles graphs of local ops with; null for others. */
export function loweredCompilerOf(backend: CompileBackend): GraphCompiler | null {
  return loweredCompilers.get(backend) ?? null;
}

/**
 * Lets a backend that passes graphs on to another one get all that this compiles. `observe` gets
 * the graphs of local ops, of whole steps among them, as they come.
 */
export function passesGraphsOn(
  backend: CompileBackend,
  to: CompileBackend,
  observe: (graph: Graph) => void,
): void {
  if (fuses(to)) fusing.add(backend);
  const lower = loweredCompilerOf(to);
  if (lower === null) return;
  loweredCompilers.set(backend, (graph, examples) => {
    observe(graph);
    return lower(graph, examples);
  });
}

/** Whether a backend fuses the calls of its graphs. */
export function fuses(backend: CompileBackend): boolean {
  return fusing.has(backend);
}

/** A lowered graph has fixed shapes, so a dynamic graph is compiled at each list of sizes. */
function compiledBySizes(module: GraphModule, compile: CompileBackend): CompiledGraph {
  const compiled = new BySizes<CompiledGraph>(module.graph.symbols);
  return (...inputs) =>
    compiled.of(inputs, () =>
      whileCompiling(module.graph.title, () => compile(module.specialisedFor(inputs), inputs)),
    )(...inputs);
}

/** @throws ArgumentError for an unknown op */
function decomposedOps(names: 'all' | readonly string[]): Decomposed | null {
  if (names === 'all') return allButComputeBound;
  if (names.length === 0) return null;
  return new Set(
    names.map((name) => {
      const op = opByName(name);
      if (op === undefined || op.decompose === null)
        throw new ArgumentError(
          `aotAutograd: expected decompositions to name ops that have one, got ${shown(name)}`,
          { op: 'aotAutograd', given: name },
        );
      return op;
    }),
  );
}

/**
 * Null for a graph that the lowered level cannot express: its front graph runs as it is, and
 * reports say why.
 */
function tracedOrNull(module: GraphModule, primals: readonly RunValue[]): JointTrace | null {
  try {
    return traceJoint(module, primals);
  } catch (error) {
    if (!(error instanceof ShardwiseError)) throw error;
    refuseLowering(module.graph, refusalOf(error));
    return null;
  }
}

/** A traced function, and what traces it again. */
interface Traced {
  readonly module: GraphModule;
  readonly trace: JointTrace;
  readonly primals: readonly RunValue[];
  readonly retrace: Retrace | null;
}

/** Whether backward only computes: code of the program may do more, or not be linear. */
const isSeparable = ({ graph }: GraphModule): boolean =>
  graph.nodes.every(({ effect }) => effect === null || !CALLS_PROGRAM.has(effect));

const CALLS_PROGRAM: ReadonlySet<EffectName> = new Set([
  'registerHook',
  'registerOpaque',
  'callOpaque',
  'applyFunction',
]);

/** What runs a traced function on all its primals. */
function compileTrace(
  { module, trace, primals, retrace }: Traced,
  { fwCompiler, bwCompiler, partitionFn }: Compilers,
): CompiledGraph {
  const { joint, partition } = partitioned(trace, partitionFn, retrace);
  const title = joint.graph.title;
  const { forward, saved } = partition ?? { forward: joint.graph, saved: [] };
  if (partition !== null && title !== '') {
    forward.title = title.replace('the graph', 'the forward graph');
    partition.backward.title = title.replace('the graph', 'the backward graph');
  }
  const run = compiled('fwCompiler', fwCompiler, forward, inputsOf(trace, primals), (i) =>
    i < joint.forwardOutputs ? '' : 'saved for backward',
  );
  // A function that compiles both graphs is named once.
  const role = bwCompiler === fwCompiler ? 'fwCompiler' : 'bwCompiler';
  const name = title.replace('the graph of ', '') || 'a function';
  const compile = (graph: Graph, donated: readonly number[]): BackwardRuns =>
    compiledBackward(role, bwCompiler, graph, donated);
  const donated = planBuilders.has(bwCompiler) ? donatedValues(joint, saved) : [];
  const places = placesOf(trace);
  const savedPrimals = saved.map((value) => {
    const at = joint.primals.findIndex(({ id }) => id === value.node.id);
    return at < 0 ? -1 : ([...trace.locals, ...trace.wholes][at] as number);
  });
  const fns: LoweredFunctions = {
    trace,
    places,
    name,
    site: partition === null ? '' : callSite(),
    forward: makesPlan(fwCompiler) ? run : inScope(run),
    backward:
      partition && new BackwardPasses({ trace, joint, partition, donated, compile, retrace, name }),
    separable: isSeparable(module),
    replay: partition && replayOf(module, primals, { trace, places }, savedPrimals),
    savedPrimals,
    savesWhole: saved.map(({ node, output }) => (node.metas[output]?.placements ?? null) !== null),
  };
  return (...inputs) => runCompiled(fns, inputs);
}

/** What runs a backward graph. A plan that keeps donated values is made when it first runs. */
function compiledBackward(
  role: string,
  compiler: LoweredCompiler,
  graph: Graph,
  donated: readonly number[],
): BackwardRuns {
  const build = planBuilders.get(compiler);
  let opByOp: LoweredFunction | null = null;
  const onRequest = (): LoweredFunction => (opByOp ??= runOpByOp(new GraphModule(graph), []));
  if (build === undefined || donated.length === 0) {
    const run = compiled(role, compiler, graph, examplesOf(graph), () => 'a gradient');
    return { compiled: () => run, opByOp: onRequest };
  }
  const donating = build(graph, donated);
  let keeping: LoweredFunction | null = null;
  const either = (donates: boolean): LoweredFunction =>
    donates ? donating : (keeping ??= build(graph, []));
  return { compiled: either, opByOp: onRequest };
}

/**
 * What the function of the option `role` makes of a graph. `use`: what an output is for, by
 * its position. The first results are checked.
 */
function compiled(
  role: string,
  fn: LoweredCompiler,
  graph: Graph,
  examples: readonly RunValue[],
  use?: (i: number) => string,
): LoweredFunction {
  const { title } = graph;
  const compiler = { op: 'aotAutograd', role, fn };
  const run = madeBy(compiler, title, fn(new GraphModule(graph), examples));
  if (makesPlan(fn)) return run;
  return checkedOnce(compiler, title, run, expectedOutputs(graph, use));
}

function examplesOf(graph: Graph): RunValue[] {
  return graph.placeholders.map(({ metas: [meta] }) =>
    meta === undefined ? null : fakeTensor(meta),
  );
}
