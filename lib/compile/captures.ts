/**
 * The captures of a compiled function: finds the one whose guards hold for a call, or makes it, up
 * to the recompile limit.
 */
import { CompileError } from '../core/errors.js';
import { hooks, inRegion } from '../core/hooks.js';
import type { ModuleCall } from '../core/module-calls.js';
import { currentRuntime, type RankRuntime } from '../core/rank-runtime.js';
import { sameShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { tensors as tensorsIn } from '../core/tree.js';
import { attempt } from './attempt.js';
import type { CompiledGraph } from './backends.js';
import { runGraph, runPlain, runUncompiled } from './capture/boundaries.js';
import type { AnyFunction, Capture } from './capture/capture.js';
import type { Sample } from './capture/generalise.js';
import { whenPrepared } from './capture/prepare.js';
import {
  assignsError,
  cancelled,
  cyclicError,
  isAsynchronous,
  probedReason,
} from './capture/refusals.js';
import {
  type CaptureRecord,
  type Compiled,
  latestOfGraphs,
  nameOf,
  recordOfSegment,
  refusalOf,
  reportCapture,
  UNCOMPILED,
} from './capture-record.js';
import { whileCompiling } from './compiling.js';
import { config } from './config.js';
import { isExcluded } from './disabled.js';
import {
  changeablePlaces,
  checkMarks,
  type DynamicGraph,
  DynamicGraphs,
  sampleOf,
  sizesOf,
} from './dynamic-graphs.js';
import { Entries, type Entry } from './entries.js';
import { freedInGraph, freedTensor } from './freed-tensor.js';
import { copyGraph } from './graph/copy.js';
import type { Graph } from './graph/graph.js';
import { GraphModule } from './graph/graph-module.js';
import type { Difference } from './guards/facts.js';
import { GuardCollector } from './guards/guard-collector.js';
import { reportBreak } from './lazy/breaks.js';
import { immediately } from './lazy/lazily.js';
import { LazyProgram } from './lazy/lazy-program.js';
import type { CompileSettings } from './options.js';
import { backendOfCompile, checkOutputs, madeBy, ownCallError } from './outputs.js';
import { inputsOf, ReboundPlaces } from './rebound.js';
import { hasTooMany, reportLimit, UncompiledSizes } from './recompile-limit.js';
import { WholeStep } from './step/whole-step.js';
import { Verifier } from './verify.js';

type Tensors = readonly Tensor[];

/** A call that only a size is new of runs uncompiled: see recompile-limit.ts. */
const NEW_SIZE = Symbol('new size');

/** Failed captures for the same arguments, after which the function runs uncompiled for them. */
const MAX_BREAKS = 3;

/** Runs inside of runs of the graphs of a function, at most. */
const MAX_NESTED_RUNS = 100;

/** The compiled form of a module that a function calls which runs uncompiled. */
type FrameOf = (module: object, call: ModuleCall, settings: CompileSettings) => AnyFunction;

/** The captures of one function. */
export class Captures {
  readonly entries = new Entries();
  /** The graphs of lazy segments. */
  readonly segments: CaptureRecord[] = [];
  private readonly fn: AnyFunction;
  /** The object that it is called on; null if it uses none. */
  private readonly receiver: object | null;
  private readonly settings: CompileSettings;
  private readonly dynamic = new Map<RankRuntime, DynamicGraphs>();
  /** What the function does where it cannot be captured. */
  private readonly program: LazyProgram;
  /** The runs of its graphs that have not ended: more than one if they call the function. */
  private running = 0;
  private isCapturing = false;
  private isWarned = false;
  private readonly uncompiledSizes = new UncompiledSizes();
  /** What the function finds in attributes of its module; null if it has none. */
  private readonly rebound: ReboundPlaces | null;
  private readonly frameOf: FrameOf;
  /** The module that it calls, or is a method of; null if there is none. */
  private readonly module: object | null;
  /** The function of the program, whose variables guards compare; null for a module. */
  private readonly own: object | null;
  /** Compares graphs with uncompiled runs; null if the option does not ask for it. */
  private readonly verifier: Verifier | null;
  /** Whether the function has run to see whether it assigns to a variable; and that variable. */
  private isProbed = false;
  private assigned: string | null = null;

  constructor(
    fn: AnyFunction,
    receiver: object | null,
    settings: CompileSettings,
    module: object | null,
    frameOf: FrameOf,
    own: object | null = null,
  ) {
    this.own = own;
    this.frameOf = frameOf;
    this.module = module;
    this.rebound = module === null ? null : new ReboundPlaces(module);
    this.fn = fn;
    this.receiver = receiver;
    this.settings = settings;
    this.verifier = settings.verify === null ? null : new Verifier(nameOf(fn), settings.verify);
    this.program = new LazyProgram(nameOf(fn), settings.backend, (graph) => this.addSegment(graph));
    this.program.isAsynchronous = isAsynchronous(fn);
  }

  /** The name of its graphs in errors. */
  private get title(): string {
    return `the graph of ${nameOf(this.fn)}`;
  }

  call(args: readonly unknown[]): unknown {
    const inputs = inputsOf(args, this.rebound);
    if (inputs === null) return this.callWithCycle(args);
    let entry = this.entries.find(args, inputs);
    if (entry === null) {
      const made = inRegion('compile', nameOf(this.fn), () =>
        immediately(() => this.make(args, inputs)),
      );
      if (made === NEW_SIZE) return runPlain(() => this.fn(...args));
      if (made instanceof GuardCollector) return this.probe(args, made, inputs);
      entry = made;
    }
    this.entries.used(entry);
    if (entry === null || entry.run === null) return this.callUncompiled(args, entry !== null);
    const expected = this.verifier?.expect(this.fn, args, entry.guards.outerTensors()) ?? null;
    const outputs = this.run(entry, args, inputs);
    if (entry.unchecked !== null) {
      checkOutputs(backendOfCompile(this.settings.backend), this.title, outputs, entry.unchecked);
      entry.unchecked = null;
    }
    const result = entry.rebuild(outputs, inputs, args);
    if (expected !== null) this.verifier?.check(expected, result, args);
    return result;
  }

  private callWithCycle(args: readonly unknown[]): unknown {
    const error = cyclicError(nameOf(this.fn));
    if (this.settings.fullgraph) throw error;
    const isKnown = this.entries.all.some(({ guards }) => guards.matchArguments(args));
    if (!isKnown)
      this.keep({
        ...UNCOMPILED,
        ...this.factsOf(this.collector(args), [], new Set()),
        refusal: refusalOf(error),
      });
    return this.callUncompiled(args, true);
  }

  /** Runs a function that seems to assign to variables before the first capture, to see whether. */
  private probe(args: readonly unknown[], made: GuardCollector, inputs: Tensors): unknown {
    this.isProbed = true;
    reportBreak(nameOf(this.fn), probedReason(made.closures.mayAssignTo));
    const result = this.callUncompiled(args, true);
    this.assigned = made.closures.reboundVariable();
    if (this.assigned !== null)
      this.keep({
        ...UNCOMPILED,
        ...this.factsOf(made, inputs, new Set()),
        refusal: refusalOf(assignsError(this.assigned)),
      });
    return result;
  }

  private run(entry: Entry, args: readonly unknown[], inputs: Tensors): Tensors {
    const run = entry.run as CompiledGraph;
    if (this.running === MAX_NESTED_RUNS) throw ownCallError(this.settings.backend, this.title);
    this.running++;
    try {
      if (hooks.profiler === null) return runGraph(run, inputs);
      return inRegion('compiled', nameOf(this.fn), () => runGraph(run, inputs));
    } catch (error) {
      throw freedTensor(error, nameOf(this.fn), args, () => freedInGraph(entry));
    } finally {
      this.running--;
    }
  }

  private callUncompiled(args: readonly unknown[], isLazy: boolean): unknown {
    return runUncompiled(isLazy ? this.program : null, this.fn, args, isExcluded, (module, call) =>
      this.frameOf(module, call, this.settings),
    );
  }

  /** Remembers the graph of a lazy segment. */
  private addSegment(graph: Graph): void {
    const record = recordOfSegment(nameOf(this.fn), graph, this.settings.backend);
    this.segments.push(record);
    reportCapture(record);
  }

  /** A new capture; null beyond the limit; a collector if the function must run once before. */
  private make(
    args: readonly unknown[],
    inputs: readonly Tensor[],
  ): Entry | GuardCollector | typeof NEW_SIZE | null {
    const { signal, fullgraph } = this.settings;
    if (signal?.aborted) throw cancelled(signal);
    const rank = currentRuntime();
    const others = this.entries.of(rank);
    const dynamic = this.dynamicGraphs(rank);
    if (!fullgraph && this.hasTooManySizes(dynamic, args, inputs)) return NEW_SIZE;
    const isFull = latestOfGraphs(others).length >= config.recompileLimit;
    const mayServe = dynamic.mayServe(inputs);
    if (isFull && this.isWarned && !fullgraph && !mayServe) return null;
    const because = latestOfGraphs(others).flatMap(
      ({ guards }) => guards.difference(args, inputs) ?? [],
    );
    if (isFull && !mayServe) return this.refuse(because.at(-1));
    if (this.isCapturing) throw ownCallError(this.settings.backend, this.title);
    this.isCapturing = true;
    try {
      return whileCompiling(this.title, () => this.newEntry(args, inputs, others, because, isFull));
    } finally {
      this.isCapturing = false;
    }
  }

  /** Whether only a size is new, to a dynamic graph that gets no more of them. */
  private hasTooManySizes(
    dynamic: DynamicGraphs,
    args: readonly unknown[],
    inputs: Tensors,
  ): boolean {
    return dynamic.withSizesOf(inputs).some((graph) => {
      if (graph.wasAsked || graph.compiled === null) return false;
      const captures = this.entries.ofGraph(graph.compiled.run);
      const now = sizesOf(graph, inputs) as number[];
      const isNew =
        hasTooMany(captures) &&
        !captures.some(({ sizes }) => sameShape(sizes, now)) &&
        captures.some(({ guards }) => guards.matchApartFromSizes(args, inputs));
      if (isNew) this.uncompiledSizes.add(nameOf(this.fn), now);
      return isNew;
    });
  }

  private newEntry(
    args: readonly unknown[],
    inputs: readonly Tensor[],
    others: readonly Entry[],
    because: readonly Difference[],
    isFull: boolean,
  ): Entry | GuardCollector | null {
    const dynamic = this.dynamicGraphs(currentRuntime());
    const { fn, settings, assigned, isProbed } = this;
    const collect = (): GuardCollector => this.collector(args);
    const { collector, captured } = whenPrepared(args, () =>
      attempt({ fn, settings, args, collect, others, assigned, isProbed }),
    );
    if (captured === null) return collector;
    const refusal = captured instanceof CompileError ? refusalOf(captured) : null;
    const sample =
      captured instanceof CompileError || captured instanceof WholeStep
        ? null
        : sampleOf(captured.graph, collector, inputs);
    const serving = sample === null ? null : dynamic.serving(sample);
    if (isFull && serving === null) {
      dynamic.missed();
      return this.isWarned && !this.settings.fullgraph ? null : this.refuse(because.at(-1));
    }
    dynamic.reason = null;
    const compiled =
      captured instanceof WholeStep
        ? this.compiledStep(captured, inputs)
        : captured instanceof CompileError || sample === null
          ? UNCOMPILED
          : this.compiled(captured, inputs, serving ?? this.generalised(args, inputs, sample));
    const known = new Set(others.flatMap(({ constants }) => [...constants]));
    return this.keep({
      ...compiled,
      ...this.factsOf(collector, inputs, known),
      because: serving === null ? because : [],
      specialised: dynamic.reason,
      refusal,
      byArguments: refusal !== null && numberOfBreaks(others, args) + 1 === MAX_BREAKS,
    });
  }

  /** What an entry has, if nothing else is known. */
  private factsOf(collector: GuardCollector, inputs: Tensors, known: ReadonlySet<Tensor>) {
    return {
      functionName: nameOf(this.fn),
      backend: this.settings.backend,
      because: [] as readonly Difference[],
      specialised: null,
      rank: currentRuntime(),
      guards: collector.guards(inputs, known),
      byArguments: false,
      constants: collector.constantTensors,
      lastUse: 0,
      uses: 0,
    };
  }

  private keep(entry: Entry): Entry {
    this.entries.keep(entry);
    reportCapture(entry);
    return entry;
  }

  private collector(args: readonly unknown[]): GuardCollector {
    return new GuardCollector(args, this.receiver, this.rebound?.places(), this.own, this.module);
  }

  private dynamicGraphs(rank: RankRuntime): DynamicGraphs {
    let found = this.dynamic.get(rank);
    if (found === undefined) {
      found = new DynamicGraphs();
      this.dynamic.set(rank, found);
    }
    return found;
  }

  /** A dynamic graph of the capture; null if it gets a graph of fixed shapes. */
  private generalised(
    args: readonly unknown[],
    inputs: readonly Tensor[],
    sample: Sample,
  ): DynamicGraph | null {
    const dynamic = this.dynamicGraphs(currentRuntime());
    const { settings, fn } = this;
    // Attributes of modules keep their sizes.
    const given = this.rebound === null ? inputs : tensorsIn(args);
    const marked = changeablePlaces(given, true);
    const atOnce = settings.dynamic === true ? changeablePlaces(given, false) : marked;
    const capture = { fn, args, guards: () => this.collector(args) };
    const made =
      (settings.dynamic === false ? null : dynamic.generalised(sample)) ??
      (atOnce.length === 0 ? null : dynamic.generalisedAtOnce(capture, inputs, sample, atOnce));
    checkMarks(inputs, made, dynamic.reason);
    if (made === null && settings.dynamic !== false) dynamic.keep(sample);
    return made;
  }

  private compiled(
    { graph, outputs, rebuild }: Capture,
    inputs: readonly Tensor[],
    dynamic: DynamicGraph | null,
  ): Compiled {
    const compile = (of: Graph): CompiledGraph => {
      of.title = this.title;
      const { backend } = this.settings;
      return madeBy(backendOfCompile(backend), of.title, backend(new GraphModule(of), inputs));
    };
    const result = { rebuild, isWholeStep: false, unchecked: outputs };
    if (dynamic === null) return { graph, run: compile(graph), sizes: [], ...result };
    if (dynamic.compiled === null) {
      const copy = copyGraph(dynamic.sample.graph).graph;
      dynamic.compiled = { graph: copy, run: compile(copy) };
    }
    return { ...dynamic.compiled, sizes: sizesOf(dynamic, inputs) as number[], ...result };
  }

  private compiledStep(step: WholeStep, inputs: Tensors): Compiled {
    const { graph, rebuild } = step;
    graph.title = this.title;
    const run = step.compiled(this.settings.backend, this.title, inputs);
    return { ...UNCOMPILED, graph, run, rebuild, isWholeStep: true };
  }

  /** @throws CompileError with `fullgraph` */
  private refuse(latest: Difference | undefined): null {
    const { settings, fn, entries } = this;
    this.isWarned = true;
    const changes = entries.all.flatMap(({ because }) => because.at(-1) ?? []);
    reportLimit(nameOf(fn), latest ? [...changes, latest] : changes, settings.fullgraph);
    return null;
  }
}

const numberOfBreaks = (entries: readonly Entry[], args: readonly unknown[]): number =>
  entries.filter(({ run, guards }) => run === null && guards.matchArguments(args)).length;
