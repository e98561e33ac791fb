/** Optimizer state as a program keeps it: checked before any of it is taken up, and copied to the parameters' device and dtype. */
import { noGrad } from '../autograd/grad-mode.js';
import { ArgumentError } from '../core/errors.js';
import { keep } from '../core/keep.js';
import { checkNumber, unexpected } from '../core/options.js';
import { formatShape, sameShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import type { OptimizerStateDict, ParamState } from './optimizer.js';

type Group = { params: readonly Tensor[] };

/** Which parameter a state is for, and its values. */
export interface PlacedState {
  where: string;
  group: number;
  param: Tensor;
  values: ParamState;
}

/** The states of a state dict with the parameters they are for. @throws ArgumentError if its groups are not those of the optimizer */
export function placeStates(op: string, given: OptimizerStateDict, groups: readonly Group[]): PlacedState[] {
  if (typeof given !== 'object' || given === null || !Array.isArray(given.paramGroups)) throw unexpected(op, 'the state', 'an object with state and paramGroups', given);
  if (typeof given.state !== 'object' || given.state === null) throw unexpected(op, 'state', 'an object', given.state);
  given.paramGroups.forEach((group, i) => {
    if (typeof group !== 'object' || group === null || !Array.isArray(group.params)) throw unexpected(op, `group ${i}`, 'an object with params', group);
  });
  const sizes = (list: readonly { params: readonly unknown[] }[]): string => list.map((g) => g.params.length).join(', ');
  if (sizes(given.paramGroups) !== sizes(groups)) {
    throw new ArgumentError(`${op}: the state has groups of ${sizes(given.paramGroups)} parameters, the optimizer of ${sizes(groups)}`, { op });
  }
  const places = new Map<string, { group: number; param: Tensor }>();
  groups.forEach(({ params }, group) => {
    params.forEach((param, i) => {
      const id = String(given.paramGroups[group]?.params[i]);
      if (places.has(id)) throw new ArgumentError(`${op}: parameter ${id} is in the groups of the state twice`, { op, id });
      places.set(id, { group, param });
    });
  });
  return Object.entries(given.state).map(([id, values]) => {
    const place = places.get(id);
    if (place === undefined) throw new ArgumentError(`${op}: there is a state for parameter ${id}, which no group has`, { op, id });
    if (typeof values !== 'object' || values === null) throw unexpected(op, `the state of parameter ${id}`, 'an object', values);
    return { where: `the state of parameter ${id}`, ...place, values };
  });
}

/** Names of the tensors of a state, each of its parameter's shape. */
export interface StateNames {
  required: readonly string[];
  optional: readonly string[];
  /** Whether steps are counted. */
  step: boolean;
}

/** @throws ArgumentError for a name that is missing or unknown, for a shape that is not the parameter's, for a count that is none */
export function checkParamState(op: string, { where, param, values }: PlacedState, { required, optional, step }: StateNames): void {
  const known = [...(step ? ['step'] : []), ...required, ...optional];
  for (const name of Object.keys(values)) {
    if (!known.includes(name)) throw new ArgumentError(`${op}: ${where} has "${name}", which is none of ${known.join(', ')}`, { op, name });
  }
  if (step) checkNumber(op, `step in ${where}`, numberOf(values['step']), { from: 0, whole: true });
  for (const name of [...required, ...optional]) {
    const value = values[name] as Tensor | number | null | undefined;
    if (optional.includes(name) && (value === undefined || value === null)) continue;
    if (!(value instanceof Tensor)) throw unexpected(op, `${name} in ${where}`, 'a tensor', value);
    if (!sameShape(value.shape, param.shape)) throw unexpected(op, `${name} in ${where}`, `of shape ${formatShape(param.shape)}`, value.shape);
  }
}

/** A copy on the parameter's device; floating tensors in its dtype, as PyTorch has them. */
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
  const dtype = value.dtype.isFloatingPoint && param.dtype.isFloatingPoint ? param.dtype : value.dtype;
  const moved = value.detach().to({ dtype, device: param.device });
  return keep(moved.storage === value.storage ? moved.clone() : moved);
}

/** PyTorch counts steps in tensors of one element. */
function numberOf(value: unknown): unknown {
  return value instanceof Tensor && value.numel() === 1 ? Number(value.item()) : value;
}
