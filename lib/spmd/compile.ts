/**
 * `spmd.compile`: captures a train step on distributed tensors, transforms its graph, and runs it.
 */
import { config } from '../compile/config.js';
import type { CapturedStep } from '../compile/step/capture-step.js';
import { CompileError } from '../core/errors.js';
import { checkFlag, checkFunction, optionsOf } from '../core/options.js';
import { currentRuntime, type RankRuntime } from '../core/rank-runtime.js';
import type { DeviceMesh } from '../distributed/device-mesh/device-mesh.js';
import { captureDistributed, untrainedNames } from './capture.js';
import { compareBatches, compareMade } from './equal-batches.js';
import { IterGraphModule } from './iter-graph-module.js';
import { checkedMode, distributionOf, meshOf, type ParallelMode } from './parallel-mode.js';
import { prepareOptimizers, type StepArguments, stepArguments } from './step-arguments.js';
import { StepModule } from './step-module.js';
import { GraphModuleTransformation, type StepTransformation } from './transformation.js';

/** Options of `spmd.compile`. */
export interface SpmdOptions {
  /** Makes what runs from the captured graph; by default it runs as it is. */
  gmTransformation?: StepTransformation;
  /** How plain tensors are distributed: by default replicated parameters, and a batch in parts. */
  parallelMode?: ParallelMode;
}

/** A further argument of a compiled step, behind those of the step itself. */
export interface StepFlags {
  /** Whether no other step follows: what earlier steps have moved into this one has to run. */
  lastTrainStep?: boolean;
}

/** A train step that `spmd.compile` has compiled. */
export type SpmdStep<A extends readonly unknown[], R> = (...args: [...A, StepFlags?]) => R;

/** What errors and warnings name. */
const CALLER = 'spmd.compile';

/** A captured step, and what runs. */
interface CompiledStep {
  readonly captured: CapturedStep;
  readonly module: IterGraphModule;
}

/**
 * Compiles a train step for several ranks: forward, backward and the step of the optimizer become
 * one graph of ops on local tensors and collectives, which `gmTransformation` may change. Each rank
 * passes its own part of the batch. Gradients are those of the whole batch: a loss that is a sum
 * sums over all ranks, where DistributedDataParallel averages.
 *
 * Models, optimizers (with `capturable: true`) and batches are arguments of the step. Parameters,
 * buffers and optimizer state that are plain tensors count as replicated; distributed ones keep
 * their placements; what the step makes itself, such as positions and masks, is replicated beside
 * them. Without ranks the step is that of one. A model that `fullyShard` shards keeps
 * its gathers and reductions, as calls of the graph, and the loss of each rank is its own.
 *
 * A batch of other shapes or a changed setting is captured anew, and a warning says what differs;
 * at most `compiler.config.recompileLimit` captures serve one step.
 *
 * @throws ArgumentError for options of other types. The step throws ArgumentError that names
 * parameters in no optimizer or in two, where it has optimizers; CompileError for what a graph
 * cannot repeat, such as a value that is read, for an optimizer that takes no step, for too many
 * captures, and for what passes refuse; ShardingError for a model that the step closes over, and
 * for numbers that each rank draws by itself beside distributed tensors. Ranks whose batches have
 * other shapes or dtypes get a CollectiveError that names both
 * @see PyTorch `torch.distributed._spmd.api.compile`
 * @example
 * const optimizer = new optim.AdamW(model.parameters(), { capturable: true });
 * const trainStep = spmd.compile()((model: nn.Module, optimizer: optim.AdamW, batch: Tensor) => {
 *   model(batch).sum().backward();
 *   optimizer.step();
 *   optimizer.zeroGrad();
 * });
 * for (const batch of batches) trainStep(model, optimizer, batch);
 */
export function compile(
  options: SpmdOptions = {},
): <A extends readonly unknown[], R>(trainStep: (...args: A) => R) => SpmdStep<A, R> {
  const { gmTransformation = GraphModuleTransformation(), parallelMode = {} } = optionsOf(
    'spmd.compile',
    options,
    'gmTransformation parallelMode',
  );
  checkFunction('spmd.compile', 'gmTransformation', gmTransformation);
  const mode = checkedMode(parallelMode);
  return (trainStep) => {
    checkFunction('spmd.compile', 'trainStep', trainStep);
    const ranks = new WeakMap<RankRuntime, SpmdCaptures>();
    return (...given) => {
      const rank = currentRuntime();
      let captures = ranks.get(rank);
      if (captures === undefined) {
        captures = new SpmdCaptures(trainStep as never, gmTransformation, mode);
        ranks.set(rank, captures);
      }
      return captures.call(...withoutFlags(given)) as never;
    };
  };
}

