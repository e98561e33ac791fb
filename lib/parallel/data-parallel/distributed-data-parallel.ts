/** `DistributedDataParallel`: each rank has the whole model, and gradients are averaged. */
import {
  checkFlag,
  checkFunction,
  checkNumber,
  optionsOf,
  unexpected,
} from '../../core/options.js';
import { type ProcessGroup, worldGroup } from '../../distributed/index.js';
import { DTensor } from '../../dtensor/index.js';
import {
  ArgumentError,
  autograd,
  isGradEnabled,
  nn,
  ShardingError,
  type Tensor,
  tree,
} from '../../index.js';
import { checkNesting, markAs } from '../common/nesting.js';
import type { ReducedParameter } from './buckets.js';
import type { CommHook } from './comm-hooks.js';
import { JoinRounds, ROUND } from './join-rounds.js';
import { Members } from './members.js';
import { BufferSync, broadcastModule } from './module-sync.js';
import { beginForward, endForward, syncBuffers } from './ops.js';
import { Reducer } from './reducer.js';

/** Options of {@link DistributedDataParallel}. */
export interface DistributedDataParallelOptions {
  /** The ranks; all by default. */
  processGroup?: ProcessGroup | null;
  /** Whether each forward copies the buffers of rank 0 to all ranks. Default: true. */
  broadcastBuffers?: boolean;
  /** Whether all ranks begin with the parameters and buffers of rank 0. Default: true. */
  initSync?: boolean;
  /** The size of a bucket in MiB. Default: 25; the first bucket has 1. */
  bucketCapMb?: number;
  /**
   * Whether each forward looks for parameters that its outputs do not depend on. They take part
   * with zeros. Default: false.
   */
  findUnusedParameters?: boolean;
  /** Whether `.grad` is a view of a bucket, instead of a copy. Default: true. */
  gradientAsBucketView?: boolean;
  /** Whether all iterations use the same parameters: they are looked for once. Default: false. */
  staticGraph?: boolean;
}

const OPTIONS =
  'processGroup broadcastBuffers initSync bucketCapMb findUnusedParameters ' +
  'gradientAsBucketView staticGraph';
const OP = 'DistributedDataParallel';

/** Options of {@link DistributedDataParallel.join}. */
export interface JoinOptions {
  /**
   * Whether gradients are divided by the number of all ranks, as before ranks ran out of inputs. If
   * false, by the number of those that have some. Default: true.
   */
  divideByInitialWorldSize?: boolean;
  /** Whether ranks may run as many steps as they like. If false, `fn` alone runs. Default: true. */
  enable?: boolean;
}

type Settings = Required<Omit<DistributedDataParallelOptions, 'processGroup'>> & {
  readonly group: ProcessGroup;
};

/** @throws ArgumentError for options that are none */
function settingsOf(options: DistributedDataParallelOptions): Settings {
  const {
    processGroup,
    broadcastBuffers = true,
    initSync = true,
    bucketCapMb = 25,
    findUnusedParameters = false,
    gradientAsBucketView = true,
    staticGraph = false,
  } = optionsOf(OP, options, OPTIONS);
  const flags = {
    broadcastBuffers,
    initSync,
    findUnusedParameters,
    gradientAsBucketView,
    staticGraph,
  };
  for (const [name, value] of Object.entries(flags)) checkFlag(OP, name, value);
  checkNumber(OP, 'bucketCapMb', bucketCapMb, { above: 0 });
  return { ...flags, bucketCapMb, group: processGroup ?? worldGroup() };
}

/**
 * Trains one model on the data of several ranks: each has all parameters, and backward averages
 * their gradients over the ranks, in buckets, while it computes the next ones. All ranks begin with
 * the state of rank 0. Names of parameters have the prefix `module.`, as in PyTorch.
 *
 * Backward writes gradients into the buckets, and `.grad` shows them there until it becomes null. A
 * parameter that no rank has used gets a gradient of zeros with `findUnusedParameters`. Each
 * backward pass reduces, also a second one of a forward pass. Parameters may be frozen and unfrozen
 * between steps, on all ranks alike.
 *
 * @throws ArgumentError for options that are none, ShardingError for distributed parameters,
 * and modules with `fullyShard` or another kind of data parallelism.
 * CollectiveError, when a value is read, if ranks have other parameters. A forward throws
 * AutogradError, with their names, if parameters were unused in the pass before, and ArgumentError
 * if one was replaced
 * @see PyTorch `torch.nn.parallel.DistributedDataParallel`; Li et al., arXiv:2006.15704
 * @example
 * const ddp = new DistributedDataParallel(model);
 * // .grad becomes the average of all ranks
 * ddp(x).mean().backward();
 */
