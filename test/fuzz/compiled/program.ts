/** Random programs as text of JavaScript, so that a failing one can be read and run. */

import type { Tensor } from '../../../lib/index.js';
import * as library from '../../../lib/index.js';
import { helpers } from './helpers.js';

/** The lines of a program. */
export interface Program {
  /** What the function closes over: tensors, modules, functions. */
  readonly outer: readonly Line[];
  /** The arguments `a`, `b`, `c`, `k`, `m` of call `i`. */
  readonly inputs: readonly Line[];
  readonly body: readonly Line[];
  /** The expressions of the result. */
  readonly results: readonly string[];
  /** What the caller does with the results `r` before the backward passes. */
  readonly after: readonly Line[];
  /** What happens after call `i`. */
  readonly between: readonly Line[];
  /** The backward passes through the results. */
  readonly passes: readonly Pass[];
  /** The call that runs without gradients; -1 for none. */
  readonly withoutGrad: number;
}

/** A backward pass. All but the last one retain the graph. */
export type Pass = 'backward' | 'grad';

/** A statement; `name` is the variable that it declares. */
export interface Line {
  readonly name: string | null;
  readonly code: string;
  /** Whether the variable gets other values later. */
  readonly isRebound?: boolean;
}

/** A program that can run, with state of its own. */
export interface Instance {
  readonly inputs: (call: number) => unknown[];
  readonly fn: (...args: unknown[]) => unknown;
  readonly after: (results: unknown) => void;
  readonly between: (call: number) => void;
  /** Outer tensors and modules by name. */
  readonly state: () => Record<string, unknown>;
}

export const statement = ({ name, code, isRebound = false }: Line): string =>
  name === null ? `${code};` : `${isRebound ? 'let' : 'const'} ${name} = ${code};`;

/** The program as a function of the library. */
export function textOf({ outer, inputs, body, after, between, results }: Program): string {
  const block = (lines: readonly Line[], indent: string): string =>
    lines.map((line) => `${indent}${statement(line)}\n`).join('');
  const names = outer.flatMap(({ name }) => name ?? []);
  return (
    `(sw, h) => {\n${block(outer, '  ')}  return {\n` +
    `    inputs: (i) => {\n${block(inputs, '      ')}      return [a, b, c, k, m];\n    },\n` +
    `    fn: (a, b, c, k, m) => {\n${block(body, '      ')}      return [${results.join(', ')}];\n    },\n` +
    `    after: (r) => {\n${block(after, '      ')}    },\n` +
    `    between: (i) => {\n${block(between, '      ')}    },\n` +
    `    state: () => ({ ${names.join(', ')} }),\n  };\n}`
  );
}

/** A new instance. Modules get their values from the seed. */
export function instantiate(program: Program): Instance {
  library.manualSeed(7);
  // biome-ignore lint/security/noGlobalEval: the text is the generator's own.
  const make = (0, eval)(textOf(program)) as (sw: object, h: object) => Instance;
  return make(library, helpers);
}

/** Runs one line beside others while a program is drawn; returns the value of the variable. */
export function evaluate(line: Line, variables: ReadonlyMap<string, unknown>): unknown {
  const names = [...variables.keys()];
  const run = new Function(
    'sw',
    'h',
    ...names,
    line.name === null ? statement(line) : `return (${line.code});`,
  );
  return run(library, helpers, ...variables.values());
}

export const isFloat = (t: unknown): t is Tensor =>
  t instanceof library.Tensor && t.dtype.isFloatingPoint;
