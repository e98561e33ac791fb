/**
 * Captures and compilations as other ranks see them: a rank that compiles calls no collective, so
 * the ranks that wait for it there do not count that time.
 */
import { currentRuntime, isInWorld } from '../core/rank-runtime.js';
import { writer } from '../eager/submit.js';
import { config } from './config.js';

let isInside = false;

/** Runs `work`, which captures or compiles. `what`, such as `the graph of step`, is for errors. */
export function whileCompiling<T>(what: string, work: () => T): T {
  if (isInside || !isInWorld()) return work();
  const { addon } = writer;
  isInside = true;
  addon.compiling(what, config.compileTimeoutMs, currentRuntime().id);
  try {
    return work();
  } finally {
    isInside = false;
    addon.compiled();
  }
}
