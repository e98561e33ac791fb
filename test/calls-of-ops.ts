/** Reports the ops that run, below autograd. */
import { swapBackend } from '../lib/core/backend.js';
import { layers } from '../lib/core/hooks.js';

/** The calls of ops in `fn`, each with the number of its results: `rmsNorm 2`. */
export function callsOfOps(fn: () => unknown): string[] {
  const seen: string[] = [];
  const below = layers.backend.run;
  const before = swapBackend({
    ...layers.backend,
    run: (op, ...rest) => {
      const results = below(op, ...rest);
      seen.push(`${op.name} ${results.length}`);
      return results;
    },
  });
  try {
    fn();
  } finally {
    swapBackend(before);
  }
  return seen;
}
