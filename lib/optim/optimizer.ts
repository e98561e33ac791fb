/** Base of optimizers: parameter groups, state, and what every step shares. */
import { enableGrad, noGrad } from '../autograd/grad-mode.js';
import type { HookHandle } from '../autograd/node.js';
import { ArgumentError } from '../core/errors.js';
import { keep } from '../core/keep.js';
import { scope } from '../core/scope.js';
import { setGrad, Tensor } from '../core/tensor.js';

/** Hyperparameters of a group, beside its parameters. */
export type Hyperparameters = Record<string, unknown>;

/** Parameters that share hyperparameters. */
export type ParamGroup<H extends Hyperparameters> = H & { params: Tensor[] };

/** What a constructor takes: parameters, or groups with hyperparameters of their own. */
export type Params<H extends Hyperparameters> = Iterable<Tensor> | readonly (Partial<H> & { params: Iterable<Tensor> })[];

/** State of one parameter: tensors and numbers by name. */
export type ParamState = Record<string, Tensor | number>;

/** Runs before a step, with the optimizer. */
export type StepHook = (optimizer: Optimizer) => void;

/** State of an optimizer in PyTorch's form: parameters by position. */
export interface OptimizerStateDict {
  state: Record<number, ParamState>;
  paramGroups: (Hyperparameters & { params: number[] })[];
}

/**
 * Base class of optimizers.
 *
 * @see PyTorch `torch.optim.Optimizer`
 */
export abstract class Optimizer<H extends Hyperparameters = Hyperparameters> {
  readonly paramGroups: ParamGroup<H>[] = [];
  readonly state = new Map<Tensor, ParamState>();
  /** Hyperparameters of groups that give none of their own. */
  readonly defaults: H;
  private readonly preHooks = new Map<number, StepHook>();
  private readonly postHooks = new Map<number, StepHook>();

  /** @throws ArgumentError for an empty list, for what is not a leaf tensor, and for a parameter given twice */
  constructor(params: Params<H>, defaults: H) {
    this.defaults = defaults;
    if (params instanceof Tensor) throw new ArgumentError(`${this.constructor.name}: expected a list of parameters or of groups, got one tensor`);
    const list = [...(params as Iterable<Tensor | (Partial<H> & { params: Iterable<Tensor> })>)];
    if (list.length === 0) throw new ArgumentError(`${this.constructor.name}: the list of parameters is empty`);
    const grouped = !(list[0] instanceof Tensor);
    for (const group of grouped ? (list as (Partial<H> & { params: Iterable<Tensor> })[]) : [{ params: list as Tensor[] }])
      this.addParamGroup(group as Partial<H> & { params: Iterable<Tensor> });
  }

  /** Adds parameters with hyperparameters of their own. @throws ArgumentError */
  addParamGroup(group: Partial<H> & { params: Iterable<Tensor> }): void {
    const params = [...group.params];
    const known = new Set(this.paramGroups.flatMap((g) => g.params));
    params.forEach((p, i) => {
      if (!(p instanceof Tensor) || !p.isLeaf) throw new ArgumentError(`${this.constructor.name}: parameter ${i} is not a leaf tensor; only leaves can be optimized`);
      if (known.has(p)) throw new ArgumentError(`${this.constructor.name}: parameter ${i} of the group is in the optimizer already`);
      known.add(p);
    });
    const complete = { ...this.defaults, ...group, params } as ParamGroup<H>;
    this.checkGroup(complete);
    this.paramGroups.push(complete);
  }

