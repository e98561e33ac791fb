/** `compiler.explain`: what `compile` makes of a call, as a report. */
import { checkFunction } from '../core/options.js';
import { fuses } from './aot/aot-autograd.js';
import { type AnyFunction, compiledFunction, explaining } from './cache.js';
import type { CaptureRecord, Refusal } from './capture-record.js';
import { whyNotFused } from './fusion/fuse.js';
import type { Graph } from './graph/graph.js';
import { whyNotLowered } from './graph/lowering.js';
import { symbolText } from './graph/symbols.js';
import { formatDifference } from './guards/facts.js';
import { isModule } from './guards/object-walk.js';
import { observingBreaks, type SegmentBreak } from './lazy/breaks.js';
import { checkedOptions } from './options.js';

/** A captured graph in a {@link CompileReport}. */
export interface GraphReport {
  /** The name of the function, or of the class of the module. */
  readonly functionName: string;
  /** The graph, one line for each node when it is printed. */
  readonly graph: Graph;
  /** The number of op calls. */
  readonly opCount: number;
  /** What must be as it was for the graph to serve another call, as sentences. */
  readonly guards: readonly string[];
  /** The sizes that may change, as sentences; empty for a graph of fixed shapes. */
  readonly symbols: readonly string[];
  /**
   * Why the graph has fixed shapes although an earlier capture differs in the sizes of arguments;
   * null if that is not so.
   */
  readonly specialised: string | null;
  /**
   * Why the ops of the graph run one by one through autograd, as with `'eager'`: what no graph of
   * local ops can repeat, and where. Null if the backend gets such a graph, and with others.
   */
  readonly unlowered: string | null;
  /**
   * Why `'inductor'` runs the ops of the lowered graph one by one; null if it fuses them, and with
   * other backends.
   */
  readonly unfused: string | null;
}

/**
 * A place where a graph ends: why a function cannot be captured as one graph, or what ended one of
 * its segments, in a {@link CompileReport}.
 */
export interface BreakReport {
  /** The name of the function, or of the class of the module. */
  readonly functionName: string;
  /** What no graph can repeat. */
  readonly reason: string;
  /** The call site in the program; empty if it is not known. */
  readonly site: string;
  /** The path of the module whose forward did it; empty outside of modules. */
  readonly path: string;
}

/** A capture that was made though there were others, in a {@link CompileReport}. */
export interface RecaptureReport {
  /** The name of the function, or of the class of the module. */
  readonly functionName: string;
  /** For each earlier capture, what differed: `argument 1 was 2 and is 3`. */
  readonly because: readonly string[];
}

/** What `compile` makes of a function, see {@link explain}. `String(report)` is a readable text. */
export interface CompileReport {
  /** The result of the call. */
  readonly result: unknown;
  /**
   * The graphs of the function, and of the compiled functions and the modules below a break that
   * the call ran.
   */
  readonly graphs: readonly GraphReport[];
  /**
   * Each place where the graphs of functions end, once: where their captures ended, and all that
   * ended segments of this call; of an asynchronous function, those before its first `await`.
   */
  readonly breaks: readonly BreakReport[];
  /** What was captured again, and why. */
  readonly recaptures: readonly RecaptureReport[];
  /** The report as text. */
  toString(): string;
}

/**
 * Reports what `compile` makes of a function: its graphs, what they are guarded by, where it
 * breaks, and why it was captured again. The returned function runs `fn` as `compile(fn)` would. A
 * function that is compiled already keeps its graphs and options; another one is compiled once for
 * all calls of the returned function.
 *
 * @throws ArgumentError if `fn` is no function; with `fullgraph`, CompileError as the call would
 * @see PyTorch `torch._dynamo.explain`
 * @example console.log(String(compiler.explain(model)(x)));
 */
export function explain<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
): (...args: A) => CompileReport {
  checkFunction('explain', 'fn', fn);
  const target = fn as unknown as AnyFunction;
  const run =
    compiledForm(target) ??
    compiledFunction(target, checkedOptions({}), isModule(target) ? target : null);
  return (...args: A): CompileReport => {
    const { result: explained, breaks } = observingBreaks(() => explaining(() => run(...args)));
    return new Report(explained.result, explained.records, breaks);
  };
}

