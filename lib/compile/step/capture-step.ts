/**
 * Captures a whole train step: forward, backward and the step of an optimizer as one graph of ops
 * on local tensors and collectives.
 *
 * @see PyTorch `torch.distributed._spmd.api.compile`, `make_fx`
 */
import { CompileError } from '../../core/errors.js';
import { inRegion } from '../../core/hooks.js';
import { checkFunction, optionsOf, unexpected } from '../../core/options.js';
import { Tensor } from '../../core/tensor.js';
import { map as mapTensors, tensors as tensorsIn } from '../../core/tree.js';
import { PLACE } from '../capture/functions.js';
import { whenPrepared } from '../capture/prepare.js';
import { Recorder } from '../capture/recorder.js';
import { suspends } from '../capture/refusals.js';
import { whileCompiling } from '../compiling.js';
import type { RunValue } from '../graph/effects.js';
import type { Graph } from '../graph/graph.js';
import { GraphModule } from '../graph/graph-module.js';
import { ClosureClock } from '../guards/closure-facts.js';
import { type Difference, formatDifference } from '../guards/facts.js';
import { GuardCollector } from '../guards/guard-collector.js';
import type { Guards } from '../guards/guards.js';
import { buildPlan } from '../schedule/plan.js';
import type { Distribute } from './distribute.js';
import type { StepGradient } from './gradients.js';
import type { StepInput } from './lifts.js';
import { recordStep, runStep, type Source, type StepRunner, tensorOf } from './record-step.js';

export type { StepRunner } from './record-step.js';

/**
 * A captured train step. Its graph has ops on local tensors, collectives with their waits, and
 * effects; parameters, buffers and optimizer state are inputs that the graph writes into. Edit the
 * graph, call `module.recompile()`, and run it.
 */
export class CapturedStep<A extends readonly unknown[] = readonly unknown[], R = unknown> {
  /** The graph, which can be called with one value for each input. */
  readonly module: GraphModule;
  /** What each input of the graph is, in the order of `graph.placeholders`. */
  readonly inputs: readonly StepInput[];
  /** The gradients that the step computes, and what it leaves in `.grad`. */
  readonly gradients: readonly StepGradient[];
  /** @internal texts of what it makes and takes for equal on all ranks */
  readonly made: readonly string[];
  private readonly guards: Guards;
  private readonly template: unknown;
  private readonly sources: readonly Source[];
  private readonly caller: string;
  private readonly clock = new ClosureClock();

  /** @internal */
  constructor(parts: {
    graph: Graph;
    inputs: readonly StepInput[];
    gradients: readonly StepGradient[];
    made: readonly string[];
    guards: Guards;
    template: unknown;
    sources: readonly Source[];
    caller: string;
  }) {
    this.module = new GraphModule(parts.graph);
    this.inputs = parts.inputs;
    this.gradients = parts.gradients;
    this.made = parts.made;
    this.guards = parts.guards;
    this.template = parts.template;
    this.sources = parts.sources;
    this.caller = parts.caller;
  }

  /** The graph. */
  get graph(): Graph {
    return this.module.graph;
  }

  /** Whether the capture serves a call with these arguments. */
  matches(...args: A): boolean {
    this.clock.tick();
    return this.guards.match(args, tensorsIn(args), this.clock);
  }

  /**
   * What differs from the capture, such as `argument 0 was ... and is ...`; null if nothing does.
   */
  difference(...args: A): string | null {
    const difference: Difference | null = this.guards.difference(args, tensorsIn(args));
    return difference === null ? null : formatDifference(difference);
  }

  /**
   * Takes the step.
   *
   * @throws CompileError if the capture does not serve these arguments
   */
  run(...args: A): R {
    return this.runWith((...values) => this.module.run(values), ...args);
  }

  /**
   * Takes the step by a function that replaces the graph, such as one that a pass or a compiler
   * made of it.
   *
   * @throws CompileError if the capture does not serve these arguments
   */
  runWith(runner: StepRunner, ...args: A): R {
    if (!this.matches(...args))
      throw new CompileError(
        `${this.caller}: expected the arguments and settings of the capture: ` +
          `${this.difference(...args)}. Capture the step again.`,
      );
    const tensors = tensorsIn(args);
    const made = inRegion('compiled', 'captured step', () => runStep(this, runner, tensors));
    return this.resultOf(made, tensors);
  }

  /**
   * A function for {@link runWith} that runs the graph as it is now by commands that are encoded
   * once.
   *
   * @throws CompileError if a node uses a later one
   */
  plan(): StepRunner {
    const plan = buildPlan(this.graph);
    return (...values) => plan.run(values);
  }

