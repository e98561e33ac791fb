/** Base of optimizers: parameter groups, state, and what every step shares. */
import { enableGrad, noGrad } from '../autograd/grad-mode.js';
import type { HookHandle } from '../autograd/node.js';
import { ArgumentError } from '../core/errors.js';
import { keep } from '../core/keep.js';
import { memoryRoles } from '../core/memory-roles.js';
import { checkFlag, checkFunction, checkNumber, unexpected } from '../core/options.js';
import { scope } from '../core/scope.js';
import type { ArgumentsOf } from '../core/signature.js';
import { setGrad, Tensor } from '../core/tensor.js';
import { zeroGradArguments } from '../core/zero-grad-arguments.js';
import {
  copyState,
  type EarlierOptimizerStateDict,
  loadedGroup,
  readState,
  type StateNames,
  savedGroup,
} from './optimizer-state.js';

/** Hyperparameters of a group, beside its parameters. */
export type Hyperparameters = Record<string, unknown>;

/** Parameters that share hyperparameters. */
export type ParamGroup<H extends Hyperparameters> = H & { params: Tensor[] };

/** What a constructor takes: parameters, or groups with hyperparameters of their own. */
export type Params<H extends Hyperparameters> =
  | Iterable<Tensor>
  | readonly (Partial<H> & { params: Iterable<Tensor> })[];

/**
 * State of one parameter: tensors and numbers, by PyTorch's names (`exp_avg`, `momentum_buffer`).
 */
export type ParamState = Record<string, Tensor | number>;

/** Runs before a step, with the optimizer. */
export type StepHook = (optimizer: Optimizer) => void;

/**
 * State of an optimizer in PyTorch's form and with its names: parameters by position,
 * hyperparameters as `weight_decay`.
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
  /** Hyperparameters of groups that give none of their own. */
  readonly defaults: H;
  private readonly preHooks = new Map<number, StepHook>();
  private readonly postHooks = new Map<number, StepHook>();

  /**
   * @throws ArgumentError for an empty list, for what is not a leaf tensor, and for a parameter
   * given twice
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
        'a list of parameters or of groups',
        params,
      );
    const list = [...(params as Iterable<Tensor | (Partial<H> & { params: Iterable<Tensor> })>)];
    if (list.length === 0)
      throw new ArgumentError(`${this.constructor.name}: the list of parameters is empty`);
    const grouped = !(list[0] instanceof Tensor);
    for (const group of grouped
      ? (list as (Partial<H> & { params: Iterable<Tensor> })[])
      : [{ params: list as Tensor[] }])
      this.addParamGroup(group as Partial<H> & { params: Iterable<Tensor> });
  }

  /** Adds parameters with hyperparameters of their own. @throws ArgumentError */
  addParamGroup(group: Partial<H> & { params: Tensor | Iterable<Tensor> }): void {
    const given: unknown = group?.params;
    if (typeof (given as Iterable<Tensor> | undefined)?.[Symbol.iterator] !== 'function')
      throw unexpected(this.constructor.name, 'the group', 'an object with params', group);
    // A tensor can be iterated over too, so it is asked for first.
    const params = given instanceof Tensor ? [given] : [...(given as Iterable<Tensor>)];
    const known = new Set(this.paramGroups.flatMap((g) => g.params));
    params.forEach((p, i) => {
      if (!(p instanceof Tensor) || !p.isLeaf)
        throw new ArgumentError(
          `${this.constructor.name}: parameter ${i} is not a leaf tensor; only leaves can be optimized`,
        );
      if (known.has(p))
        throw new ArgumentError(
          `${this.constructor.name}: parameter ${i} of the group is in the optimizer already`,
        );
      known.add(p);
    });
    const own = Object.entries(group).filter(([, value]) => value !== undefined);
    const complete = { ...this.defaults, ...Object.fromEntries(own), params } as ParamGroup<H>;
    this.checkGroup(complete);
    this.paramGroups.push(complete);
  }

  /** Applies the gradients. With `closure`, calls it first (gradients on) and returns its value. */
  step(): void;
  step<T>(closure: () => T): T;
  step<T>(closure?: () => T): T | undefined {
    if (closure !== undefined && typeof closure !== 'function')
      throw unexpected(`${this.constructor.name}.step`, 'closure', 'a function', closure);
    for (const hook of this.preHooks.values()) hook(this);
    const loss = closure === undefined ? undefined : enableGrad(closure);
    noGrad(() => {
      for (const group of this.paramGroups) {
        // Groups are plain objects, which anybody may have written into.
        if (!Number.isFinite(group.lr))
          throw unexpected(`${this.constructor.name}.step`, 'lr', 'a finite number', group.lr);
        scope(() => {
          this.stepGroup(group);
        });
      }
    });
    if (memoryRoles.mark !== null) this.markState(memoryRoles.mark);
    for (const hook of this.postHooks.values()) hook(this);
    return loss;
  }

  private markState(mark: NonNullable<typeof memoryRoles.mark>): void {
    for (const values of this.state.values())
      for (const value of Object.values(values))
        if (value instanceof Tensor) mark(value.storage, 'optimizerState');
  }

  /** Runs before every step, closure included. */
  registerStepPreHook(hook: StepHook): HookHandle {
    return addStepHook(this.preHooks, hook);
  }

  /** Runs after every step. */
  registerStepPostHook(hook: StepHook): HookHandle {
    return addStepHook(this.postHooks, hook);
  }

  /** Drops all gradients, or sets them to zero. */
  zeroGrad(...args: ArgumentsOf<typeof zeroGradArguments>): void {
    const setToNone = zeroGradArguments(...args);
    for (const group of this.paramGroups) {
      for (const p of group.params) {
        if (setToNone) setGrad(p, null);
        else p.gradTensor?.detach().zero_();
      }
    }
  }

  /** State and hyperparameters under PyTorch's names; tensors share memory with the optimizer. */
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
   * Copies a state in, one of PyTorch's as well; tensors are converted to each parameter's device,
   * floating ones to its dtype. Nothing is changed if any of it is refused.
   *
   * @throws ArgumentError if groups do not match, for hyperparameters out of range, and for states
   * that are not those of the parameters
   */
  loadStateDict(given: OptimizerStateDict | EarlierOptimizerStateDict): void {
    const op = `${this.constructor.name}.loadStateDict`;
    const { states, groups: saved } = readState(op, given, this.paramGroups, this.stateNames);
    const groups = saved.map(
      ({ params: _params, ...rest }, i) =>
        ({
          ...this.paramGroups[i],
          ...loadedGroup(rest, this.paramGroups[i] as object),
        }) as ParamGroup<H>,
    );
    for (const group of groups) this.checkGroup(group);
    const copies = states.map((state) => [state.param, copyState(state)] as const);
    this.state.clear();
    for (const [param, values] of copies) this.state.set(param, values);
    groups.forEach((group, i) => {
      Object.assign(this.paramGroups[i] as object, group);
    });
  }

  /** One step on a group; inside noGrad and a scope. @internal */
  protected abstract stepGroup(group: ParamGroup<H>): void;

  /** @throws ArgumentError for hyperparameters out of range */
  protected checkGroup(_group: ParamGroup<H>): void {}

  /** Names that the state of a parameter has; null: any. */
  protected get stateNames(): StateNames | null {
    return null;
  }

  /** Zeros like a parameter that live as long as the optimizer. */
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