/** The functions behind compiled modules. */
const forms = new WeakMap<object, AnyFunction>();

/** Remembers the compiled function that calls of `target` run. */
export function setCompiledForm(target: object, run: AnyFunction): void {
  forms.set(target, run);
}

function compiledForm(fn: AnyFunction): AnyFunction | undefined {
  const { compiled } = fn as { compiled?: unknown };
  return forms.get(fn) ?? (typeof compiled === 'function' ? (compiled as AnyFunction) : undefined);
}

class Report implements CompileReport {
  readonly result: unknown;
  readonly graphs: readonly GraphReport[];
  readonly breaks: readonly BreakReport[];
  readonly recaptures: readonly RecaptureReport[];

  constructor(
    result: unknown,
    records: readonly CaptureRecord[],
    ofSegments: readonly SegmentBreak[],
  ) {
    this.result = result;
    this.graphs = latestOfGraphs(records).flatMap(graphOf);
    this.breaks = onceEach([...records.flatMap(breakOf), ...ofSegments]);
    this.recaptures = records.flatMap(({ functionName, because }) =>
      because.length === 0 ? [] : [{ functionName, because: because.map(formatDifference) }],
    );
  }

  toString(): string {
    const { graphs, breaks, recaptures } = this;
    const counts = [
      counted(graphs.length, 'graph'),
      counted(breaks.length, 'break'),
      counted(recaptures.length, 'recapture'),
    ];
    return [
      counts.join(', '),
      ...graphs.flatMap(graphText),
      ...breaks.map((each) => `break of ${each.functionName}: ${placed(each)}`),
      ...recaptures.map(
        ({ functionName, because }) => `recapture of ${functionName}: ${because.join('; ')}`,
      ),
    ].join('\n');
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }
}

/** A dynamic graph has a record for each shape. */
function latestOfGraphs(records: readonly CaptureRecord[]): CaptureRecord[] {
  const latest = new Map(records.map((record) => [record.graph ?? record, record]));
  return [...latest.values()];
}

function graphOf(record: CaptureRecord): GraphReport[] {
  const { functionName, graph, guards, specialised, backend } = record;
  if (graph === null) return [];
  const { callNodes, symbols } = graph;
  const unlowered = whyNotLowered(graph);
  return [
    {
      functionName,
      graph,
      opCount: callNodes.length,
      guards: guards.sentences(),
      symbols: symbols.map((symbol) => `${symbolText(symbol)}, at least 2`),
      specialised,
      unlowered: unlowered && placed(unlowered),
      unfused: fuses(backend) ? whyNotFused(graph) : null,
    },
  ];
}

function graphText(
  { functionName, graph, opCount, guards, symbols, specialised, unlowered, unfused }: GraphReport,
  i: number,
): string[] {
  return [
    `graph ${i} of ${functionName}, ${counted(opCount, 'op')}:`,
    ...String(graph).split('\n').map(indented),
    ...symbols.map(indented),
    ...(specialised === null ? [] : [`  has fixed shapes: ${specialised}`]),
    ...(unlowered === null ? [] : [`  runs its ops one by one through autograd: ${unlowered}`]),
    ...(unfused === null ? [] : [`  runs its ops one by one: ${unfused}`]),
    symbols.length > 0 ? '  serves calls of the latest shape while' : '  serves calls while',
    ...guards.map((guard) => indented(indented(guard))),
  ];
}

function breakOf({ functionName, refusal }: CaptureRecord): BreakReport[] {
  return refusal === null ? [] : [{ functionName, ...refusal }];
}

/** One break for each place of a function: its captures end at the first of those of its calls. */
function onceEach(breaks: readonly BreakReport[]): BreakReport[] {
  const found = new Map<string, BreakReport>();
  for (const each of breaks) {
    const { functionName, reason, site } = each;
    const key = `${functionName} ${site === '' ? reason : site}`;
    if (!found.has(key)) found.set(key, each);
  }
  return [...found.values()];
}

const placed = ({ reason, site, path }: Refusal): string =>
  `${reason}${site === '' ? '' : `, at ${site}`}${path === '' ? '' : `, in module ${path}`}`;
const counted = (n: number, noun: string): string => `${n} ${noun}${n === 1 ? '' : 's'}`;
const indented = (line: string): string => `  ${line}`;
