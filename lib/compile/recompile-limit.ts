/** What is said of a function that has as many captures as it may have. */
import { CompileError } from '../core/errors.js';
import { config } from './config.js';
import { type Difference, formatDifference } from './guards/facts.js';

/**
 * Warns that no graph serves the calls of a function any more. `changes`: what differed from
 * capture to capture.
 *
 * @throws CompileError instead with `fullgraph`
 */
export function reportLimit(
  name: string,
  changes: readonly Difference[],
  fullgraph: boolean,
): void {
  const texts = [...new Set(changes.map(formatDifference))];
  const start = `compile: ${name} was captured ${config.recompileLimit} times`;
  const end =
    `What changed between captures: ${texts.join('; ')}. Pass numbers that change as ` +
    'tensors, keep changing state out of modules, or raise compiler.config.recompileLimit.';
  if (fullgraph)
    throw new CompileError(`${start}, and no graph serves this call. ${end}`, {
      function: name,
      changes: texts,
    });
  process.emitWarning(
    `${start}; calls that no graph serves run uncompiled from now on. ${end}`,
    'CompileWarning',
  );
}