export class DistributedDataParallel<
  Args extends readonly unknown[] = [input: Tensor],
  Result = Tensor,
> extends nn.Module<Args, Result> {
  /** The module that each rank trains. */
  readonly module: nn.Module<Args, Result>;
  /** Changes in each step: compiled functions compare fields that are not private to the class. */
  readonly #reducer: Reducer;
  /** Null if there are no buffers to copy. */
  readonly #bufferSync: BufferSync | null;
  readonly #group: ProcessGroup;
  private syncsGradients = true;
  /** Whether the forward before was to reduce gradients; true without buffers to copy. */
  private hasSynced = true;
  private hasHook = false;

  constructor(module: nn.Module<Args, Result>, options: DistributedDataParallelOptions = {}) {
    super();
    if (!(module instanceof nn.Module)) throw unexpected(OP, 'module', 'an nn.Module', module);
    checkNesting(OP, module);
    const settings = settingsOf(options);
    const { group, bucketCapMb, findUnusedParameters, staticGraph } = settings;
    const parameters = parametersOf(module);
    this.module = module;
    this.#group = group;
    markAs(OP, this);
    if (settings.initSync) broadcastModule(module, group);
    const bufferSync = settings.broadcastBuffers ? new BufferSync(module, group) : null;
    this.#bufferSync = bufferSync?.isNeeded ? bufferSync : null;
    this.#reducer = new Reducer(parameters, {
      group,
      capBytes: bucketCapMb * 2 ** 20,
      findsUnused: findUnusedParameters,
      isStatic: staticGraph,
      usesViews: settings.gradientAsBucketView,
      members: new Members(module),
    });
  }

  forward(...args: Args): Result {
    const isRecorded = isGradEnabled();
    const syncs = this.syncsGradients && isRecorded;
    if (isRecorded) beginForward(this.#reducer, syncs);
    const bufferSync = this.#bufferSync;
    if (bufferSync !== null && this.hasSynced)
      syncBuffers(bufferSync.buffers(), bufferSync, this.#reducer);
    const result = this.module(...args);
    if (isRecorded) this.endForward(result, syncs);
    if (bufferSync !== null) this.hasSynced = syncs;
    return result;
  }

  private endForward(result: Result, syncs: boolean): void {
    const reducer = this.#reducer;
    const outputs = tree.tensorsWithin(result).filter((t) => t.gradFn !== null);
    const reached = syncs ? reducer.reachedFrom(result) : null;
    endForward(reducer, syncs, reached, outputs.length > 0);
    if (syncs && outputs.length > 0)
      autograd.registerMultiGradHook(outputs, reducer.passHook, { mode: 'any' });
  }

  /**
   * Runs `fn`, whose forward and backward passes accumulate gradients on each rank. The first
   * forward and backward after it reduce them. `fn` may return a promise.
   *
   * @see PyTorch `DistributedDataParallel.no_sync`
   */
  noSync<T>(fn: () => T): T {
    checkFunction('noSync', 'fn', fn);
    const before = this.syncsGradients;
    this.syncsGradients = false;
    const end = (): void => {
      this.syncsGradients = before;
    };
    let result: T;
    try {
      result = fn();
    } catch (error) {
      end();
      throw error;
    }
    if (result instanceof Promise) return result.finally(end) as T;
    end();
    return result;
  }

  /**
   * Runs `fn`, the training loop of this rank, where ranks have different numbers of inputs. A rank
   * whose `fn` has ended takes part in the collectives of the others, with gradients of zero, until
   * all have ended. Then all get the parameters and buffers of the rank that ended last. All ranks
   * call it; `fn` may return a promise. Resolves to what `fn` returns.
   *
   * @throws ArgumentError inside of `fn`
   * @see PyTorch `DistributedDataParallel.join`
   * @example
   * const ddp = new DistributedDataParallel(model);
   * await ddp.join(() => {
   *   ddp(x).mean().backward(); // any number of steps
   * });
   */
  async join<T>(fn: () => T | Promise<T>, options: JoinOptions = {}): Promise<T> {
    checkFunction('join', 'fn', fn);
    const { divideByInitialWorldSize = true, enable = true } = optionsOf(
      'join',
      options,
      'divideByInitialWorldSize enable',
    );
    checkFlag('join', 'divideByInitialWorldSize', divideByInitialWorldSize);
    checkFlag('join', 'enable', enable);
    if (!enable) return fn();
    if (this.#reducer.rounds !== null)
      throw new ArgumentError('join: expected a call outside of fn, got one inside of it', {
        op: 'join',
      });
    const [first] = this.module.parameters();
    const rounds = new JoinRounds(this.#group, first as Tensor, !divideByInitialWorldSize);
    this.#reducer.rounds = rounds;
    try {
      const result = await fn();
      await this.followOthers(rounds);
      return result;
    } finally {
      this.#reducer.rounds = null;
    }
  }

  /** Takes part in the collectives of ranks that have inputs. */
  private async followOthers(rounds: JoinRounds): Promise<void> {
    const bufferSync = this.#bufferSync;
    let isLast = true;
    for (;;) {
      const codes = await rounds.exchange(ROUND.ended);
      if (codes.every((code) => code === ROUND.ended)) break;
      isLast = false;
      if (codes.includes(ROUND.buffers)) bufferSync?.run(bufferSync.buffers(), rounds.notSource());
      if (codes.includes(ROUND.gradients)) this.#reducer.reduceZeros();
    }
    const last = await rounds.exchange(Number(isLast));
    broadcastModule(this.module, this.#group, last.lastIndexOf(1));
  }

  /**
   * Reduces buckets by a function of the program, for example `fp16CompressHook`. All ranks
   * register the same one, before the first backward pass.
   *
   * @param state - the first argument of the hook
   * @throws ArgumentError for a second hook
   * @see PyTorch `DistributedDataParallel.register_comm_hook`
   */
  registerCommHook<S>(state: S, hook: CommHook<S>): void {
    checkFunction('registerCommHook', 'hook', hook);
    if (this.hasHook)
      throw new ArgumentError('registerCommHook: there is a communication hook already', {
        op: 'registerCommHook',
      });
    this.hasHook = true;
    this.#reducer.useHook(state, hook);
  }

  /** The names of the parameters in each bucket, in the order in which buckets are reduced. */
  get bucketLayout(): readonly (readonly string[])[] {
    return this.#reducer.layout;
  }
}

/** All parameters. @throws ArgumentError, ShardingError if DDP is not for them */
function parametersOf(module: nn.AnyModule): readonly ReducedParameter[] {
  const all = [...module.namedParameters()];
  const sharded = all.find(([, parameter]) => parameter instanceof DTensor);
  if (sharded !== undefined)
    throw new ShardingError(
      `${OP}: expected plain parameters, got the distributed tensor "${sharded[0]}". Use ` +
        'fullyShard for modules with distributed parameters.',
      { op: OP, parameter: sharded[0] },
    );
  const meta = all.find(([, parameter]) => parameter.isMeta);
  if (meta !== undefined)
    throw new ArgumentError(
      `${OP}: expected parameters with memory, got "${meta[0]}" on the device meta. Call ` +
        'module.toEmpty({ device }) first.',
      { op: OP, parameter: meta[0] },
    );
  if (!all.some(([, parameter]) => parameter.requiresGrad))
    throw new ArgumentError(
      `${OP}: expected a module with parameters that require a gradient, got none. It is not ` +
        'needed for such a module.',
      { op: OP },
    );
  return all.map(([name, parameter], index) => ({ index, name, parameter }));
}
