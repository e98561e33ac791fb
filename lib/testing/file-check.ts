/** Checks that a text contains strings in order, such as the text of a graph or generated code. */
import { ArgumentError, ShardwiseError } from '../core/errors.js';

type Check =
  | { kind: 'check'; wanted: string }
  | { kind: 'not'; wanted: string }
  | { kind: 'count'; wanted: string; count: number; exactly: boolean };

/**
 * Strings that a text must contain in order. Add checks, then call {@link FileCheck.run}.
 */
export interface FileCheck {
  /** The string occurs after the match of the previous check. */
  check(wanted: string): FileCheck;
  /** The string does not occur before the match of the next check, or before the end. */
  checkNot(wanted: string): FileCheck;
  /** The string occurs `count` times; with `exactly`, not once more in the rest of the text. */
  checkCount(wanted: string, count: number, options?: { exactly?: boolean }): FileCheck;
  /** Checks a text. @throws ShardwiseError that quotes the text, for a check that fails */
  run(text: string): void;
}

/**
 * @see PyTorch `torch.testing.FileCheck`
 * @example
 * FileCheck().check('sin').checkNot('cos').check('return').run('sin(x); return x');
 */
export function FileCheck(): FileCheck {
  const checks: Check[] = [];
  const checker: FileCheck = {
    check: (wanted) => add({ kind: 'check', wanted }),
    checkNot: (wanted) => add({ kind: 'not', wanted }),
    checkCount(wanted, count, { exactly = false } = {}) {
      if (!Number.isInteger(count) || count < 0)
        throw new ArgumentError(`FileCheck.checkCount: expected a count, got ${count}`, {
          given: count,
        });
      return add({ kind: 'count', wanted, count, exactly });
    },
    run(text) {
      runChecks(checks, text);
    },
  };
  function add(check: Check): FileCheck {
    if (typeof check.wanted !== 'string' || check.wanted === '')
      throw new ArgumentError('FileCheck: expected a string that is not empty', {
        given: check.wanted,
      });
    checks.push(check);
    return checker;
  }
  return checker;
}

function runChecks(checks: readonly Check[], text: string): void {
  let at = 0;
  let forbidden: string[] = [];
  const find = (wanted: string): void => {
    const found = text.indexOf(wanted, at);
    if (found < 0) throw failed(`"${wanted}" was not found`, text, at);
    for (const bad of forbidden) forbid(bad, text, at, found);
    forbidden = [];
    at = found + wanted.length;
  };
  for (const check of checks) {
    if (check.kind === 'not') forbidden.push(check.wanted);
    else if (check.kind === 'check') find(check.wanted);
    else {
      for (let i = 0; i < check.count; i++) find(check.wanted);
      if (check.exactly) forbid(check.wanted, text, at, text.length);
    }
  }
  for (const bad of forbidden) forbid(bad, text, at, text.length);
}

function forbid(wanted: string, text: string, from: number, to: number): void {
  if (text.slice(from, to).includes(wanted))
    throw failed(`"${wanted}" was found and should not be there`, text, from);
}

function failed(what: string, text: string, from: number): ShardwiseError {
  return new ShardwiseError(
    'ERR_FILE_CHECK',
    `FileCheck: ${what} after character ${from} of\n${text}`,
    { what, from },
  );
}
