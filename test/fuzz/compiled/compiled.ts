/** Fuzzes `compile`: random programs have the results of the same programs run eagerly. */
import { Finding, type Rng } from '../rng.js';
import { drawProgram } from './draw.js';
import { textOf } from './program.js';
import { BACKENDS, difference, observe } from './run.js';
import { report, shrink } from './shrink.js';

/** Runs one program with each backend. @throws Finding with the smallest program that differs */
export function fuzzCompiled(rng: Rng, trace: (line: string) => void, calls = 4): void {
  const program = drawProgram(rng);
  trace(textOf(program));
  const expected = observe(program, null, calls);
  for (const backend of BACKENDS) {
    const words = difference(program, backend, expected);
    if (words !== null)
      throw new Finding(`compiled differs: ${report(shrink(program, backend, words), backend)}`);
  }
}