  private resultOf(values: readonly RunValue[], tensors: readonly Tensor[]): R {
    let next = 0;
    return mapTensors(
      () => tensorOf(this.sources[next++] as Source, values, tensors),
      this.template,
    ) as R;
  }
}

/** Options of {@link captureStep}. */
export interface CaptureStepOptions {
  /**
   * Plain tensors of the program that are distributed for the capture: parameters, buffers, state,
   * tensors of the arguments. Each gets a function that makes a distributed tensor over it, as
   * `DTensor.fromLocal` does. The graph gets the plain tensors, and assigns plain gradients.
   */
  distribute?: ReadonlyMap<Tensor, Distribute>;
}

/** @throws ArgumentError unless `given` maps plain tensors to functions */
function checkDistribute(given: unknown): asserts given is ReadonlyMap<Tensor, Distribute> {
  const isDistribute = ([t, make]: readonly [unknown, unknown]): boolean =>
    t instanceof Tensor && t.sharding === null && typeof make === 'function';
  if (!(given instanceof Map) || ![...given].every(isDistribute))
    throw unexpected('captureStep', 'distribute', 'a Map from plain tensors to functions', given);
}

/**
 * Captures a train step: runs `fn` once on the given arguments, which have shapes and no values
 * meanwhile, and changes nothing. The step may call modules, `backward` and `autograd.grad`, the
 * `step` of capturable optimizers, `zeroGrad`, and `scale`, `unscale_`, `step` and `update` of a
 * `GradScaler`; all of it becomes one graph. Optimizer state that does not exist is made before, so
 * the graph reads and writes it as any other.
 *
 * Distributed arguments and parameters are there as their local shards, and the collectives that
 * they need are calls of the graph: with replicated parameters and a batch that is sharded, one
 * `allReduce` for each gradient. JavaScript of the step, such as counting in a variable, runs at
 * the capture only.
 *
 * Results have no history. Values that the step reads end the capture.
 *
 * @throws CompileError for what a graph cannot repeat, naming the place: reading a value, a step of
 * an optimizer without `capturable: true`, a hook on a parameter, a changed attribute of a module
 * @see PyTorch `torch.distributed._spmd.api.compile`
 * @example
 * const optimizer = new optim.AdamW(model.parameters(), { capturable: true });
 * const step = captureStep((batch: Tensor) => {
 *   model(batch).sum().backward();
 *   optimizer.step();
 *   optimizer.zeroGrad();
 * }, [batches[0]]);
 * for (const batch of batches) step.run(batch);
 */
export function captureStep<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  args: A,
  options: CaptureStepOptions = {},
): CapturedStep<A, R> {
  checkFunction('captureStep', 'fn', fn);
  if (!Array.isArray(args)) throw unexpected('captureStep', 'args', 'a list of arguments', args);
  const { distribute = new Map() } = optionsOf('captureStep', options, 'distribute');
  checkDistribute(distribute);
  return captureStepOf('captureStep', fn, args, distribute);
}

/** As {@link captureStep}, for the call of `caller`, which errors name. @internal */
export function captureStepOf<A extends readonly unknown[], R>(
  caller: string,
  fn: (...args: A) => R,
  args: A,
  distribute: ReadonlyMap<Tensor, Distribute>,
): CapturedStep<A, R> {
  if (suspends(fn))
    throw new CompileError(
      `${caller}: expected a synchronous step, got an asynchronous function or a generator, ` +
        'which returns before it has taken the step. Read values and wait outside of the step.',
    );
  return whenPrepared(args, () => capturedStep(caller, fn, args, distribute));
}

function capturedStep<A extends readonly unknown[], R>(
  caller: string,
  fn: (...args: A) => R,
  args: A,
  distribute: ReadonlyMap<Tensor, Distribute>,
): CapturedStep<A, R> {
  const collector = new GuardCollector(args, null, [], fn);
  const recorder = new Recorder(collector, 'lowered');
  recorder.stepCaller = caller;
  const tensors = tensorsIn(args);
  try {
    const recorded = whileCompiling(`${caller} of ${fn.name || '(anonymous)'}`, () =>
      recordStep(recorder, tensors, distribute, () =>
        fn(...(mapTensors((t) => t, args) as unknown as A)),
      ),
    );
    return new CapturedStep<A, R>({
      ...recorded,
      caller,
      graph: recorder.graph,
      template: mapTensors(() => PLACE, recorded.result),
      guards: collector.guards(tensors),
    });
  } catch (error) {
    collector.restore();
    throw error;
  }
}
