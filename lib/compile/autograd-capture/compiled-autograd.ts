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
import { type BackwardEntry, cacheOf } from './cache.js';
import { type CapturedBackward, captureBackward } from './capture-backward.js';
import { type FamilyRun, NumberFamily } from './number-family.js';
import { type BackwardSignature, signatureOf } from './signature.js';
import { metadataOf, sameStructure } from './structure.js';

export type { BackwardPassReport, BackwardReport };

/**
 * Compiles the graph of a backward pass. Its inputs are the tensors that the pass reads, random
 * states, and plain numbers that differ from pass to pass; its results are gradients that
 * `autograd.grad` asked for.
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
 * equal nodes, hooks and metadata run the same; JavaScript code of hooks runs at captures only. A
 * plain number that differs from pass to pass becomes an input at its second value, unless a rule
 * of a gradient decides by it. A pass with other hooks is captured again, and `compiler` is called
 * only if its graph differs in more than numbers.
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
 * compiledAutograd.enable((graph) => compile(graph), () => loss.backward());
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
    const known = cacheOf(compiler);
    const metadata = metadataOf(signature.lifts);
    const similar = known.entries.filter(
      (each) =>
        sameStructure(each.structure, signature.structure) &&
        sameStructure(each.metadata, metadata),
    );
    let entry = similar.find((each) => differing(each, signature).length === 0);
    const isReplay = entry !== undefined;
    if (entry === undefined) {
      // A number that another pass had another value of becomes an input.
      const varying = new Set(similar.flatMap((each) => changing(each, signature)));
      entry = whileCompiling('the graph of a backward pass', () =>
        newEntry(compiler, signature, metadata, () =>
          captureBackward(signature, roots, rootGrads, options, [...varying].sort(ascending)),
        ),
      );
      keep(known.entries, entry);
    }
    const { graph, reason } = entry;
    if (entry.run === null) return uncompiled(reason as string);
    report?.({ graph, isReplay, reason: null });
    const values = valuesOf(entry as RunEntry, signature);
    if (!options.retainGraph) for (const node of signature.nodes) node.release();
    return entry.results.map((at) => (at < 0 ? null : exposeOne(values[at] as Tensor)));
  };
}

const ascending = (a: number, b: number): number => a - b;

/** The positions of plain numbers that are constants of the entry, and have another value now. */
function differing({ numbers }: BackwardEntry, now: BackwardSignature): number[] {
  return [...numbers.keys()].filter(
    (at) => numbers[at] !== null && !Object.is(numbers[at], now.numbers[at]?.value.scalarValue),
  );
}

/** The positions of those that are inputs of the entry, and of those that differ. */
function changing(entry: BackwardEntry, now: BackwardSignature): number[] {
  const inputs = [...entry.numbers.keys()].filter((at) => entry.numbers[at] === null);
  return [...inputs, ...differing(entry, now)];
}

/** Adds an item; the oldest goes if there are too many. */
function keep<T>(list: T[], item: T): void {
  if (list.length === MAX_CAPTURES) list.shift();
  list.push(item);
}

/** An entry that is a graph. */
type RunEntry = BackwardEntry & { readonly run: BackwardRun };

function valuesOf(
  { run, numbers, hookNumbers }: RunEntry,
  signature: BackwardSignature,
): readonly RunValue[] {
  const { lifts, draws, calls } = signature;
  const given = signature.numbers.flatMap(({ value }, at) => (numbers[at] === null ? value : []));
  return callingHooks(calls, () => run(...lifts, ...given, ...draws, ...hookNumbers));
}

function newEntry(
  compiler: BackwardCompiler,
  { structure, numbers }: BackwardSignature,
  metadata: readonly unknown[],
  capture: () => CapturedBackward,
): BackwardEntry {
  const facts = { structure, metadata };
  let captured: CapturedBackward;
  try {
    captured = capture();
  } catch (error) {
    if (!(error instanceof CompileError)) throw error;
    const any = numbers.map(() => null);
    const none = { run: null, hookNumbers: [], results: [], graph: null };
    return { ...facts, ...none, numbers: any, reason: whyNot(error) };
  }
  const { graph, results, inputs } = captured;
  const fixed = numbers.map(({ value }, at) => (inputs.includes(at) ? null : value.scalarValue));
  const { run, numbers: hookNumbers } = compiledInFamily(compiler, graph, metadata);
  return { ...facts, run, hookNumbers, numbers: fixed, results, graph, reason: null };
}

/** What the compiler makes of a graph, or has made of one that differs in numbers only. */
function compiledInFamily(
  compiler: BackwardCompiler,
  graph: Graph,
  metadata: readonly unknown[],
): FamilyRun {
  const { families } = cacheOf(compiler);
  for (const known of families) {
    if (!sameStructure(known.metadata, metadata)) continue;
    const found = known.family.runOf(graph);
    if (found !== null) return found;
  }
  const compile = (module: GraphModule): BackwardRun =>
    checked(compiler, compiler(module), module.graph);
  const family = new NumberFamily(graph, compile);
  keep(families, { metadata, family });
  return { run: family.run, numbers: [] };
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
