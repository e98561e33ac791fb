/**
 * Saves and loads optimizer states under PyTorch's names. A state is checked as a whole before any
 * entry is copied, so a state that is refused changes nothing.
 */
import { noGrad } from '../autograd/grad-mode.js';
import { ArgumentError } from '../core/errors.js';
import { camelCase, snakeCase } from '../core/name-case.js';
import { checkNumber, unexpected } from '../core/options.js';
import { keep } from '../core/scope.js';
import { formatShape, sameShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { countsByTensors } from './capturable.js';
import type { OptimizerStateDict, ParamState } from './optimizer.js';

type Group = { params: readonly Tensor[] };

/** The state of one parameter, with the parameter that it belongs to. */
export interface PlacedState {
  where: string;
  group: number;
  param: Tensor;
  values: ParamState;
}

/** States of earlier versions, which have JavaScript's names (`weightDecay`, `expAvg`). */
export interface EarlierOptimizerStateDict {
  state: Record<number, ParamState>;
  paramGroups: (Record<string, unknown> & { params: number[] })[];
}

type SavedGroup = OptimizerStateDict['param_groups'][number];

/** Hyperparameters of a group under PyTorch's names. */
export function savedGroup(group: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(group).map(([name, value]) => [snakeCase(name), value]));
}

/** Names of earlier versions that differ from the current ones in more than their case. */
const earlierNames: Readonly<Record<string, string>> = { decoupled: 'decoupledWeightDecay' };

/**
 * Hyperparameters of a saved group in camelCase. A name that `own` has as it is stays unchanged. A
 * rate that is a tensor is copied if the group can have one, and else read.
 */
export function loadedGroup(saved: Record<string, unknown>, own: object): Record<string, unknown> {
  const loaded: Record<string, unknown> = Object.fromEntries(
    Object.entries(saved).map(([name, value]) => [
      Object.hasOwn(own, name) ? name : (earlierNames[name] ?? camelCase(name)),
      name === 'lr' ? value : numberOf(value),
    ]),
  );
  const { lr } = loaded;
  if (!(lr instanceof Tensor)) return loaded;
  const tensors = countsByTensors({ ...own, ...loaded });
  return { ...loaded, lr: tensors ? keep(lr.detach().clone()) : numberOf(lr) };
}

/** The groups of a state dict. @throws ArgumentError if they are missing or given twice */
function groupsOf(op: string, given: OptimizerStateDict | EarlierOptimizerStateDict): SavedGroup[] {
  const { param_groups, paramGroups } = (given ?? {}) as Partial<
    OptimizerStateDict & EarlierOptimizerStateDict
  >;
  if (param_groups !== undefined && paramGroups !== undefined)
    throw new ArgumentError(
      `${op}: the state has both param_groups and paramGroups; leave out one`,
      { op },
    );
  const groups = param_groups ?? paramGroups;
  if (typeof given !== 'object' || given === null || !Array.isArray(groups))
    throw unexpected(op, 'the state', 'an object with state and param_groups', given);
  groups.forEach((group, i) => {
    if (typeof group !== 'object' || group === null || !Array.isArray(group.params))
      throw unexpected(op, `group ${i}`, 'an object with params', group);
  });
  return groups;
}

/**
 * Assigns the states of a state dict to the parameters of the optimizer.
 *
 * @throws ArgumentError if the groups or states do not match those of the optimizer
 */
export function readState(
  op: string,
  given: OptimizerStateDict | EarlierOptimizerStateDict,
  groups: readonly Group[],
  names: StateNames | null,
): { states: PlacedState[]; groups: SavedGroup[] } {
  const saved = groupsOf(op, given);
  if (typeof given.state !== 'object' || given.state === null)
    throw unexpected(op, 'state', 'an object', given.state);
  const states = placeStates(op, given.state, saved, groups);
  if (names === null) return { states, groups: saved };
  const renamed = states.map((state) => ({
    ...state,
    values: withCurrentNames(state.values, names),
  }));
  for (const state of renamed) checkParamState(op, state, names);
  return { states: renamed, groups: saved };
}

/** Renames the entries of earlier versions, which have JavaScript's names. */
function withCurrentNames(values: ParamState, { required, optional }: StateNames): ParamState {
  const present = new Map([...required, ...optional].map((name) => [camelCase(name), name]));
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [present.get(name) ?? name, value]),
  );
}

