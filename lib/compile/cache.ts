/**
 * The captures of a compiled function: finds the one whose guards hold for a call, or makes it, up
 * to the recompile limit.
 */
import { CompileError } from '../core/errors.js';
import { type ModuleCall, moduleCalls } from '../core/module-calls.js';
import { currentRuntime, type RankRuntime } from '../core/rank-runtime.js';
import type { Tensor } from '../core/tensor.js';
import { tensors as tensorsIn } from '../core/tree.js';
import type { CompiledGraph } from './backends.js';
import { runUncompiled, withoutFrames } from './capture/boundaries.js';
import { type Capture, capture, isCompiling } from './capture/capture.js';
import { cancelled } from './capture/refusals.js';
import { config } from './config.js';
import { freedArgument } from './freed-argument.js';
import type { Graph } from './graph/graph.js';
import { GraphModule } from './graph/graph-module.js';
import { type Difference, formatDifference } from './guards/facts.js';
import { GuardCollector } from './guards/guard-collector.js';
import type { Guards } from './guards/guards.js';
import type { CompileSettings } from './options.js';
import { checkOutputs, compileWith, type ExpectedOutput } from './outputs.js';

export type AnyFunction = (...args: unknown[]) => unknown;

/** Why a function runs uncompiled. Not the error, whose stack keeps arguments alive. */
export interface Refusal {
  readonly reason: string;
  readonly site: string;
  readonly path: string;
}

/** What became of one call that no earlier capture served. */
export interface CaptureRecord {
  /** The name of the function or of the module's class. */
  readonly functionName: string;
  /** Null if the function runs uncompiled. */
  readonly graph: Graph | null;
  /** The reason why it runs uncompiled. */
  readonly refusal: Refusal | null;
  readonly guards: Guards;
  /** Why each earlier capture did not serve the call. */
  readonly because: readonly Difference[];
}

interface Compiled {
  readonly graph: Graph | null;
  readonly run: CompiledGraph | null;
  readonly rebuild: Capture['rebuild'];
  /** What the first outputs are compared with; null after that. */
  unchecked: readonly ExpectedOutput[] | null;
}

const UNCOMPILED: Compiled = {
  graph: null,
  run: null,
  rebuild: () => undefined,
  unchecked: null,
};

interface Entry extends CaptureRecord, Compiled {
  readonly graph: Graph | null;
  /** Whether the modes and arguments alone decide. */
  readonly byArguments: boolean;
  readonly rank: RankRuntime;
  /** Constants of the graph. */
  readonly constants: ReadonlySet<Tensor>;
}

/** Failed captures for the same arguments, after which the function runs uncompiled for them. */
const MAX_BREAKS = 3;

/** Depth of calls of functions that `disable` excluded recursively. */
let disabled = 0;
/** Captures by compiled function. They are collected with the function; `reset` drops all. */
let caches = new WeakMap<object, Captures>();
const observers = new Set<(record: CaptureRecord) => void>();

/** Drops all captures. */
export function reset(): void {
  caches = new WeakMap();
}

/** Runs `fn`; compiled functions that it calls run uncompiled. */
export function withoutCompiled<T>(fn: () => T): T {
  disabled++;
  try {
    return fn();
  } finally {
    disabled--;
  }
}

/** Runs `fn`, and passes each capture in it to `observe`. */
export function observingCaptures<T>(observe: (record: CaptureRecord) => void, fn: () => T): T {
  observers.add(observe);
  try {
    return fn();
  } finally {
    observers.delete(observe);
  }
}

/** The captures of a function that {@link compiledFunction} returned, in their order. */
export function recordsOf(run: object): readonly CaptureRecord[] {
  return caches.get(run)?.entries ?? [];
}

/** `fn` with a cache of captures. */
export function compiledFunction(fn: AnyFunction, settings: CompileSettings): AnyFunction {
  return function run(...args): unknown {
    if (isCompiling() || disabled > 0) return fn(...args);
    let captures = caches.get(run);
    if (captures === undefined) {
      captures = new Captures(fn, settings);
      caches.set(run, captures);
    }
    return captures.call(args);
  };
}

/** The captures of one function. */
class Captures {
  readonly entries: Entry[] = [];
  private readonly fn: AnyFunction;
  private readonly settings: CompileSettings;
  /** The one that served the latest call. */
  private latest: Entry | null = null;
  private isWarned = false;

  constructor(fn: AnyFunction, settings: CompileSettings) {
    this.fn = fn;
    this.settings = settings;
  }

  call(args: readonly unknown[]): unknown {
    const inputs = tensorsIn(args);
    const entry = this.find(args, inputs) ?? this.make(args, inputs);
    this.latest = entry;
    const run = entry?.run ?? null;
    if (entry === null || run === null) return this.callUncompiled(args);
    let outputs: readonly Tensor[];
    try {
      outputs = moduleCalls.run === null ? run(...inputs) : withoutFrames(() => run(...inputs));
    } catch (error) {
      throw freedArgument(error, nameOf(this.fn), args);
    }
    if (entry.unchecked !== null) {
      checkOutputs(this.settings.backend, outputs, entry.unchecked);
      entry.unchecked = null;
    }
    return entry.rebuild(outputs, inputs);
  }

