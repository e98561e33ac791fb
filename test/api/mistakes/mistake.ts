/** A wrong call that someone who knows PyTorch, NumPy or TensorFlow.js makes. */
import * as distributed from '../../../lib/distributed.js';
import * as shardwise from '../../../lib/index.js';

/** A program and what the error, or the warning if none is thrown, says. */
export interface Mistake {
  readonly what: string;
  readonly program: () => unknown;
  readonly says: RegExp;
}

// biome-ignore lint/suspicious/noExplicitAny: these are programs without types.
type Untyped = any;

/** The library as JavaScript sees it. */
export const sw: Untyped = shardwise;
/** The entry for several ranks, likewise. */
export const dist: Untyped = distributed;

/** A mistake in the table. */
export const mistake = (what: string, program: () => unknown, says: RegExp): Mistake => ({
  what,
  program,
  says,
});
