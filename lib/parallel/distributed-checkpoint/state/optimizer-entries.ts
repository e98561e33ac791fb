/**
 * The state of an optimizer by the names of its parameters, so that it fits any number of ranks and
 * any order of parameters.
 */

import { decodeValue } from '../../../checkpoint/state/json-values.js';
import {
  ArgumentError,
  CheckpointError,
  type DTypeLike,
  noGrad,
  type optim,
  Tensor,
} from '../../../index.js';
import type { CheckpointIndex } from '../checkpoint-index.js';
import type { StateEntries } from './state-entries.js';
import { targetLike } from './targets.js';

type Group = Record<string, unknown> & { params: string[] };

/** Where the name of the class of an optimizer is; checkpoints of earlier versions lack it. */
const classPath = (path: string): string => `${path}.class`;

/** Adds the entries of an optimizer to those of a state. */
export function optimizerEntries(
  entries: StateEntries,
  path: string,
  optimizer: optim.Optimizer,
): void {
  const names = namesOf(entries, path, optimizer);
  const groups = groupsOf(optimizer, names);
  entries.checks.push(() => checkShapes(entries, path, names));
  if (entries.saved !== null) {
    addTargets(entries, entries.saved, path, optimizer, names);
    return;
  }
  entries.addValue(classPath(path), { value: optimizer.constructor.name, set: () => {} });
  groups.forEach((group, i) => {
    entries.addValue(`${path}.param_groups.${i}`, { value: group, set: () => {} });
  });
  for (const [parameter, state] of optimizer.state)
    for (const [key, value] of Object.entries(state)) {
      const full = `${path}.state.${names.get(parameter)}.${key}`;
      if (value instanceof Tensor) entries.addTensor(full, value);
      else entries.addValue(full, { value, set: () => {} });
    }
}

/**
 * A wrapper may give whole tensors as its state, while its parameters are what a rank has of a flat
 * one. Then only the wrapper knows what state belongs to which name.
 */
function checkShapes(
  { tensors, parameterNames, op }: StateEntries,
  path: string,
  names: ReadonlyMap<Tensor, string>,
): void {
  for (const [parameter, name] of names) {
    if (!parameterNames.has(parameter)) continue;
    const saved = tensors.get(name);
    if (saved?.shape.join() === parameter.shape.join()) continue;
    const has = saved === undefined ? 'not' : `as [${saved.shape.join(', ')}]`;
    throw new ArgumentError(
      `${op}: "${path}" trains "${name}" of shape [${parameter.shape.join(', ')}], which the ` +
        `state of its module has ${has}: flat parameters of FullyShardedDataParallel. Use ` +
        'fullyShard to save optimizers of sharded modules.',
      { op, path, parameter: name },
    );
  }
}

/** The name of each parameter: that of the module in the same state, or its number. */
function namesOf(
  { parameterNames, op }: StateEntries,
  path: string,
  optimizer: optim.Optimizer,
): Map<Tensor, string> {
  const names = new Map<Tensor, string>();
  let number = 0;
  for (const { params } of optimizer.paramGroups)
    for (const parameter of params)
      names.set(parameter, parameterNames.get(parameter) ?? `${number++}`);
  if (number > 0 && number < names.size)
    throw new ArgumentError(
      `${op}: ${number} of the ${names.size} parameters of "${path}" belong to no module of the ` +
        'state, so they have no names. Put all modules that it trains into the state.',
      { op, path },
    );
  return names;
}

function groupsOf(optimizer: optim.Optimizer, names: ReadonlyMap<Tensor, string>): Group[] {
  const saved = optimizer.stateDict().param_groups;
  return optimizer.paramGroups.map(({ params }, i) => ({
    ...withNumbers(saved[i] as object),
    params: params.map((parameter) => names.get(parameter) as string),
  }));
}

/** Rates may be tensors of one element; a checkpoint has their values. */
const withNumbers = (group: object): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(group).map(([name, value]) => [
      name,
      value instanceof Tensor ? value.item() : value,
    ]),
  );

/** Loads the states of parameters in place where there are some, and else into new tensors. */
function addTargets(
  entries: StateEntries,
  saved: CheckpointIndex,
  path: string,
  optimizer: optim.Optimizer,
  names: ReadonlyMap<Tensor, string>,
): void {
  const states = addStates(entries, saved, path, optimizer, names);
  if (saved.values[classPath(path)] !== undefined)
    entries.addValue(classPath(path), { value: null, set: () => {} });
  checkSameOptions(entries.op, saved, path, optimizer);
  const groups = addGroups(entries, saved, path, optimizer, names);
  const isSaved = optimizer.paramGroups.some(
    (_, i) => savedGroup(saved, `${path}.param_groups.${i}`) !== null,
  );
  if (!isSaved) return;
  entries.finish.push(() => {
    const numbered = groups.map((group, i) => ({
      ...group,
      params: group.params.map((_, at) => `${i}.${at}` as unknown as number),
    }));
    optimizer.loadStateDict({ state: {}, param_groups: numbered });
    for (const [parameter, state] of states) optimizer.state.set(parameter, state);
  });
}

type State = Record<string, Tensor | number>;

