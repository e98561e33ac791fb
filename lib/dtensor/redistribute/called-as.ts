/**
 * Errors, and what is said of collectives, name what the program called: a function that is made of
 * other ops, or an op that runs as its decomposition.
 */
import { calledFunctions } from '../../core/call-site.js';
import { ShardwiseError } from '../../core/errors.js';
import { allComposites } from '../../ops/composite.js';

/**
 * What errors said at first: of decompositions in one another the outermost counts, which is passed
 * last.
 */
const first = new WeakMap<ShardwiseError, string>();

/**
 * The error with what the program called before the op that could not do it. Nothing is written
 * down on the way to an op: the names are looked for on the stack.
 *
 * @param decomposed - the op whose decomposition was running
 * @internal
 */
export function calledAs(error: unknown, decomposed: string | null): unknown {
  if (!(error instanceof ShardwiseError)) return error;
  const outer = calledName(decomposed);
  if (outer === null) return error;
  const { message } = error;
  const inner = first.get(error) ?? message;
  if (inner.startsWith(`${outer}:`)) return error;
  first.set(error, inner);
  error.message = `${outer}, in ${inner}`;
  return error;
}

/**
 * What the program called, by its name: the function made of other ops that is running, or else the
 * op whose decomposition is, if any.
 *
 * @internal
 */
export function calledName(decomposed: string | null): string | null {
  return outermostComposite() ?? decomposed;
}

function outermostComposite(): string | null {
  const names = new Set(allComposites().map(({ name }) => name));
  for (const called of calledFunctions()) {
    if (names.has(called)) return called;
    const plain = called.replace(/\d+$/, ''); // bundlers number functions of one name
    if (names.has(plain)) return plain;
  }
  return null;
}
