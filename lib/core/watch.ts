/**
 * What a capture watches beside ops, so that `compile` can guard on it or refuse it. Everything is
 * null while no capture runs.
 */
import type { DrawSource, Generator } from './random.js';
import type { Tensor } from './tensor.js';

/** Told of modules whose flags are read or that are called. @internal */
export const moduleWatch: { saw: ((module: object) => void) | null } = { saw: null };

/** @internal */
export const captureWatch: {
  /**
   * Something that no graph repeats is about to happen: a hook, a seed, a backward pass. Throws, so
   * that it does not happen.
   */
  unsupported: ((what: string) => never) | null;
  /** A generator is about to draw; `source` would give the next numbers of the kind again. */
  draws: ((generator: Generator, source: DrawSource) => void) | null;
  /** `.grad` of a tensor is about to be read. */
  readsGrad: ((t: Tensor) => void) | null;
} = { unsupported: null, draws: null, readsGrad: null };