/** Adds the saved values of parameters. Returns the states that loading fills. */
function addStates(
  entries: StateEntries,
  saved: CheckpointIndex,
  path: string,
  optimizer: optim.Optimizer,
  names: ReadonlyMap<Tensor, string>,
): ReadonlyMap<Tensor, State> {
  const before = new Map(optimizer.state);
  const byName = new Map([...names].map(([parameter, name]) => [name, parameter]));
  const states = new Map<Tensor, State>();
  const prefix = `${path}.state.`;
  const placeOf = (full: string): [State, string, Tensor] | null => {
    if (!full.startsWith(prefix)) return null;
    const end = full.lastIndexOf('.');
    const parameter = byName.get(full.slice(prefix.length, end));
    if (parameter === undefined) return null; // reported as unexpected
    const state = states.get(parameter) ?? {};
    states.set(parameter, state);
    return [state, full.slice(end + 1), parameter];
  };
  for (const [full, { shape, dtype }] of Object.entries(saved.tensors)) {
    const place = placeOf(full);
    if (place === null) continue;
    const [state, key, parameter] = place;
    const known = before.get(parameter)?.[key];
    const given = known instanceof Tensor ? known : undefined;
    state[key] = noGrad(() => targetLike(given, shape, dtype as DTypeLike, parameter));
    entries.addTensor(full, state[key] as Tensor);
  }
  for (const full of Object.keys(saved.values)) {
    const place = placeOf(full);
    if (place === null) continue;
    const [state, key] = place;
    const set = (value: unknown): void => {
      state[key] = value as number;
    };
    entries.addValue(full, { value: 0, set });
  }
  return states;
}

/** Adds the options of groups, which must have the parameters that they have here. */
function addGroups(
  entries: StateEntries,
  saved: CheckpointIndex,
  path: string,
  optimizer: optim.Optimizer,
  names: ReadonlyMap<Tensor, string>,
): Group[] {
  return optimizer.paramGroups.map(({ params }, i) => {
    const full = `${path}.param_groups.${i}`;
    entries.addValue(full, { value: null, set: () => {} });
    const own = params.map((parameter) => names.get(parameter) as string);
    const group = savedGroup(saved, full) ?? { params: own };
    checkSameParameters(entries.op, full, own, group.params);
    return group;
  });
}

/** Null if the checkpoint has no such group, which is reported with all that is missing. */
function savedGroup(saved: CheckpointIndex, full: string): Group | null {
  const found = saved.values[full];
  const group = found !== undefined && 'value' in found ? decodeValue(found.value) : null;
  return Array.isArray((group as Group | null)?.params) ? (group as Group) : null;
}

/** Entries of groups that do not make an optimizer what it is. */
const NO_OPTIONS: ReadonlySet<string> = new Set(['params', 'initial_lr', 'capturable']);

/** The options of a group that make an optimizer what it is; schedules add one. */
const optionsOf = (group: object): string[] =>
  Object.keys(group).filter((name) => !NO_OPTIONS.has(name));

/** @throws CheckpointError if the checkpoint has the state of an optimizer with other options */
function checkSameOptions(
  op: string,
  saved: CheckpointIndex,
  path: string,
  optimizer: optim.Optimizer,
): void {
  const group = savedGroup(saved, `${path}.param_groups.0`);
  const [first] = optimizer.stateDict().param_groups;
  const name = saved.values[classPath(path)];
  const savedName = name !== undefined && 'value' in name ? String(name.value) : null;
  const ownName = optimizer.constructor.name;
  if (group === null || first === undefined || savedName === ownName) return;
  const [own, other] = [optionsOf(first), optionsOf(group)];
  const lacks = (a: readonly string[], b: readonly string[]): boolean =>
    b.some((option) => !a.includes(option));
  // Earlier versions of a class may have had fewer options.
  if (!lacks(other, own) && (savedName === null || !lacks(own, other))) return;
  throw new CheckpointError(
    `${op}: "${path}" is ${ownName} with the options ${own.join(', ')}, and the checkpoint has ` +
      `the state of ${savedName ?? 'an optimizer'} with the options ${other.join(', ')} and the ` +
      `states ${savedStates(saved, path).join(', ') || '(none)'}. Load it into such an ` +
      `optimizer, or leave "${path}" out of the state and pass { strict: false }.`,
    { op, path, optimizer: ownName, saved: savedName },
  );
}

/** The names of the states of parameters in a checkpoint. */
function savedStates(saved: CheckpointIndex, path: string): string[] {
  const names = [...Object.keys(saved.tensors), ...Object.keys(saved.values)]
    .filter((full) => full.startsWith(`${path}.state.`))
    .map((full) => full.slice(full.lastIndexOf('.') + 1));
  return [...new Set(names)].sort();
}

/** @throws CheckpointError if a group has other parameters than the saved one */
function checkSameParameters(
  op: string,
  full: string,
  own: readonly string[],
  saved: readonly string[],
): void {
  const added = own.find((name) => !saved.includes(name));
  const other = added ?? saved.find((name) => !own.includes(name));
  if (other === undefined) return;
  throw new CheckpointError(
    `${op}: "${full}" has other parameters than in the checkpoint: "${other}" is only in ` +
      `${added === undefined ? 'the checkpoint' : 'the optimizer'}`,
    { op, path: full, parameter: other },
  );
}