/**
 * How a step is computed; all ways give the same values up to rounding.
 *
 * `fused` and `foreach` are PyTorch's names for two ways of stepping many parameters at once. Here
 * both are one kernel for all parameters of a dtype and device, which reads each value once;
 * without either it is used too. The loop in plain ops is for debugging, and for graphs that show
 * each op.
 */
export interface StepMode {
  /**
   * True: all parameters at once; false: one parameter at a time in plain ops, unless `fused`.
   * Null, the default, leaves it to `fused`.
   */
  foreach?: boolean | null;
  /**
   * True: all parameters at once; false: as PyTorch, one at a time unless `foreach`. Null, the
   * default, leaves it to `foreach`.
   */
  fused?: boolean | null;
  /** Only false, which PyTorch's states hold: steps are not recorded. */
  differentiable?: false;
}

/**
 * @throws ArgumentError for a step that is to be differentiated, or for both `fused` and `foreach`
 */
export function checkStepMode(
  optimizer: string,
  { foreach, fused, differentiable }: StepMode,
): void {
  checkFlag(optimizer, 'foreach', foreach, { orNull: true });
  checkFlag(optimizer, 'fused', fused, { orNull: true });
  checkFlag(optimizer, 'differentiable', differentiable);
  if (differentiable)
    throw new ArgumentError(
      `${optimizer}: differentiable is not supported; write the update with tensors to differentiate through it`,
      { differentiable },
    );
  if (fused && foreach)
    throw new ArgumentError(`${optimizer}: fused and foreach cannot both be true`, {
      fused,
      foreach,
    });
}

/**
 * @throws ArgumentError for a rate below 0, but for one that a schedule has set: what a run has
 * stepped with, it goes on from
 */
export function checkRate(
  optimizer: string,
  { lr, initialLr }: { lr?: unknown; initialLr?: unknown },
): void {
  checkNumber(optimizer, 'lr', lr, initialLr === undefined ? { from: 0 } : {});
}

/** Whether a step goes through the parameters one by one, in plain ops. */
export function isPlainLoop({ foreach, fused }: StepMode): boolean {
  return !fused && !foreach && (foreach === false || fused === false);
}

/**
 * Parameters that have a gradient, in groups that one command can take: of one dtype and device.
 */
export function withGradients(params: readonly Tensor[]): Tensor[][] {
  const groups = new Map<string, Tensor[]>();
  for (const p of params) {
    if (p.gradTensor === null) continue;
    const key = `${p.dtype.name} ${p.device}`;
    const group = groups.get(key);
    if (group) group.push(p);
    else groups.set(key, [p]);
  }
  return [...groups.values()];
}
