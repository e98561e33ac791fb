/**
 * When a function has as many captures as it may have, and what is said of it: of graphs, and of
 * sizes that a dynamic graph serves.
 */
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

/**
 * Captures of one dynamic graph that cost what they cost. A capture takes as long as 20 to 60
 * uncompiled calls, so a size that never comes again is not worth one: see
 * bench/notes/host-overhead.md.
 */
const FIRST_SIZES = 2;
/** Calls that the captures must have served for each further one. */
const CALLS_FOR_A_SIZE = 32;

/** Whether a graph gets no capture of another size. */
export function hasTooMany(captures: readonly { readonly uses: number }[]): boolean {
  const served = captures.reduce((sum, { uses }) => sum + uses - 1, 0);
  return captures.length >= FIRST_SIZES + Math.floor(served / CALLS_FOR_A_SIZE);
}

/** The sizes that a function runs uncompiled for. */
export class UncompiledSizes {
  private readonly seen = new Set<string>();
  private isWarned = false;

  /** Remembers a size, and warns once if there are more of them than a function has graphs. */
  add(name: string, sizes: readonly number[]): void {
    if (this.isWarned) return;
    this.seen.add(sizes.join());
    if (this.seen.size <= config.recompileLimit) return;
    this.isWarned = true;
    this.seen.clear();
    process.emitWarning(
      `compile: ${name} is called with new sizes again and again. Each would take a capture, so ` +
        'calls with new sizes run uncompiled from now on, and those with captured ones as ' +
        `graphs; one more is captured for each ${CALLS_FOR_A_SIZE} calls that graphs serve. Pad ` +
        'arguments to a few sizes. dynamic: true, compiler.markDynamic and fullgraph capture each size.',
      'CompileWarning',
    );
  }
}
