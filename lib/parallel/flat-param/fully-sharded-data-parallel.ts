/**
 * `FullyShardedDataParallel`: a module whose parameters are one flat parameter, divided by ranks.
 */
import { checkFlag, checkFunction, checkLimit, optionsOf, unexpected } from '../../core/options.js';
import {
  ArgumentError,
  compiler,
  float32,
  nn,
  promoteTypes,
  ShardingError,
  type Tensor,
  tensor,
} from '../../index.js';
import { castTensors } from '../common/cast-tensors.js';
import { isContainer } from '../common/containers.js';
import { checkNesting, markAs } from '../common/nesting.js';
import { clipGradients, type GradientPart } from './clip-gradients.js';
import type { FlatParameter } from './flat-entries.js';
import { setMember } from './flat-entries.js';
import { FlatUnit, unitsBelow } from './flat-unit.js';
import { type FSDPOptions, type Settings, settingsOf } from './fsdp-options.js';
import { Prefetch } from './prefetch.js';
import { addStateHooks, WRAPPED, withoutPrefix } from './state-hooks.js';

const OP = 'FullyShardedDataParallel';

/** Options of {@link FullyShardedDataParallel.summonFullParams}. */
export interface SummonOptions {
  /** Whether the wrappers below are included. True by default. */
  recurse?: boolean;
  /** Whether changes are kept. True by default. */
  writeback?: boolean;
}

/**
 * Wraps a module and divides its parameters, as one flat tensor, among the ranks: each holds an
 * equal part of it, of its gradient and of the state of the optimizer. The whole is in memory only
 * while the module runs. Each wrapper has a flat parameter of what no wrapper below has taken, so
 * wrap the blocks of a model first, and then the model.
 *
 * Optimizers are made after wrapping: parameters are replaced, unless `useOrigParams` is true, and
 * the step of an earlier optimizer throws. A state dict has whole tensors under the names of the
 * wrapped module; all ranks save and load.
 *
 * @throws ArgumentError for options that do not fit, and parameters that cannot be flattened
 * together; DtypeError, DeviceError for parameters of several dtypes or devices; ShardingError for
 * modules with `fullyShard` or `DistributedDataParallel`. CollectiveError, when a value is read, if
 * ranks have other parameters
 * @see PyTorch `torch.distributed.fsdp.FullyShardedDataParallel`
 * @example
 * const sharded = new FullyShardedDataParallel(model);
 * const optimizer = new optim.AdamW(sharded.parameters());
 * sharded(x).mean().backward();
 * optimizer.step();
 */
export class FullyShardedDataParallel<
  Args extends readonly unknown[] = [input: Tensor],
  Result = Tensor,
