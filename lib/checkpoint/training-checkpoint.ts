/** A training run in one file: modules, optimizers, schedules, plain values, random numbers. */
import { ArgumentError, CheckpointError } from '../core/errors.js';
import { checkFlag, optionsOf, unexpected } from '../core/options.js';
import { currentGenerator, Generator, getRngState, type RngState } from '../core/random.js';
import { formatShape, sameShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { SafetensorsFile } from './load.js';
import { checkPath, saveSafetensors } from './save.js';
import {
  type Change,
  makeAll,
  randomChange,
  stateChange,
  tensorChange,
  valueChange,
} from './state/changes.js';
import { decodeValue, encodeValue } from './state/json-values.js';
import { isRecord, isStateful, joined, refuseCycles } from './state/paths.js';
import { withoutTensors, withTensors } from './state/tensor-places.js';
import type { CheckpointState } from './state/values.js';

/** Where the metadata of a file has the values that are no tensors. */
const KEY = 'shardwise.checkpoint';

/** What the metadata holds. */
interface Saved {
  readonly state: Readonly<Record<string, unknown>>;
  readonly random: RngState;
}

/** Options of {@link loadCheckpoint}. */
export interface LoadCheckpointOptions {
  /** Whether the file and the state must have the same names. True by default. */
  strict?: boolean;
  /** Whether random numbers go on from where they were. True by default. */
  rng?: boolean;
}

/**
 * Saves a run as one safetensors file: replaced as a whole, so that a crash leaves the file before.
 * The state of random numbers is saved, too. Sharded runs use `distributedCheckpoint` or
 * `Checkpointer`.
 *
 * @param state - modules, optimizers, schedules, scalers and other objects with `stateDict`,
 * tensors, and plain values, in nested objects
 * @throws ArgumentError for a value that cannot be saved; CheckpointError if the file cannot be
 * written, or a tensor is distributed
 * @see PyTorch `torch.save` of a dictionary of state dicts
 * @example
 * await saveCheckpoint('run.safetensors', { model, optimizer, schedule, step });
 */
export async function saveCheckpoint(file: string, state: CheckpointState): Promise<void> {
  const op = 'saveCheckpoint';
  checkPath(op, file);
  requireState(op, state);
  refuseCycles(op, state);
  const tensors = new Map<string, Tensor>();
  const values = encodeValue(withoutTensors(statesOf(op, state, ''), '', tensors));
  for (const [name, tensor] of tensors) requireOwn(op, name, tensor);
  const saved = { state: values, random: encodeValue(getRngState()) };
  await saveSafetensors(file, Object.fromEntries(tensors), {
    metadata: { [KEY]: JSON.stringify(saved) },
  });
}

/**
 * Loads a file of {@link saveCheckpoint} into a state and returns the state: objects take theirs by
 * `loadStateDict`, tensors are filled in place, plain values are set.
 *
 * If it throws, the state and random numbers are as before.
 *
 * @throws CheckpointError if there is no such file, it is damaged, or it has other names or shapes
 * than the state; what an object of the program throws in its `loadStateDict`
 * @see PyTorch `torch.load`
 * @example
 * const state = { model, optimizer, schedule, step: 0 };
 * const { step } = await loadCheckpoint('run.safetensors', state);
 */
export async function loadCheckpoint<S extends CheckpointState>(
  file: string,
  state: S,
  options: LoadCheckpointOptions = {},
): Promise<S> {
  const op = 'loadCheckpoint';
  checkPath(op, file);
  requireState(op, state);
  const { strict = true, rng = true } = optionsOf(op, options, 'strict rng');
  checkFlag(op, 'strict', strict);
  checkFlag(op, 'rng', rng);
  const saved = await read(file);
  const changes: Change[] = [];
  match({ file, strict, changes }, '', state, saved.state);
  if (rng) changes.push(randomChange(saved.random, currentGenerator()));
  makeAll(changes);
  return state;
}

async function read(path: string): Promise<Saved> {
  const file = await SafetensorsFile.open(path);
  try {
    const text = file.metadata[KEY];
    if (text === undefined)
      throw new CheckpointError(
        `${path}: expected a file of saveCheckpoint, got one without the state of a run; ` +
          'loadSafetensors reads its tensors',
        { file: path },
      );
    const tensors = new Map<string, Tensor>();
    for (const name of file.iterateNames()) tensors.set(name, await file.get(name));
    const { state, random } = JSON.parse(text) as Record<keyof Saved, unknown>;
    return {
      state: withTensors(decodeValue(state), tensors) as Saved['state'],
      random: decodeValue(random) as RngState,
    };
  } finally {
    await file.close();
  }
}

/** The state with the state dicts of its objects in their places. */
function statesOf(op: string, value: unknown, path: string): unknown {
  if (value instanceof Generator) return value.getState();
  if (isStateful(value)) {
    const own = value.stateDict();
    refuseCycles(op, own, path);
    return own;
  }
  if (value instanceof Tensor) return value;
  if (Array.isArray(value)) return value.map((each, i) => statesOf(op, each, joined(path, `${i}`)));
  if (isRecord(value))
    return Object.fromEntries(
      Object.entries(value).map(([name, each]) => [name, statesOf(op, each, joined(path, name))]),
    );
  if (encodeValue(value) === undefined)
    throw unexpected(
      op,
      `"${path}" of the state`,
      'a tensor, a plain value or an object with stateDict and loadStateDict',
      value,
    );
  return value;
}

interface Loading {
  readonly file: string;
  readonly strict: boolean;
  /** What is changed when all of the state matches. */
  readonly changes: Change[];
}

type Members = Record<string, unknown>;

/** Compares the members of an object or a list with the saved ones, and adds what loads them. */
function match(loading: Loading, path: string, target: object, saved: object): void {
  const [own, given] = [target as Members, saved as Members];
  if (loading.strict) checkNames(loading.file, path, own, given);
  for (const name of Object.keys(own))
    if (Object.hasOwn(given, name))
      matchMember(loading, joined(path, name), own, name, given[name]);
}

/** @throws CheckpointError if the file or the state has names that the other has not */
function checkNames(file: string, path: string, own: Members, given: Members): void {
  const lacking = (a: Members, b: Members): string[] =>
    Object.keys(b)
      .filter((name) => !Object.hasOwn(a, name))
      .map((name) => joined(path, name));
  const [missing, extra] = [lacking(given, own), lacking(own, given)];
  if (missing.length + extra.length === 0) return;
  const differences = [
    ...listed('missing in the file', missing),
    ...listed('missing in the state', extra),
  ];
  throw new CheckpointError(
    `${file}: the checkpoint and the state differ: ${differences.join('; ')}. Give a state of ` +
      'the same names, or { strict: false }.',
    { file, missing, extra },
  );
}

function matchMember(
  loading: Loading,
  path: string,
  own: Members,
  name: string,
  loaded: unknown,
): void {
  const { file, changes } = loading;
  const value = own[name];
  if (value instanceof Generator) changes.push(randomChange(loaded as RngState, value));
  else if (isStateful(value)) changes.push(stateChange(value, loaded));
  else if (value instanceof Tensor) changes.push(filling(file, path, value, loaded));
  else if (isContainer(value) && isContainer(loaded)) match(loading, path, value, loaded);
  else changes.push(valueChange(own, name, loaded));
}

/** Objects and lists that hold more than plain values are loaded member by member. */
const isContainer = (value: unknown): value is object =>
  (isRecord(value) && Object.keys(value).length > 0) ||
  (Array.isArray(value) && value.some((each) => Object(each) === each));

function filling(file: string, path: string, target: Tensor, loaded: unknown): Change {
  if (!(loaded instanceof Tensor) || !sameShape(loaded.shape, target.shape)) {
    const saved = loaded instanceof Tensor ? formatShape(loaded.shape) : 'no tensor';
    throw new CheckpointError(
      `${file}: "${path}" of the state is a tensor of shape ${formatShape(target.shape)}, and ` +
        `the checkpoint has ${saved} there`,
      { file, path },
    );
  }
  return tensorChange(target, loaded);
}

const listed = (what: string, names: readonly string[]): string[] =>
  names.length === 0 ? [] : [`${what}: ${names.map((name) => `"${name}"`).join(', ')}`];

function requireState(op: string, state: unknown): void {
  if (!isRecord(state)) throw unexpected(op, 'state', 'an object of values by name', state);
}

/** @throws CheckpointError for a tensor of several ranks; ArgumentError for one without memory */
function requireOwn(op: string, name: string, tensor: Tensor): void {
  if (tensor.sharding !== null)
    throw new CheckpointError(
      `${op}: "${name}" is held by several ranks: ${tensor.sharding.spec}. Save from all of them ` +
        'with distributedCheckpoint.save(folder, state) of shardwise/distributed.',
      { op, name },
    );
  if (tensor.device.type === 'meta')
    throw new ArgumentError(
      `${op}: "${name}" is on meta and has no memory; call toEmpty({ device }) first`,
      { op, name },
    );
}
