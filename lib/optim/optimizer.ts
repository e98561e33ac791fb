/** The base class of optimizers: parameter groups, state and hooks, and the modes of a step. */
import { enableGrad, noGrad } from '../autograd/grad-mode.js';
import type { HookHandle } from '../autograd/node.js';
import type { MemoryObserver } from '../core/backend.js';
import { onBehalfOf } from '../core/caller-name.js';
import { ArgumentError } from '../core/errors.js';
import { inRegion, layers } from '../core/hooks.js';
import { checkFunction, unexpected } from '../core/options.js';
import { PREPARE_CAPTURE } from '../core/prepare-capture.js';
import { PREPARE_LOAD } from '../core/prepare-load.js';
import { keep, scope } from '../core/scope.js';
import { gradOf, setGrad } from '../core/set-grad.js';
import { formatShape, sameShape } from '../core/shape.js';
import type { ArgumentsOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { reportCall } from '../core/unrepeatable.js';
import { zeroGradArguments } from '../core/zero-grad-arguments.js';
import { convertStep, countsByTensors, keepRate } from './capturable.js';
import {
  copyState,
  type EarlierOptimizerStateDict,
  loadedGroup,
  readState,
  type StateNames,
  savedGroup,
} from './optimizer-state.js';

/** Hyperparameters of a parameter group. */
export type Hyperparameters = Record<string, unknown>;

/** Parameters that share hyperparameters. */
export type ParamGroup<H extends Hyperparameters> = H & { params: Tensor[] };

/** The first argument of constructors: parameters, or groups with their own hyperparameters. */
export type Params<H extends Hyperparameters> =
  | Iterable<Tensor>
  | readonly (Partial<H> & { params: Iterable<Tensor> })[];

/** State of one parameter under PyTorch's names (`exp_avg`, `momentum_buffer`). */
export type ParamState = Record<string, Tensor | number>;

/** A function that runs before or after a step. */
export type StepHook = (optimizer: Optimizer) => void;

/**
 * State of an optimizer in PyTorch's form: parameters by position, `weight_decay` in snake_case.
 */
export interface OptimizerStateDict {
  /** The state of each parameter by its number. */
  state: Record<number, ParamState>;
  /** The hyperparameters of each group, and the numbers of its parameters. */
  param_groups: (Hyperparameters & { params: number[] })[];
}

/**
 * Base class of optimizers.
 *
 * @see PyTorch `torch.optim.Optimizer`
 */
export abstract class Optimizer<H extends Hyperparameters = Hyperparameters> {
  /** Groups of parameters with their hyperparameters. */
  readonly paramGroups: ParamGroup<H>[] = [];
  /** What the optimizer keeps for each parameter. */
  readonly state = new Map<Tensor, ParamState>();
  /** Hyperparameters of a group that does not set them itself. */
  readonly defaults: H;
  /**
   * Set by `GradScaler.step`: not 0 if a gradient is not finite, and then a step changes nothing.
   * Null otherwise.
   *
   * @see PyTorch `found_inf` of fused optimizers
   */
  foundInf: Tensor | null = null;
  /** Whether a step was one of a scaler, which may have skipped it. @internal */
  protected isScaled = false;
  private readonly preHooks = new Map<number, StepHook>();
  private readonly postHooks = new Map<number, StepHook>();

  /**
   * @throws ArgumentError if the list is empty, or a parameter is not a leaf tensor or is given
   * twice
   */
  constructor(params: Params<H>, defaults: H) {
    this.defaults = defaults;
    if (params instanceof Tensor)
      throw new ArgumentError(
        `${this.constructor.name}: expected a list of parameters or of groups, got one tensor`,
      );
    if (typeof params?.[Symbol.iterator] !== 'function' || typeof params === 'string')
      throw unexpected(
        this.constructor.name,
        'params',
        'a list of parameters or of groups, such as model.parameters()',
        params,
      );
    const list = [...(params as Iterable<Tensor | (Partial<H> & { params: Iterable<Tensor> })>)];
    if (list.length === 0)
      throw new ArgumentError(
        `${this.constructor.name}: the list of parameters is empty. Modules and parameters count ` +
          'where they are properties of a module, nn.ModuleList or nn.ParameterList',
      );
    const grouped = !(list[0] instanceof Tensor);
    for (const group of grouped
      ? (list as (Partial<H> & { params: Iterable<Tensor> })[])
      : [{ params: list as Tensor[] }])
      this.addParamGroup(group as Partial<H> & { params: Iterable<Tensor> });
  }

  /** Adds a group of parameters with their own hyperparameters. @throws ArgumentError */
  addParamGroup(group: Partial<H> & { params: Tensor | Iterable<Tensor> }): void {
    const given: unknown = group?.params;
    if (typeof (given as Iterable<Tensor> | undefined)?.[Symbol.iterator] !== 'function')
      throw unexpected(this.constructor.name, 'the group', 'an object with params', group);
    // A tensor is iterable, too, so it is tested first.
    const params = given instanceof Tensor ? [given] : [...(given as Iterable<Tensor>)];
    const known = new Set(this.paramGroups.flatMap((g) => g.params));
    params.forEach((p, i) => {
      if (!(p instanceof Tensor) || !p.isLeaf)
        throw new ArgumentError(
          `${this.constructor.name}: parameter ${i} is not a leaf tensor; only leaves can be ` +
            'optimized',
        );
      if (known.has(p))
        throw new ArgumentError(
          `${this.constructor.name}: parameter ${i} of the group is in the optimizer already`,
        );
      known.add(p);
    });
    this.checkUsed(params);
    const own = Object.entries(group).filter(([, value]) => value !== undefined);
    const complete = { ...this.defaults, ...Object.fromEntries(own), params } as ParamGroup<H>;
    this.checkGroup(complete);
    reportCall(this, 'addParamGroup');
    this.paramGroups.push(complete);
  }

  /**
   * Updates the parameters. Calls `closure` first, with gradients on, and returns its value.
   *
   * @throws ArgumentError for parameters that were replaced after the optimizer was made, such as
   * by `FullyShardedDataParallel`
   * @example
   * model(x).mean().backward();
   * optimizer.step();
   * optimizer.zeroGrad();
   */
  step(): void;
  step<T>(closure: () => T): T;
  step<T>(closure?: () => T): T | undefined {
    if (closure !== undefined && typeof closure !== 'function')
      throw unexpected(`${this.constructor.name}.step`, 'closure', 'a function', closure);
    return inRegion('optimizer', `${this.constructor.name}.step`, () => this.stepWith(closure));
  }

  private stepWith<T>(closure?: () => T): T | undefined {
    // Steps are counted in JavaScript, and a graph would repeat the count of its capture.
    this.reportStep();
    if (this.foundInf !== null) this.isScaled = true;
    for (const group of this.paramGroups) this.checkUsed(group.params);
    for (const hook of this.preHooks.values()) hook(this);
    const loss = closure === undefined ? undefined : enableGrad(closure);
    noGrad(() => {
      for (const group of this.paramGroups) {
        // Groups are plain objects, so a program may have set any value.
        if (!(group['lr'] instanceof Tensor) && !Number.isFinite(group.lr))
          throw unexpected(`${this.constructor.name}.step`, 'lr', 'a finite number', group.lr);
        try {
          scope(() => {
            this.stepGroup(group);
          });
        } catch (error) {
          this.checkStateShapes(group.params);
          throw onBehalfOf(error, `${this.constructor.name}.step`);
        }
      }
    });
    const { observer } = layers.backend;
    if (observer !== null) this.markState(observer);
    for (const hook of this.postHooks.values()) hook(this);
    return loss;
  }

  /** Whether `step` reads {@link foundInf}: one that a subclass overrides may not. */
  get _stepSupportsAmpScaling(): boolean {
    return this.step === Optimizer.prototype.step && this.readsFoundInf;
  }

  /** Whether {@link stepGroup} reads {@link foundInf}. @internal */
  protected get readsFoundInf(): boolean {
    return false;
  }

  /** In a capture: only steps that count by tensors can run again. */
  private reportStep(): void {
    const { capture } = layers.backend;
    if (capture === null) return;
    const name = this.constructor.name;
    if (!this.paramGroups.every(({ capturable }) => capturable === true))
      capture.unsupported(`step() of ${name} was called, which was made without capturable: true,`);
    capture.usesOptimizer(this);
  }

  /** @throws ArgumentError for a parameter that no module uses any more: it gets no gradient */
  private checkUsed(params: readonly Tensor[]): void {
    for (const [i, { replacedBecause }] of params.entries())
      if (replacedBecause !== undefined)
        throw new ArgumentError(
          `${this.constructor.name}: parameter ${i} trains nothing: ${replacedBecause}`,
          { op: this.constructor.name, parameter: i },
        );
  }

  /** Looked for after an error only. @throws ArgumentError for a state of another shape */
  private checkStateShapes(params: readonly Tensor[]): void {
    const op = `${this.constructor.name}.step`;
    for (const [i, p] of params.entries())
      for (const [name, value] of Object.entries(this.state.get(p) ?? {}))
        if (name !== 'step' && value instanceof Tensor && !sameShape(value.sizes, p.sizes))
          throw new ArgumentError(
            `${op}: expected ${name} of parameter ${i} to have the shape of the parameter, ` +
              `${formatShape(p.sizes)}, got ${formatShape(value.sizes)}. The parameter changed ` +
              'after an earlier step. Make the optimizer after FullyShardedDataParallel, or ' +
              'after whatever else changes shapes.',
            { op, parameter: i, expected: p.sizes, given: value.sizes },
          );
  }

  private markState(observer: MemoryObserver): void {
    for (const values of this.state.values())
      for (const value of Object.values(values))
        if (value instanceof Tensor) observer.mark(value.storage, 'optimizerState');
  }

  /** Registers a hook that runs before every step and its closure. */
  registerStepPreHook(hook: StepHook): HookHandle {
    return addStepHook(this.preHooks, hook);
  }

  /** Registers a hook that runs after every step. */
  registerStepPostHook(hook: StepHook): HookHandle {
    return addStepHook(this.postHooks, hook);
  }

  /**
   * Sets all gradients to null, or to zero.
   *
   * @example
   * const w = ones([2], { requiresGrad: true });
   * w.sum().backward();
   * new optim.SGD([w], { lr: 0.1 }).zeroGrad();
   * w.grad; // null
   */
  zeroGrad(...args: ArgumentsOf<typeof zeroGradArguments>): void {
    const setToNone = zeroGradArguments(...args);
    for (const group of this.paramGroups) {
      for (const p of group.params) {
        if (setToNone) setGrad(p, null);
        else gradOf(p)?.detach().zero_();
      }
    }
  }

  /** State and hyperparameters under PyTorch's names. Tensors share memory with the optimizer. */
  stateDict(): OptimizerStateDict {
    const index = new Map(this.paramGroups.flatMap((g) => g.params).map((p, i) => [p, i]));
    const state: Record<number, ParamState> = {};
    for (const [p, values] of this.state) state[index.get(p) as number] = { ...values };
    return {
      state,
      param_groups: this.paramGroups.map(({ params, ...rest }) => ({
        ...savedGroup(rest),
        params: params.map((p) => index.get(p) as number),
      })),
    };
  }

  /**
   * Copies a state into the optimizer; PyTorch's states load, too. Each tensor moves to the device
   * of its parameter, a floating one also to its dtype. If any entry is refused, nothing changes.
   *
   * @throws ArgumentError if groups or states do not match the parameters, or a hyperparameter is
   * out of range
   */
  loadStateDict(given: OptimizerStateDict | EarlierOptimizerStateDict): void {
    this.prepareLoad(given)();
  }

  /** @internal */
  [PREPARE_LOAD](given: OptimizerStateDict): (() => void) | null {
    const isOwn = this.loadStateDict === Optimizer.prototype.loadStateDict;
    return isOwn ? this.prepareLoad(given) : null;
  }

  private prepareLoad(given: OptimizerStateDict | EarlierOptimizerStateDict): () => void {
    reportCall(this, 'loadStateDict');
    const op = `${this.constructor.name}.loadStateDict`;
    const { states, groups: saved } = readState(op, given, this.paramGroups, this.stateNames);
    const groups = saved.map(({ params: _params, ...rest }, i) => {
      const own = this.paramGroups[i] as ParamGroup<H>;
      return { ...own, ...loadedGroup(rest, own) } as ParamGroup<H>;
    });
    for (const group of groups) this.checkGroup(group);
    const copies = states.map((state): [Tensor, ParamState] => {
      const values = copyState(state);
      const byTensors = countsByTensors(groups[state.group] as ParamGroup<H>, this.isScaled);
      convertStep(state.param, values, byTensors);
      return [state.param, values];
    });
    return () => {
      this.state.clear();
      for (const [param, values] of copies) this.state.set(param, values);
      groups.forEach((group, i) => {
        const own: Hyperparameters = this.paramGroups[i] as ParamGroup<H>;
        const { lr } = own;
        keepRate(Object.assign(own, group), lr);
      });
    };
  }

  /** Makes the state that capturable steps need. @internal */
  [PREPARE_CAPTURE](): void {
    noGrad(() => {
      for (const group of this.paramGroups)
        for (const p of group.params)
          if (group['capturable'] === true && p.requiresGrad) this.prepareState(p, group);
    });
  }

  /** Makes the state that a capturable step of a parameter needs. @internal */
  protected prepareState(_p: Tensor, _group: ParamGroup<H>): void {}

  /** Steps one group. Called inside `noGrad` and a scope. @internal */
  protected abstract stepGroup(group: ParamGroup<H>): void;

  /** @throws ArgumentError if a hyperparameter is out of range */
  protected checkGroup(_group: ParamGroup<H>): void {}

  /** Names of the entries in the state of a parameter; null allows any. */
  protected get stateNames(): StateNames | null {
    return null;
  }

  /** Runs `make`, which makes state; in a capture, of real tensors that every run goes on with. */
  protected creating<T>(make: () => T): T {
    const { capture } = layers.backend;
    return capture === null ? make() : capture.outside(make);
  }

  /** Zeros like a parameter, which no scope disposes of. */
  protected zerosFor(p: Tensor): Tensor {
    return keep(p.detach().zerosLike());
  }
}

let nextHook = 0;

function addStepHook(hooks: Map<number, StepHook>, hook: StepHook): HookHandle {
  checkFunction('registerStepHook', 'hook', hook);
  const id = nextHook++;
  hooks.set(id, hook);
  return { remove: () => void hooks.delete(id) };
}