  /** Applies the gradients. With `closure`, calls it first (gradients on) and returns its value. */
  step(): void;
  step<T>(closure: () => T): T;
  step<T>(closure?: () => T): T | undefined {
    for (const hook of this.preHooks.values()) hook(this);
    const loss = closure === undefined ? undefined : enableGrad(closure);
    noGrad(() => {
      for (const group of this.paramGroups) {
        scope(() => {
          this.stepGroup(group);
        });
      }
    });
    for (const hook of this.postHooks.values()) hook(this);
    return loss;
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
  zeroGrad({ setToNone = true } = {}): void {
    for (const group of this.paramGroups) {
      for (const p of group.params) {
        if (setToNone) setGrad(p, null);
        else p.gradTensor?.detach().zero_();
      }
    }
  }

  /** State and hyperparameters; tensors share memory with the optimizer. */
  stateDict(): OptimizerStateDict {
    const index = new Map(this.paramGroups.flatMap((g) => g.params).map((p, i) => [p, i]));
    const state: Record<number, ParamState> = {};
    for (const [p, values] of this.state) state[index.get(p) as number] = { ...values };
    return { state, paramGroups: this.paramGroups.map(({ params, ...rest }) => ({ ...rest, params: params.map((p) => index.get(p) as number) })) };
  }

  /** Copies a state in; tensors are converted to each parameter's device. @throws ArgumentError if groups do not match */
  loadStateDict(given: OptimizerStateDict): void {
    const sizes = (groups: readonly { params: readonly unknown[] }[]): string => groups.map((g) => g.params.length).join(', ');
    if (sizes(given.paramGroups) !== sizes(this.paramGroups)) {
      throw new ArgumentError(`loadStateDict: the state has groups of ${sizes(given.paramGroups)} parameters, the optimizer of ${sizes(this.paramGroups)}`);
    }
    const own = this.paramGroups.flatMap((g) => g.params);
    const order = given.paramGroups.flatMap((g) => g.params);
    this.state.clear();
    order.forEach((id, i) => {
      const values = given.state[id];
      const p = own[i] as Tensor;
      if (values !== undefined)
        this.state.set(
          p,
          noGrad(() => copyState(values, p)),
        );
    });
    given.paramGroups.forEach(({ params: _params, ...rest }, i) => {
      Object.assign(this.paramGroups[i] as object, rest);
    });
  }

  /** One step on a group; inside noGrad and a scope. @internal */
  protected abstract stepGroup(group: ParamGroup<H>): void;

  /** @throws ArgumentError for hyperparameters out of range */
  protected checkGroup(_group: ParamGroup<H>): void {}

  /** Zeros like a parameter that live as long as the optimizer. */
  protected zerosFor(p: Tensor): Tensor {
    return keep(p.detach().zerosLike());
  }
}

let nextHook = 0;

function addStepHook(hooks: Map<number, StepHook>, hook: StepHook): HookHandle {
  const id = nextHook++;
  hooks.set(id, hook);
  return { remove: () => void hooks.delete(id) };
}

function copyState(values: ParamState, p: Tensor): ParamState {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [
      name,
      value instanceof Tensor ? (value.ndim === 0 && name === 'step' ? Number(value.item()) : keep(value.detach().clone().to(p.device))) : value,
    ]),
  );
}

/** @throws ArgumentError naming the hyperparameter */
export function checkRange(optimizer: string, name: string, value: unknown, low: number, high = Number.POSITIVE_INFINITY): void {
  if (typeof value !== 'number' || !(value >= low && value < high)) {
    throw new ArgumentError(`${optimizer}: ${name} must be a number from ${low} to ${high}, got ${String(value)}`, { [name]: value });
  }
}

/** How a step is computed. */
export interface StepMode {
  /** False: one parameter at a time in plain ops. */
  foreach?: boolean | null;
  /** One command for all parameters; the default. */
  fused?: boolean | null;
  /** Not supported: steps are not recorded. */
  differentiable?: boolean;
}

/** @throws ArgumentError for a step that is to be differentiated, or for both `fused` and `foreach` */
export function checkStepMode(optimizer: string, { foreach, fused, differentiable }: StepMode): void {
  if (differentiable) throw new ArgumentError(`${optimizer}: differentiable is not supported; write the update with tensors to differentiate through it`, { differentiable });
  if (fused && foreach) throw new ArgumentError(`${optimizer}: fused and foreach cannot both be true`, { fused, foreach });
}

/** Parameters that have a gradient, in groups that one command can take: of one dtype and device. */
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
