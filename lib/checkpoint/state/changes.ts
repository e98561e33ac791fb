/**
 * Changes that a load makes, all or none: each is prepared before the first is made, and those that
 * may fail only then are undone together with all before them. Values are copied for that only
 * where such a change comes later, so that a load of modules and optimizers takes no more memory.
 */
import { PREPARE_LOAD, type PreparesLoad } from '../../core/prepare-load.js';
import { Generator, type RngState } from '../../core/random.js';
import type { Tensor } from '../../core/tensor.js';
import * as tree from '../../core/tree.js';
import type { Stateful } from './paths.js';

/** One change of a load. */
export interface Change {
  make(): void;
  /** Keeps what is there, and returns what brings it back. */
  remember(): () => void;
  /** Whether {@link make} may throw. */
  readonly canFail: boolean;
}

/** Makes all changes, or none if one throws. */
export function makeAll(changes: readonly Change[]): void {
  const last = changes.findLastIndex(({ canFail }) => canFail);
  const undo: (() => void)[] = [];
  try {
    changes.forEach((change, i) => {
      if (i <= last) undo.push(change.remember());
      change.make();
    });
  } catch (error) {
    for (const bringBack of undo.reverse()) attempt(bringBack);
    throw error;
  }
}

/** An object that fails to load may fail to go back too; the others do, and the first error counts. */
function attempt(bringBack: () => void): void {
  try {
    bringBack();
  } catch {}
}

/** @throws what the object throws for a state that does not fit, if it can be prepared */
export function stateChange(object: Stateful & Partial<PreparesLoad>, loaded: unknown): Change {
  const prepared = object[PREPARE_LOAD]?.(loaded as never) ?? null;
  return {
    make: prepared ?? (() => void object.loadStateDict(loaded as never)),
    remember: () => {
      const before = tree.map((t) => t.detach().clone(), object.stateDict());
      return () => void object.loadStateDict(before as never);
    },
    canFail: prepared === null,
  };
}

export function tensorChange(target: Tensor, loaded: Tensor): Change {
  const own = target.detach();
  return {
    make: () => void own.copy_(loaded),
    remember: () => {
      const before = own.clone();
      return () => void own.copy_(before);
    },
    canFail: false,
  };
}

export function valueChange(owner: Record<string, unknown>, name: string, loaded: unknown): Change {
  return {
    make: () => {
      owner[name] = loaded;
    },
    remember: () => {
      const before = owner[name];
      return () => {
        owner[name] = before;
      };
    },
    canFail: Object.isFrozen(owner),
  };
}

/** @throws ArgumentError if it is no state of random numbers */
export function randomChange(state: RngState, generator: Generator): Change {
  Generator.at(state);
  return {
    make: () => generator.setState(state),
    remember: () => generator.remember(),
    canFail: false,
  };
}
