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
import { callingHooks } from '../graph/opaque-hooks.js';
import { withoutDraw } from '../graph/same-step.js';
import type { BackwardCompiler, BackwardRun } from './backward-graph.js';
import { type BackwardPassReport, type BackwardReport, reportOf } from './backward-report.js';
import { type BackwardEntry, backwardCache, keep } from './cache.js';
import { type CapturedBackward, captureBackward } from './capture-backward.js';
import { type FamilyMember, NumberFamily } from './number-family.js';
import { type BackwardSignature, signatureOf } from './signature.js';
import { addIdentities, metadataOf, sameStructure } from './structure.js';

export type { BackwardCompiler, BackwardPassReport, BackwardReport };

/** Gets the report of each pass; null unless passes are explained. */
let report: ((pass: BackwardPassReport) => void) | null = null;

/** Whether backward passes are captured here. */
export function isEnabled(): boolean {
  return backwardRunner.run !== null;
}

/**
 * Runs `fn`. A backward pass in it is captured as a graph, with its hooks, the random states of
 * forward and the changes of `.grad`, and runs what `compiler` makes of the graph. Later passes of
 * equal nodes, hooks and metadata run the same; JavaScript code of hooks runs at captures only. A
 * plain number that differs from pass to pass becomes an input at its second value, unless a rule
 * of a gradient decides by it. A pass with other hooks is captured again.
 *
 * `compiler` is called once for each graph, of which graphs that differ in numbers only are one.
 * Captures serve all compilers of a rank, and where two return `compile(module, { backend })` with
 * one backend, what it compiled serves both: the function may be made anew in each step.
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
    enable(opByOp, fn);
  } finally {
    report = before;
  }
  return reportOf(passes);
}

const opByOp: BackwardCompiler =
  (module) =>
  (...inputs) =>
    module.run(inputs);

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
    const { entry, isReplay } = entryOf(signature, (varying) =>
      captureBackward(signature, roots, rootGrads, options, varying),
    );
    const { graph, reason } = entry;
    if (graph === null) return uncompiled(reason as string);
    const run = graph.runOf(compiler);
    report?.({ graph: graph.graph, isReplay, reason: null });
    const values = valuesOf(run, entry, signature);
    if (!options.retainGraph) for (const node of signature.nodes) node.release();
    return entry.results.map((at) => (at < 0 ? null : exposeOne(values[at] as Tensor)));
  };
}

/** The entry of a pass, which is captured if there is none. `capture` gets the varying numbers. */
function entryOf(
  signature: BackwardSignature,
  capture: (varying: readonly number[]) => CapturedBackward,
): { entry: BackwardEntry; isReplay: boolean } {
  const metadata = metadataOf(signature.lifts);
  const entries = backwardCache().entries.of(signature.objects);
  const similar = entries.filter(
    (each) =>
      sameStructure(each.structure, signature.structure) && sameStructure(each.metadata, metadata),
  );
  const known = similar.find((each) => differing(each, signature).length === 0);
  if (known !== undefined) return { entry: known, isReplay: true };
  // A number that another pass had another value of becomes an input.
  const varying = new Set(similar.flatMap((each) => changing(each, signature)));
  const entry = whileCompiling('the graph of a backward pass', () =>
    newEntry(signature, metadata, () => capture([...varying].sort(ascending))),
  );
  keep(entries, entry);
  return { entry, isReplay: false };
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

function valuesOf(
  run: BackwardRun,
  { numbers, hookNumbers }: BackwardEntry,
  signature: BackwardSignature,
): readonly RunValue[] {
  const { lifts, draws, calls } = signature;
  const given = signature.numbers.flatMap(({ value }, at) => (numbers[at] === null ? value : []));
  return callingHooks(calls, () => run(...lifts, ...given, ...draws, ...hookNumbers));
}

function newEntry(
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
    return { ...facts, ...nothing, numbers: any, reason: whyNot(error) };
  }
  const { graph, results, inputs } = captured;
  const fixed = numbers.map(({ value }, at) => (inputs.includes(at) ? null : value.scalarValue));
  return { ...facts, ...memberOf(graph, metadata), numbers: fixed, results, reason: null };
}

const nothing = { graph: null, hookNumbers: [], results: [] };

/** What runs for a graph: its own, or that of a family which differs in numbers only. */
function memberOf(graph: Graph, metadata: readonly unknown[]): FamilyMember {
  const constants = new Set<object>();
  for (const { tensor, params } of graph.nodes)
    addIdentities([tensor, withoutDraw(params)], constants);
  const families = backwardCache().families.of(constants);
  for (const known of families) {
    if (!sameStructure(known.metadata, metadata)) continue;
    const found = known.family.memberOf(graph);
    if (found !== null) return found;
  }
  const family = new NumberFamily(graph);
  keep(families, { metadata, family });
  return family.memberOf(graph) as FamilyMember;
}

/** What no graph can repeat, and where. */
function whyNot({ message, details }: CompileError): string {
  const { what, at } = details as { what?: string; at?: string };
  return what === undefined ? message : `${what}${at ? `, at ${at}` : ''}`;
}
