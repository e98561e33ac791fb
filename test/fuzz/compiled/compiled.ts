/** Fuzzes `compile`: random programs have the results of the same programs run eagerly. */
import { Finding, type Rng } from '../rng.js';
import { difference } from './compare.js';
import { drawProgram } from './draw.js';
import { type Program, textOf } from './program.js';
import { BACKENDS, EAGER, observe, type Variant } from './run.js';
import { report, shrink } from './shrink.js';

/**
 * Runs one program with each backend, in lazy segments with one, and with its backward passes
 * captured. @throws Finding with the smallest program that differs
 */
export function fuzzCompiled(rng: Rng, trace: (line: string) => void, calls = 4): void {
  const program = drawProgram(rng);
  trace(textOf(program));
  const expected = observe(program, EAGER, calls);
  const check = (tried: Program, variant: Variant): void => {
    const words = difference(tried, variant, expected);
    if (words !== null)
      throw new Finding(`compiled differs: ${report(shrink(tried, variant, words), variant)}`);
  };
  for (const fn of BACKENDS) check(program, { fn, passes: null });
  check(
    { ...program, body: [{ name: null, code: 'sw.graphBreak()' }, ...program.body] },
    { fn: rng.pick(BACKENDS), passes: null },
  );
  if (program.passes.length > 0)
    check(program, { fn: rng.pick([null, null, ...BACKENDS]), passes: rng.pick(BACKENDS) });
}
