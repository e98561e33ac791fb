/** A training run in one file: modules, optimizers, schedules, plain values, random numbers. */
import { ArgumentError, CheckpointError } from '../core/errors.js';
import { checkFlag, optionsOf, unexpected } from '../core/options.js';
import { currentGenerator, Generator, getRngState, type RngState } from '../core/random.js';
import { Tensor } from '../core/tensor.js';
import { SafetensorsFile } from './load.js';
import { checkPath, writeTensors } from './save.js';
import { makeAll, randomChange } from './state/changes.js';
import { decodeValue, encodeValue } from './state/json-values.js';
import { changesOf } from './state/matching.js';
import { isRecord, isStateful, joined, mapMembers, refuseCycles } from './state/paths.js';
import { checksumText, isIntact, sealedJson } from './state/sealed-json.js';
import { withoutTensors, withTensors } from './state/tensor-places.js';
import type { CheckpointState } from './state/values.js';

/** Where the metadata of a file has the values that are no tensors. */
const KEY = 'shardwise.checkpoint';

/** What the metadata holds. */
interface Saved {
  readonly state: Readonly<Record<string, unknown>>;
  readonly random: RngState;
}

/** Checksums of tensors by name, as texts; files of earlier versions have none. */
type Checksums = Readonly<Record<string, string>>;

/** Options of {@link loadCheckpoint}. */
export interface LoadCheckpointOptions {
  /** Whether the file and the state must have the same names. True by default. */
  strict?: boolean;
  /** Whether random numbers go on from where they were. True by default. */
  rng?: boolean;
}

/**
 * Saves a run as one safetensors file: replaced as a whole, so that a crash leaves the file before.
 * The state of random numbers is saved, too, and checksums of all tensors and values. Sharded runs use `distributedCheckpoint` or
 * `Checkpointer`.
 *
 * @param state - modules, optimizers, schedules, scalers and other objects with `stateDict`,
 * tensors, and plain values, maps, sets, dates and typed arrays, in nested objects
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
  const values = encodeValue(op, '', withoutTensors(statesOf(op, state, ''), '', tensors));
  for (const [name, tensor] of tensors) requireOwn(op, name, tensor);
  const saved = { state: values, random: encodeValue(op, '', getRngState()) };
  await writeTensors(file, [...tensors], (found) => {
    const texts = Object.entries(found).map(([name, checksum]) => [name, checksumText(checksum)]);
    return { [KEY]: sealedJson({ ...saved, checksums: Object.fromEntries(texts) }) };
  });
}

/**
 * Loads a file of {@link saveCheckpoint} into a state and returns the state: objects take theirs by
 * `loadStateDict`, tensors are filled in place, plain values are set.
 *
 * If it throws, the state and random numbers are as before: objects of the program that were loaded
 * get the state that they had by `loadStateDict`. Where one refuses that, the error names it.
 *
 * @throws CheckpointError if there is no such file, its bytes are not those that were saved, it has other names, kinds or
 * shapes than the state, a value cannot be set, or an object cannot be put back; what an object of
 * the program throws in its `loadStateDict`
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
  const changes = changesOf(file, state, saved.state, strict);
  if (rng) changes.push(randomChange('', saved.random, currentGenerator()));
  makeAll(file, changes);
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
    if (!isIntact(text)) throw damaged(path, 'the values');
    const { state, random, checksums } = parsed(path, text);
    const tensors = await readTensors(file, checksums as Checksums | undefined);
    return decoded(path, state, random, tensors);
  } finally {
    await file.close();
  }
}

/** @throws CheckpointError unless the tensors of the file are those that were saved */
async function readTensors(
  file: SafetensorsFile,
  checksums: Checksums | undefined,
): Promise<ReadonlyMap<string, Tensor>> {
  const tensors = new Map<string, Tensor>();
  for (const name of file.iterateNames()) {
    const { tensor, checksum } = await file.getWithChecksum(name);
    if (checksums !== undefined && checksums[name] !== checksumText(checksum))
      throw damaged(file.path, `the bytes of "${name}"`, name);
    tensors.set(name, tensor);
  }
  for (const name of Object.keys(checksums ?? {}))
    if (!tensors.has(name)) throw damaged(file.path, `the names of tensors, without "${name}",`);
  return tensors;
}

function damaged(file: string, what: string, tensor?: string): CheckpointError {
  return new CheckpointError(
    `${file}: ${what} are not those that were saved: the file is damaged. Load another checkpoint.`,
    tensor === undefined ? { file } : { file, tensor },
  );
}

const unreadable = (file: string, error: unknown): CheckpointError =>
  new CheckpointError(
    `${file}: the state in the checkpoint cannot be read: ${(error as Error).message}`,
    { file },
    { cause: error },
  );

/** @throws CheckpointError unless the text is JSON of an object */
function parsed(file: string, text: string): Record<keyof Saved | 'checksums', unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (isRecord(value)) return value as ReturnType<typeof parsed>;
    throw unexpected('JSON', 'state', 'an object', value);
  } catch (error) {
    throw unreadable(file, error);
  }
}

/** @throws CheckpointError unless it is a saved state */
function decoded(
  file: string,
  state: unknown,
  random: unknown,
  tensors: ReadonlyMap<string, Tensor>,
): Saved {
  try {
    const saved = withTensors(decodeValue(state), tensors);
    if (isRecord(saved)) return { state: saved, random: decodeValue(random) as RngState };
    throw unexpected('JSON', 'state', 'an object', saved);
  } catch (error) {
    throw unreadable(file, error);
  }
}

/** The state with the state dicts of its objects in their places. */
function statesOf(op: string, value: unknown, path: string): unknown {
  if (value instanceof Tensor) return value;
  if (value instanceof Generator) return value.getState();
  if (!isStateful(value))
    return mapMembers(value, (name, each) => statesOf(op, each, joined(path, name)));
  const own = value.stateDict();
  refuseCycles(op, own, path);
  return own;
}

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
