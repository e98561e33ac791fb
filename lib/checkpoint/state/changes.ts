/**
 * Changes that a load makes, all or none: each is prepared before the first is made, and those that
 * may fail only then are undone together with all before them. Values are copied for that only
 * where such a change comes later, so that a load of modules and optimizers takes no more memory.
 */
import { CheckpointError } from '../../core/errors.js';
import { PREPARE_LOAD, type PreparesLoad } from '../../core/prepare-load.js';
import { Generator, type RngState } from '../../core/random.js';
import { Tensor } from '../../core/tensor.js';
import { copyOf, isMap } from './built-ins.js';
import { mapMembers, type Stateful } from './paths.js';

/** One change of a load. */
export interface Change {
  /** What changes; empty for the random numbers of the program. */
  readonly path: string;
  make(): void;
  /** Keeps what is there, and returns what brings it back. */
  remember(): () => void;
  /** Whether {@link make} may throw. */
  readonly canFail: boolean;
}

/**
 * Makes all changes, or none if one throws. @throws what the change throws; CheckpointError with
 * the paths of what could not be put back
 */
export function makeAll(file: string, changes: readonly Change[]): void {
  const last = changes.findLastIndex(({ canFail }) => canFail);
  const made: { path: string; undo: () => void }[] = [];
  let current = '';
  try {
    changes.forEach((change, i) => {
      const { path } = change;
      current = path;
      made.push({ path, undo: i <= last ? change.remember() : notRemembered });
      change.make();
    });
  } catch (error) {
    const kept = made.filter(({ undo }) => !succeeds(undo)).map(({ path }) => path);
    if (kept.length === 0) throw error;
    throw notRestored(file, current, kept, error);
  }
}

/** Changes after the last that can fail do not fail, so what they replace is not kept. */
function notRemembered(): void {
  throw new CheckpointError('a change that cannot fail is not undone');
}

function succeeds(undo: () => void): boolean {
  try {
    undo();
    return true;
  } catch {
    return false;
  }
}

function notRestored(
  file: string,
  path: string,
  paths: readonly string[],
  error: unknown,
): CheckpointError {
  const names = paths.map((each) => (each === '' ? 'the random numbers' : `"${each}"`));
  return new CheckpointError(
    `${file}: "${path}" was not loaded: ${(error as Error)?.message ?? error}. ` +
      `${names.join(', ')} could not be put back and may have values of the checkpoint; all else ` +
      'is as before.',
    { file, path, notRestored: paths },
    { cause: error },
  );
}

/** @throws what the object throws for a state that does not fit, if it can be prepared */
export function stateChange(
  path: string,
  object: Stateful & Partial<PreparesLoad>,
  loaded: unknown,
): Change {
  const prepared = object[PREPARE_LOAD]?.(loaded as never) ?? null;
  return {
    path,
    make: prepared ?? (() => void object.loadStateDict(loaded as never)),
    remember: () => {
      const before = snapshot(object.stateDict());
      return () => void object.loadStateDict(before as never);
    },
    canFail: prepared === null,
  };
}

/** A copy of a state that stays as it is when the object loads another. */
function snapshot(value: unknown): unknown {
  if (value instanceof Tensor) return value.detach().clone();
  if (typeof value !== 'object' || value === null) return value;
  return mapMembers(copyOf(value), (_, each) => snapshot(each));
}

export function tensorChange(path: string, target: Tensor, loaded: Tensor): Change {
  const own = target.detach();
  return {
    path,
    make: () => void own.copy_(loaded),
    remember: () => {
      const before = own.clone();
      return () => void own.copy_(before);
    },
    canFail: false,
  };
}

/** Where a value of a state is. */
export interface Member {
  readonly path: string;
  readonly owner: object;
  readonly key: unknown;
}

/**
 * Replaces a member of an object, a list or a map. @throws CheckpointError if it has a getter
 * without a setter, or is constant
 */
export function valueChange(file: string, { path, owner, key }: Member, loaded: unknown): Change {
  const put = (value: unknown): void => {
    if (isMap(owner)) owner.set(key, value);
    else (owner as Record<string, unknown>)[key as string] = value;
  };
  const get = (): unknown =>
    isMap(owner) ? owner.get(key) : (owner as Record<string, unknown>)[key as string];
  const member = isMap(owner) ? undefined : Object.getOwnPropertyDescriptor(owner, key as string);
  if (member !== undefined && member.writable !== true && member.set === undefined)
    throw new CheckpointError(
      `${file}: "${path}" of the state cannot be set: it ` +
        `${member.get === undefined ? 'is constant' : 'has a getter without a setter'}. Give a ` +
        'state whose values can be set.',
      { file, path },
    );
  return {
    path,
    make: () => put(loaded),
    remember: () => {
      const before = get();
      return () => put(before);
    },
    canFail: member?.set !== undefined,
  };
}

/** @throws ArgumentError if it is no state of random numbers */
export function randomChange(path: string, state: RngState, generator: Generator): Change {
  Generator.at(state);
  return {
    path,
    make: () => generator.setState(state),
    remember: () => generator.remember(),
    canFail: false,
  };
}