  private callUncompiled(args: readonly unknown[]): unknown {
    const isExcluded = (): boolean => isCompiling() || disabled > 0;
    return runUncompiled(this.fn, args, isExcluded, (module, call) =>
      frameOf(module, call, this.settings),
    );
  }

  private find(args: readonly unknown[], inputs: readonly Tensor[]): Entry | null {
    const { latest, entries } = this;
    if (latest !== null && serves(latest, args, inputs)) return latest;
    for (const entry of entries) if (entry !== latest && serves(entry, args, inputs)) return entry;
    return null;
  }

  /** A new capture; null beyond the limit. */
  private make(args: readonly unknown[], inputs: readonly Tensor[]): Entry | null {
    const { signal } = this.settings;
    if (signal?.aborted) throw cancelled(signal);
    const rank = currentRuntime();
    const others = this.entries.filter((entry) => entry.rank === rank);
    const isFull = others.length >= config.recompileLimit;
    if (isFull && this.isWarned && !this.settings.fullgraph) return null;
    const because = others.flatMap(({ guards }) => guards.difference(args, inputs) ?? []);
    if (isFull) return this.refuse(because.at(-1));
    const collector = new GuardCollector(args);
    const captured = this.capture(args, collector);
    const refusal = captured instanceof CompileError ? refusalOf(captured) : null;
    const known = new Set(others.flatMap(({ constants }) => [...constants]));
    const entry: Entry = {
      functionName: nameOf(this.fn),
      because,
      rank,
      ...(captured instanceof CompileError ? UNCOMPILED : this.compiled(captured, inputs)),
      refusal,
      guards: collector.guards(inputs, known),
      byArguments: refusal !== null && numberOfBreaks(others, args) + 1 === MAX_BREAKS,
      constants: collector.constantTensors,
    };
    this.entries.push(entry);
    for (const observe of observers) observe(entry);
    return entry;
  }

  private compiled(captured: Capture, inputs: readonly Tensor[]): Compiled {
    const { graph, outputs, rebuild } = captured;
    const run = compileWith(this.settings.backend, new GraphModule(graph), inputs);
    return { graph, run, rebuild, unchecked: outputs };
  }

  /** A capture, or the reason why the function runs uncompiled. */
  private capture(args: readonly unknown[], collector: GuardCollector): Capture | CompileError {
    const { fullgraph, signal } = this.settings;
    try {
      return capture(this.fn, args, collector, signal);
    } catch (error) {
      collector.restore();
      if (fullgraph || !(error instanceof CompileError) || signal?.aborted)
        throw freedArgument(error, nameOf(this.fn), args);
      return error;
    }
  }

  /** @throws CompileError with `fullgraph` */
  private refuse(latest: Difference | undefined): null {
    const { settings, fn, entries } = this;
    this.isWarned = true;
    const changes = entries.flatMap(({ because }) => because.at(-1) ?? []);
    const texts = new Set([...changes, ...(latest ? [latest] : [])].map(formatDifference));
    const name = nameOf(fn);
    const start = `compile: ${name} was captured ${config.recompileLimit} times`;
    const end =
      `What changed between captures: ${[...texts].join('; ')}. Pass numbers that change as ` +
      'tensors, keep changing state out of modules, or raise compiler.config.recompileLimit.';
    if (settings.fullgraph)
      throw new CompileError(`${start}, and no graph serves this call. ${end}`, {
        function: name,
        changes: [...texts],
      });
    process.emitWarning(
      `${start}; calls that no graph serves run uncompiled from now on. ${end}`,
      'CompileWarning',
    );
    return null;
  }
}

/** The compiled forms of modules that functions called which run uncompiled. */
const frames = new WeakMap<CompileSettings, WeakMap<object, AnyFunction>>();

function frameOf(module: object, call: ModuleCall, settings: CompileSettings): AnyFunction {
  let ofSettings = frames.get(settings);
  if (ofSettings === undefined) {
    ofSettings = new WeakMap();
    frames.set(settings, ofSettings);
  }
  let frame = ofSettings.get(module);
  if (frame === undefined) {
    const itself = (...args: readonly unknown[]): unknown => call(module, args);
    Object.defineProperty(itself, 'name', { value: module.constructor.name });
    frame = compiledFunction(itself, settings);
    ofSettings.set(module, frame);
  }
  return frame;
}

const serves = (
  { byArguments, guards }: Entry,
  args: readonly unknown[],
  inputs: readonly Tensor[],
): boolean => (byArguments ? guards.matchArguments(args) : guards.match(args, inputs));

function nameOf(fn: AnyFunction): string {
  if ('forward' in fn) return fn.constructor.name;
  return fn.name || '(anonymous)';
}

function refusalOf({ message, details }: CompileError): Refusal {
  const { what = message, at = '', path = '' } = details as Record<string, string | undefined>;
  return { reason: what, site: at, path };
}

const numberOfBreaks = (entries: readonly Entry[], args: readonly unknown[]): number =>
  entries.filter(({ run, guards }) => run === null && guards.matchArguments(args)).length;