> extends nn.Module<Args, Result> {
  /** @internal */
  [WRAPPED]: nn.Module<Args, Result>;
  /** Its state is no part of what compiled functions compare. */
  readonly #unit: FlatUnit;
  readonly #settings: Settings;
  readonly #prefetch: Prefetch | null;
  /** Whether buffers have their dtype, and the root is known. */
  private isReady = false;

  constructor(module: nn.Module<Args, Result>, options: FSDPOptions = {}) {
    super();
    checkModule(module);
    this.#settings = settingsOf(options);
    checkNesting(OP, module, new Set(this.#settings.ignoredStates));
    markAs(OP, this);
    wrapBelow(module, this.#settings);
    this[WRAPPED] = module;
    this.#unit = new FlatUnit(this, module, this.#settings);
    const { state } = this.#unit;
    this.#prefetch = state === null ? null : new Prefetch(state, this.#settings);
    addStateHooks(this, this.#unit);
    const prepare = compiler.disable(() => this.prepare(), {
      reason: `a module that ${OP} shards was called`,
      when: () => compiler.config.skipFsdpHooks,
    });
    this.registerForwardPreHook(prepare as never, { prepend: true });
  }

  /** The wrapped module. */
  get module(): nn.Module<Args, Result> {
    return this[WRAPPED];
  }

  /** The flat parameter: this rank's shard. Null if the module has no parameters of its own. */
  get _flatParam(): FlatParameter | null {
    return this.#unit.handle?.flatParam ?? null;
  }

  forward(...args: Args): Result {
    const given = this.castInputs(args);
    this.#prefetch?.onForward(given);
    return this[WRAPPED](...given);
  }

  /** Before a forward, and in the root before all: takes over what the program has changed. */
  private prepare(): undefined {
    const unit = this.#unit;
    if (unit.isSummoned && !unit.isUnfinished)
      throw new ShardingError(
        `${OP}: expected no forward while modules hold whole parameters, got one in ` +
          'summonFullParams. Run the model after it.',
        { op: OP },
      );
    if (!this.isReady || unit.isUnfinished || unit.isStale)
      compiler.beforeCapture(() => this.makeReady());
    return undefined;
  }

  /** Prepares the wrappers below, too: a capture begins anew once for all of them. */
  private makeReady(): void {
    const wrappers = [...this.modules()].filter((m) => m instanceof FullyShardedDataParallel);
    for (const each of wrappers) each.#unit.endUnfinished();
    this.#unit.takeOver();
    for (const each of wrappers) each.makeOwn();
    this.#unit.takeOver(); // shards have other memory now
  }

  /** Makes what the wrapper makes once. */
  private makeOwn(): void {
    if (this.isReady) return;
    this.convertBuffers();
    this.#unit.state?.initialize();
    this.isReady = true;
  }

  private convertBuffers(): void {
    const dtype = this.#settings.mixedPrecision?.bufferDtype ?? null;
    if (dtype === null) return;
    for (const buffer of this.buffers())
      if (buffer.dtype.isFloatingPoint) buffer.data = buffer.detach().to(dtype);
  }

  private castInputs(args: Args): Args {
    const { paramDtype = null, castRootForwardInputs = true } = this.#settings.mixedPrecision ?? {};
    if (paramDtype === null || !castRootForwardInputs || !this.#prefetch?.isRoot) return args;
    return castTensors(args, paramDtype);
  }

  /**
   * As of any module. With `useOrigParams`, and in {@link summonFullParams}, names have no prefix
   * of a wrapper.
   */
  override namedParameters(
    prefix = '',
    options: nn.WalkOptions & { removeDuplicate?: boolean } = {},
  ): Iterable<[string, nn.Parameter]> {
    const isClean = (): boolean => this.#settings.useOrigParams || this.#unit.isSummoned;
    return renamed(super.namedParameters(prefix, options), isClean);
  }

  /** As of any module. In {@link summonFullParams} names have no prefix of a wrapper. */
  override namedBuffers(prefix = '', options: nn.WalkOptions = {}): Iterable<[string, Tensor]> {
    return renamed(super.namedBuffers(prefix, options), () => this.#unit.isSummoned);
  }

  /** Calls `fn` on every module, children first, while they hold whole parameters. */
  override apply(fn: (module: nn.AnyModule) => void): this {
    checkFunction('apply', 'fn', fn);
    summoned([this.#unit], true, () => super.apply(fn));
    return this;
  }

  /**
   * Runs `fn`, or until the promise that it returns is settled, without reducing gradients: they
   * accumulate unsharded, and the next backward after it reduces them.
   *
   * @see PyTorch `FullyShardedDataParallel.no_sync`
   */
  noSync<T>(fn: () => T): T {
    checkFunction('noSync', 'fn', fn);
    const groups = unitsBelow(this).flatMap(({ state }) => state?.group ?? []);
    const before = groups.map(({ reducesGradients }) => reducesGradients);
    for (const group of groups) group.reducesGradients = false;
    return andThen(fn, () => {
      for (const [i, group] of groups.entries()) group.reducesGradients = before[i] as boolean;
    });
  }

  /**
   * Scales all gradients in place so that their norm over all ranks is at most `maxNorm`. Returns
   * the norm before, equal on all ranks. All ranks call it on the outermost wrapper.
   *
   * @throws ArgumentError unless both are numbers and `normType` is above 0
   * @see PyTorch `FullyShardedDataParallel.clip_grad_norm_`
   */
  clipGradNorm_(maxNorm: number, normType = 2): Tensor {
    const op = 'clipGradNorm_';
    checkLimit(op, 'maxNorm', maxNorm);
    checkLimit(op, 'normType', normType);
    if (normType <= 0) throw unexpected(op, 'normType', 'a number above 0', normType);
    const units = unitsBelow(this);
    const sharded = new Set(units.flatMap(({ handle }) => handle?.tensors.trainedParameters ?? []));
    const others = [...this.parameters()].filter((p) => !sharded.has(p));
    const plain = others.flatMap(({ grad }) => grad ?? []).map((grad) => plainPart(grad));
    const parts = [...plain, ...units.flatMap((unit) => unit.gradientParts())];
    return parts.length === 0 ? tensor(0) : clipGradients(parts, maxNorm, normType);
  }

  /**
   * Runs `fn`, or until the promise that it returns is settled, while modules hold whole parameters
   * in the dtype of shards, under names without prefix. All ranks call it, between steps.
   * Optimizers hold other parameters, and the memory of these is freed at the end: clone what shall
   * stay.
   *
   * @throws ShardingError in forward and backward
   * @see PyTorch `FullyShardedDataParallel.summon_full_params`
   */
  static summonFullParams<T>(module: nn.AnyModule, fn: () => T, options: SummonOptions = {}): T {
    const op = 'summonFullParams';
    if (!(module instanceof nn.Module)) throw unexpected(op, 'module', 'an nn.Module', module);
    checkFunction(op, 'fn', fn);
    const { recurse = true, writeback = true } = optionsOf(op, options, 'recurse writeback');
    checkFlag(op, 'recurse', recurse);
    checkFlag(op, 'writeback', writeback);
    return summoned(unitsBelow(module, recurse), writeback, fn);
  }
}

function summoned<T>(units: readonly FlatUnit[], writeback: boolean, fn: () => T): T {
  const done: FlatUnit[] = [];
  return andThen(
    () => {
      for (const unit of units) if (unit.summon('summonFullParams')) done.push(unit);
      return fn();
    },
    () => {
      let failure: unknown = null;
      for (const unit of done) {
        try {
          unit.endSummon(writeback);
        } catch (error) {
          failure ??= error;
        }
      }
      if (failure !== null) throw failure;
    },
  );
}

/** The gradient of a parameter that is not flattened. */
function plainPart(grad: Tensor): GradientPart {
  const dtype = promoteTypes(grad.dtype, float32);
  return { grads: [grad], groups: [], dtype, device: grad.device };
}

/** Runs `end` after `fn`, or after the promise that it returns. */
function andThen<T>(fn: () => T, end: () => void): T {
  let isWaiting = false;
  try {
    const result = fn();
    if (!(result instanceof Promise)) return result;
    isWaiting = true;
    return result.finally(end) as T;
  } finally {
    if (!isWaiting) end();
  }
}

/** @throws ArgumentError for what is no module, a wrapper, and a container without forward */
function checkModule(module: unknown): void {
  if (!(module instanceof nn.Module)) throw unexpected(OP, 'module', 'an nn.Module', module);
  const holdsOnly = isContainer(module);
  if (!holdsOnly && module.forward !== undefined && !(module instanceof FullyShardedDataParallel))
    return;
  throw new ArgumentError(
    `${OP}: expected a module with forward that is not wrapped, got ${module.constructor.name}` +
      `${holdsOnly ? '. Wrap the modules in it, or the one that uses it.' : ''}`,
    { op: OP, module: module.constructor.name },
  );
}

/** Wraps the modules below that the policy chooses, those furthest down first. */
function wrapBelow(root: nn.AnyModule, settings: Settings): void {
  const { autoWrapPolicy } = settings;
  if (autoWrapPolicy === null) return;
  const wrappers = new Map<nn.AnyModule, nn.AnyModule>();
  const ignored = new Set<unknown>(settings.ignoredStates);
  const visit = (module: nn.AnyModule, path: string): void => {
    for (const [name, child] of module.namedChildren()) {
      if (child instanceof FullyShardedDataParallel || ignored.has(child)) continue;
      const childPath = path === '' ? name : `${path}.${name}`;
      if (!wrappers.has(child)) {
        visit(child, childPath);
        const wrapped = autoWrapPolicy(child, childPath)
          ? new FullyShardedDataParallel(child as never, { ...settings, autoWrapPolicy: null })
          : child;
        wrappers.set(child, wrapped);
      }
      if (wrappers.get(child) !== child) setMember({ module, name }, wrappers.get(child));
    }
  };
  visit(root, '');
}

/** The same walk, with names that have no prefix of a wrapper if they are clean when it begins. */
function renamed<T>(walk: Iterable<[string, T]>, isClean: () => boolean): Iterable<[string, T]> {
  return {
    [Symbol.iterator]() {
      const clean = isClean();
      const named = Array.from(walk, ([name, value]): [string, T] => [
        clean ? withoutPrefix(name) : name,
        value,
      ]);
      return named.values();
    },
  };
}
