/** What a capture is told of, so that `compile` can guard on it or end the graph; null while nothing is captured. */
import type { Tensor } from './tensor.js';

/** The watcher of modules whose flags are read or that are called. @internal */
export const moduleWatch: { saw: ((module: object) => void) | null } = { saw: null };

/** What happens below or beside the ops of the table. @internal */
export const captureWatch: {
  /** Something is about to happen that a graph of ops does not hold; throws where the function must be one graph. */
  effect: ((what: string) => void) | null;
  /** The gradient of a tensor was read. */
  gradRead: ((t: Tensor) => void) | null;
} = { effect: null, gradRead: null };