function placeStates(
  op: string,
  state: Record<number, ParamState>,
  saved: readonly SavedGroup[],
  groups: readonly Group[],
): PlacedState[] {
  const sizes = (list: readonly { params: readonly unknown[] }[]): string =>
    list.map((g) => g.params.length).join(', ');
  if (sizes(saved) !== sizes(groups)) {
    throw new ArgumentError(
      `${op}: the state has groups of ${sizes(saved)} parameters, the optimizer of ` +
        `${sizes(groups)}`,
      { op },
    );
  }
  const places = new Map<string, { group: number; param: Tensor }>();
  groups.forEach(({ params }, group) => {
    params.forEach((param, i) => {
      const id = String(saved[group]?.params[i]);
      if (places.has(id))
        throw new ArgumentError(`${op}: parameter ${id} is in the groups of the state twice`, {
          op,
          id,
        });
      places.set(id, { group, param });
    });
  });
  return Object.entries(state).map(([id, values]) => {
    const place = places.get(id);
    if (place === undefined)
      throw new ArgumentError(`${op}: there is a state for parameter ${id}, which no group has`, {
        op,
        id,
      });
    if (typeof values !== 'object' || values === null)
      throw unexpected(op, `the state of parameter ${id}`, 'an object', values);
    return { where: `the state of parameter ${id}`, ...place, values };
  });
}

/** Names of the tensors in the state of a parameter; each has the parameter's shape. */
export interface StateNames {
  required: readonly string[];
  optional: readonly string[];
  /** Whether steps are counted: always, never, or by capturable steps only. */
  step: boolean | 'optional';
}

/** What a state needs that went through JSON. */
const NO_JSON =
  'a tensor (JSON keeps none: use saveCheckpoint(file, { model, optimizer }) and loadCheckpoint)';

/** @throws ArgumentError if a name is missing or unknown, a shape differs, or a count is wrong */
function checkParamState(
  op: string,
  { where, param, values }: PlacedState,
  { required, optional, step }: StateNames,
): void {
  const known = [...(step ? ['step'] : []), ...required, ...optional];
  for (const name of Object.keys(values)) {
    if (!known.includes(name))
      throw new ArgumentError(`${op}: ${where} has "${name}"; expected only ${known.join(', ')}`, {
        op,
        name,
      });
  }
  if (step === true || values['step'] !== undefined)
    checkNumber(op, `step in ${where}`, numberOf(values['step']), { from: 0, whole: true });
  for (const name of [...required, ...optional]) {
    const value = values[name] as Tensor | number | null | undefined;
    if (optional.includes(name) && (value === undefined || value === null)) continue;
    if (!(value instanceof Tensor))
      throw unexpected(
        op,
        `${name} in ${where}`,
        Array.isArray(value) ? NO_JSON : 'a tensor',
        value,
      );
    if (!sameShape(value.sizes, param.sizes))
      throw unexpected(
        op,
        `${name} in ${where}`,
        `of shape ${formatShape(param.sizes)}`,
        value.sizes,
      );
  }
}

/** Copies a state to the parameter's device, and floating tensors to its dtype, as PyTorch does. */
export function copyState({ param, values }: PlacedState): ParamState {
  const copies: ParamState = {};
  noGrad(() => {
    for (const [name, value] of Object.entries(values) as [string, Tensor | number | null][]) {
      if (name === 'step') copies[name] = numberOf(value) as number;
      else if (value instanceof Tensor) copies[name] = copyTensor(value, param);
      else if (value !== null && value !== undefined) copies[name] = value;
    }
  });
  return copies;
}

function copyTensor(value: Tensor, param: Tensor): Tensor {
  const dtype =
    value.dtype.isFloatingPoint && param.dtype.isFloatingPoint ? param.dtype : value.dtype;
  const moved = value.detach().to({ dtype, device: param.device });
  return keep(moved.storage === value.storage ? moved.clone() : moved);
}

/** Reads a number, which PyTorch may save as a tensor of one element. */
function numberOf(value: unknown): unknown {
  return value instanceof Tensor && value.numel() === 1 ? Number(value.item()) : value;
}
