/** Invalid arguments of every kind, and a check that a call throws no raw error. */
import { arange, OpenScope, ones, ShardwiseError, Tensor } from '../../lib/index.js';

/** A function of any arguments. */
export type AnyFunction = (...args: unknown[]) => unknown;
/** A class with any constructor. */
export type AnyClass = abstract new (...args: never[]) => unknown;

/** Values that most arguments refuse, each also used as an option. */
const values: readonly unknown[] = [
  undefined,
  null,
  'x',
  '',
  3,
  0,
  -7,
  1.5,
  1e300,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  true,
  {},
  { a: 1 },
  { dtype: 3n, device: 2n },
  { reduction: Symbol('r') },
  Object.create(null),
  [],
  [0],
  [1.5],
  ['a'],
  [null],
  [Symbol('i')],
  [Number.POSITIVE_INFINITY],
  Symbol('s'),
  2n,
  2n ** 70n,
  () => 1,
  new Map(),
  new Date(0),
];

/**
 * Argument lists: each wrong value first, then after one to four values that some functions accept.
 */
export function badArguments(first: unknown = ones([2, 3])): readonly (readonly unknown[])[] {
  const [x, index, mask] = [ones([2, 3]), arange(3), ones([2, 3]).gt(0)];
  const before: readonly (readonly unknown[])[] = [
    [],
    [first],
    [first, x],
    [first, 0],
    [first, 0, 1],
    [first, 0, index],
    [first, x, x],
    [first, mask],
    [0],
    [2, 3],
    [[2, 3]],
    [[x]],
    [1, 2, 3],
  ];
  const longer: readonly (readonly unknown[])[] = [
    [first, [x], null],
    [first, 0, index, x, null],
    [first, null, null, null],
    [() => x],
    ['ij->ji', 3],
    [{ a: x }],
    [x],
    [first, x, index],
  ];
  return [
    ...before,
    ...before.flatMap((start) => values.map((value) => [...start, value])),
    ...longer,
  ];
}

/** Whether a value is a class, which needs `new`. */
export function isClass(value: unknown): value is AnyClass {
  return typeof value === 'function' && /^class\b/.test(Function.prototype.toString.call(value));
}

function shown(value: unknown): string {
  if (value instanceof Tensor) return `a tensor of shape [${value.shape.join(', ')}]`;
  if (Array.isArray(value)) return `[${value.map(shown).join(', ')}]`;
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'string') return `'${value}'`;
  return typeof value === 'object' && value !== null
    ? `{ ${Object.keys(value).join(', ')} }`
    : typeof value === 'function'
      ? 'a function'
      : String(value);
}

/** Uses results that fail or end only then: runs generators, closes scopes. */
async function use(result: unknown): Promise<void> {
  if (result instanceof OpenScope) result.dispose();
  else if (
    typeof result === 'object' &&
    result !== null &&
    Symbol.iterator in result &&
    'next' in result
  )
    Array.from(result as Iterable<unknown>);
  else if (result instanceof Promise) await result;
}

/**
 * Calls with each list of arguments. Returns the calls that threw or rejected with an error that is
 * not the library's.
 */
export async function rawErrors(
  name: string,
  call: AnyFunction,
  lists: readonly (readonly unknown[])[],
): Promise<string[]> {
  const failures: string[] = [];
  for (const args of lists) {
    try {
      const result = call(...args);
      if (typeof result === 'object' && result !== null) await use(result);
    } catch (error) {
      if (!(error instanceof ShardwiseError))
        failures.push(`${name}(${args.map(shown).join(', ')}) threw ${String(error)}`);
    }
  }
  return failures;
}
