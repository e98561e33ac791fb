/** Fuzzes `compile`: random programs have the results of the same programs run eagerly. */
import type { BackendName } from '../../../lib/compile/backends.js';
import { Finding, type Rng } from '../rng.js';
import { drawProgram } from './draw.js';
import { type Program, textOf } from './program.js';
import { BACKENDS, difference, observe } from './run.js';
import { report, shrink } from './shrink.js';

/**
 * Runs one program with each backend, and in lazy segments with one. @throws Finding with the
 * smallest program that differs
 */
export function fuzzCompiled(rng: Rng, trace: (line: string) => void, calls = 4): void {
  const program = drawProgram(rng);
  trace(textOf(program));
  const expected = observe(program, null, calls);
  const check = (tried: Program, backend: BackendName): void => {
    const words = difference(tried, backend, expected);
    if (words !== null)
      throw new Finding(`compiled differs: ${report(shrink(tried, backend, words), backend)}`);
  };
  for (const backend of BACKENDS) check(program, backend);
  check(
    { ...program, body: [{ name: null, code: 'sw.graphBreak()' }, ...program.body] },
    rng.pick(BACKENDS),
  );
}