/** Takes the flags off the end of the arguments. */
function withoutFlags(given: readonly unknown[]): [args: readonly unknown[], isLast: boolean] {
  const last = given.at(-1);
  const isFlags =
    typeof last === 'object' &&
    last !== null &&
    Object.keys(last).length === 1 &&
    'lastTrainStep' in last;
  if (!isFlags) return [given, false];
  const { lastTrainStep = false } = last as StepFlags;
  checkFlag('spmd.compile', 'lastTrainStep', lastTrainStep);
  return [given.slice(0, -1), lastTrainStep];
}

/** The captures of one step by one rank. */
class SpmdCaptures {
  private readonly fn: (...args: readonly unknown[]) => unknown;
  private readonly transform: StepTransformation;
  private readonly mode: ParallelMode;
  private readonly steps: CompiledStep[] = [];
  private latest: CompiledStep | null = null;
  /** What differed from capture to capture. */
  private readonly changes = new Set<string>();
  /** The ranks, once the step was called. */
  private mesh: DeviceMesh | null = null;

  constructor(
    fn: (...args: readonly unknown[]) => unknown,
    transform: StepTransformation,
    mode: ParallelMode,
  ) {
    this.fn = fn;
    this.transform = transform;
    this.mode = mode;
  }

  call(args: readonly unknown[], isLast: boolean): unknown {
    const { latest } = this;
    const known = this.find(args);
    if (known === undefined || known !== latest) this.compareRanks(args);
    const step = known ?? this.capture(args);
    if (latest !== null && latest !== step && latest.module.hasKept)
      throw new CompileError(
        `spmd.compile: ${latest.captured.difference(...args)}, and parts of the step before have ` +
          'been moved into the next one, which must have the same graph. Pass lastTrainStep: ' +
          'true to the last step before the change.',
      );
    this.latest = step;
    return step.captured.runWith((...values) => step.module.run(values, isLast), ...args);
  }

  private find(args: readonly unknown[]): CompiledStep | undefined {
    const { latest, steps } = this;
    if (latest?.captured.matches(...args)) return latest;
    return steps.find(({ captured }) => captured.matches(...args));
  }

  /** Compares the batches of ranks where one runs another graph than before. */
  private compareRanks(args: readonly unknown[]): void {
    const found = stepArguments(args);
    this.mesh ??= meshOf(found, this.mode);
    if (this.mesh !== null) compareBatches(this.name, found.batch, this.mesh);
  }

  private capture(args: readonly unknown[]): CompiledStep {
    const found = stepArguments(args);
    prepareOptimizers(CALLER, found);
    this.beforeCapture(args);
    const { mesh, fn } = this;
    const distribute = mesh === null ? new Map() : distributionOf(found, mesh, this.mode);
    const captured = captureDistributed({ caller: CALLER, fn, args, found, distribute });
    if (mesh !== null) compareMade(this.name, captured, mesh);
    this.warnOfUntrained(captured, found);
    const module = this.transform(new StepModule(captured));
    if (!(module instanceof IterGraphModule))
      throw new CompileError(
        'spmd.compile: expected gmTransformation to return an IterGraphModule, as ' +
          'new IterGraphModule(module) makes it',
      );
    const step = { captured, module };
    this.steps.push(step);
    return step;
  }

  /** Warns of another capture. @throws CompileError where there are too many of them */
  private beforeCapture(args: readonly unknown[]): void {
    const before = this.latest ?? this.steps.at(-1);
    if (before === undefined) return;
    const difference = before.captured.difference(...args) ?? 'nothing that is compared differs';
    this.changes.add(difference);
    if (this.steps.length >= config.recompileLimit)
      throw new CompileError(
        `${CALLER}: ${this.name} was captured ${config.recompileLimit} times, and no graph ` +
          `serves this call. What changed: ${[...this.changes].join('; ')}. ${adviceFor(difference)} ` +
          'Or raise compiler.config.recompileLimit.',
        { changes: [...this.changes] },
      );
    warn(`${this.name} is captured again: ${difference}. ${adviceFor(difference)}`);
  }

  private warnOfUntrained(captured: CapturedStep, found: StepArguments): void {
    const names = untrainedNames(captured, found);
    if (names === null || this.steps.length > 0) return;
    warn(
      `${this.name} computes gradients of ${names}, and no optimizer is among its arguments, so ` +
        'it trains nothing. Pass the optimizer as an argument, unless gradients are all you want.',
    );
  }

  private get name(): string {
    return this.fn.name || 'the step';
  }
}

const warn = (text: string): void => process.emitWarning(`${CALLER}: ${text}`, 'CompileWarning');

/** What helps against another capture for a difference. */
const adviceFor = (difference: string): string =>
  /\blr was [-\d.e]+ and is [-\d.]/.test(difference)
    ? 'Make lr a tensor, such as lr: tensor(0.001), which schedules change in place.'
    : 'Give batches one shape, and set flags before the first step.';
