/** Shrinks a program that differs: removes lines and results while it still differs. */
import { difference } from './compare.js';
import { type Program, textOf } from './program.js';
import { EAGER, observe, type Variant } from './run.js';

/** The difference; null if there is none, or the program has lost a variable. */
export function differs(program: Program, variant: Variant): string | null {
  try {
    const expected = observe(program, EAGER);
    if (expected.some(({ error }) => error === 'ReferenceError' || error === 'TypeError'))
      return null;
    return difference(program, variant, expected);
  } catch {
    return null; // a variable of the outer lines or of the inputs is missing
  }
}

/** The kind of a difference: another one would be another finding. */
const kindOf = (words: string): string => words.replace(/^call \d: /, '').slice(0, 7);

/** The smallest program found. */
export function shrink(program: Program, variant: Variant, words: string): Program {
  let smallest = program;
  const attempt = (smaller: Program): void => {
    const found = differs(smaller, variant);
    if (found !== null && kindOf(found) === kindOf(words)) smallest = smaller;
  };
  attempt({ ...smallest, passes: ['backward'] });
  attempt({ ...smallest, passes: [] });
  attempt({ ...smallest, withoutGrad: -1 });
  for (let round = 0; round < 2; round++) {
    for (let i = smallest.results.length - 1; i >= 0 && smallest.results.length > 1; i--)
      attempt({ ...smallest, results: smallest.results.toSpliced(i, 1) });
    for (const part of ['between', 'after', 'body', 'outer'] as const)
      for (let i = smallest[part].length - 1; i >= 0; i--)
        attempt({ ...smallest, [part]: smallest[part].toSpliced(i, 1) });
    for (const [i, line] of smallest.inputs.entries()) {
      const simple =
        line.name === 'k'
          ? ['2']
          : line.name === 'm'
            ? ['null']
            : ['h.plain([2, 3], i)', 'h.leaf([2, 3], i)'];
      for (const code of simple)
        attempt({ ...smallest, inputs: smallest.inputs.with(i, { ...line, code }) });
    }
  }
  return smallest;
}

/** A report of a finding. */
export function report(program: Program, variant: Variant): string {
  const { passes, withoutGrad } = program;
  const run =
    `backend ${variant.fn}, of backward passes ${variant.passes}, passes ${passes.join()}, ` +
    `call without gradients ${withoutGrad}`;
  return `${differs(program, variant)}\n${run}\n${textOf(program)}`;
}
