/**
 * The `compiledAutograd` namespace: backward passes as captured graphs.
 *
 * @see PyTorch `torch._dynamo.compiled_autograd`
 */
import { exposeOne } from '../../autograd/check-gradients.js';
import { type BackwardRunner, backwardRunner } from '../../autograd/engine.js';
import { ArgumentError, CompileError } from '../../core/errors.js';
import { layers } from '../../core/hooks.js';
import { checkFunction, checkSynchronous } from '../../core/options.js';
import type { Tensor } from '../../core/tensor.js';
import { whileCompiling } from '../compiling.js';
import type { RunValue } from '../graph/effects.js';
import type { Graph } from '../graph/graph.js';
import type { GraphModule } from '../graph/graph-module.js';
import { callingHooks } from '../graph/opaque-hooks.js';
import { checkedOnce, expectedOutputs, madeBy } from '../outputs.js';
import { type BackwardPassReport, type BackwardReport, reportOf } from './backward-report.js';
import { type BackwardEntry, entriesOf } from './cache.js';
import { type CapturedBackward, captureBackward } from './capture-backward.js';
import { type BackwardSignature, signatureOf } from './signature.js';
import { metadataOf, sameStructure } from './structure.js';

export type { BackwardPassReport, BackwardReport };

/**
 * Compiles the graph of a backward pass. Its inputs are the tensors that the pass reads, and random
 * states; its results are gradients that `autograd.grad` asked for.
 */
export type BackwardCompiler = (
  module: GraphModule,
) => (...inputs: readonly RunValue[]) => readonly RunValue[];

type BackwardRun = ReturnType<BackwardCompiler>;

/** Gets the report of each pass; null unless passes are explained. */
let report: ((pass: BackwardPassReport) => void) | null = null;

/** Captures kept for a compiler; the oldest goes. */
const MAX_CAPTURES = 64;

/** Whether backward passes are captured here. */
export function isEnabled(): boolean {
  return backwardRunner.run !== null;
}

/**
 * Runs `fn`. A backward pass in it is captured as a graph, with its hooks, the random states of
 * forward and the changes of `.grad`, and runs what `compiler` makes of the graph. Later passes of
 * equal nodes, hooks and metadata run the same; JavaScript code of hooks runs at captures only.
 *
 * The engine itself runs passes that cannot be captured: with `createGraph`, through checkpoints
 * and other hooks of saved tensors, and with hooks that read values; {@link explain} says why. The
 * hooks of `fullyShard` and of data parallelism are no part of graphs: each pass calls them where
 * they belong.
 *
 * @throws ArgumentError if an argument is no function, if `fn` returns a promise, or inside of
 * another call
 * @see PyTorch `torch._dynamo.compiled_autograd._enable`
 * @example
 * const compiler = (graph) => compile(graph, { backend: 'aot_eager' });
 * compiledAutograd.enable(compiler, () => loss.backward());
 */
export function enable<T>(compiler: BackwardCompiler, fn: () => T): T {
  checkFunction('compiledAutograd.enable', 'compiler', compiler);
  checkFunction('compiledAutograd.enable', 'fn', fn);
  if (isEnabled())
    throw new ArgumentError(
      'compiledAutograd.enable: expected a call outside of another one, got one inside. Enable ' +
        'it once, around both.',
      { op: 'compiledAutograd.enable' },
    );
  backwardRunner.run = runnerOf(compiler);
  let result: T;
  try {
    result = fn();
  } finally {
    backwardRunner.run = null;
  }
  checkSynchronous(
    'compiledAutograd.enable',
    result,
    'backward would not be captured after an await',
  );
  return result;
}

/**
 * Runs `fn` as {@link enable} does, with graphs that run op by op, and reports what became of each
 * backward pass in it. A pass that the engine ran has a reason.
 *
 * @throws ArgumentError if `fn` is no function, if it returns a promise, or inside of `enable`
 * @see PyTorch `torch._logging.set_logs(compiled_autograd=True)`
 * @example console.log(String(compiledAutograd.explain(() => loss.backward())));
 */
export function explain(fn: () => void): BackwardReport {
  checkFunction('compiledAutograd.explain', 'fn', fn);
  const passes: BackwardPassReport[] = [];
  const before = report;
  report = (pass) => passes.push(pass);
  try {
    enable(
      (module) =>
        (...inputs) =>
          module.run(inputs),
      fn,
    );
  } finally {
    report = before;
  }
  return reportOf(passes);
}

/** Leaves a pass to the engine. */
function uncompiled(reason: string): undefined {
  report?.({ graph: null, isReplay: false, reason });
}

function runnerOf(compiler: BackwardCompiler): BackwardRunner {
  return (roots, rootGrads, options) => {
    if (layers.backend.capture !== null) return undefined;
    if (options.createGraph) return uncompiled('createGraph is true');
    const signature = signatureOf(roots, rootGrads, options);
    if (typeof signature === 'string') return uncompiled(signature);
    const metadata = metadataOf(signature.lifts);
    const known = entriesOf(compiler);
    let entry = known.find(
      (each) =>
        sameStructure(each.structure, signature.structure) &&
        sameStructure(each.metadata, metadata),
    );
    const isReplay = entry !== undefined;
    if (entry === undefined) {
      entry = whileCompiling('the graph of a backward pass', () =>
        newEntry(compiler, signature, metadata, () =>
          captureBackward(signature, roots, rootGrads, options),
        ),
      );
      if (known.length === MAX_CAPTURES) known.shift();
      known.push(entry);
    }
    const { run, graph, reason } = entry;
    if (run === null) return uncompiled(reason as string);
    report?.({ graph, isReplay, reason: null });
    const values = callingHooks(signature.calls, () => run(...signature.lifts, ...signature.draws));
    if (!options.retainGraph) for (const node of signature.nodes) node.release();
    return entry.results.map((at) => (at < 0 ? null : exposeOne(values[at] as Tensor)));
  };
}

function newEntry(
  compiler: BackwardCompiler,
  { structure }: BackwardSignature,
  metadata: readonly unknown[],
  capture: () => CapturedBackward,
): BackwardEntry {
  let captured: CapturedBackward;
  try {
    captured = capture();
  } catch (error) {
    if (!(error instanceof CompileError)) throw error;
    return { structure, metadata, run: null, results: [], graph: null, reason: whyNot(error) };
  }
  const { module, results } = captured;
  const { graph } = module;
  const run = checked(compiler, compiler(module), graph);
  return { structure, metadata, run, results, graph, reason: null };
}

/** @throws CompileError at the first run, for other results than the graph has */
function checked(fn: BackwardCompiler, returned: BackwardRun, graph: Graph): BackwardRun {
  const compiler = { op: 'compiledAutograd', role: 'the compiler', fn };
  const run = madeBy(compiler, graph.title, returned);
  const expected = expectedOutputs(graph, () => 'a gradient');
  return checkedOnce(compiler, graph.title, run, expected);
}

/** What no graph can repeat, and where. */
function whyNot({ message, details }: CompileError): string {
  const { what, at } = details as { what?: string; at?: string };
  return what === undefined ? message : `${what}${at ? `, at ${at}` : ''}`;
}
