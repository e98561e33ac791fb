/** Walks two values side by side and finds the pairs of tensors and numbers in them. */
import { ArgumentError } from '../../core/errors.js';
import { shown } from '../../core/options.js';
import { isPlain } from '../../core/plain-object.js';
import { Tensor } from '../../core/tensor.js';
import { ValuesAndIndices } from '../../core/values-and-indices.js';
import { type Comparison, failure } from './failure.js';
import { isNumbers, numberPair, type Pair, tensorPair, typedArrayPair } from './pair.js';

/**
 * The pairs to compare, in order; what needs no values is compared here.
 *
 * @throws AssertionError for values of different kinds, lengths, keys, shapes, dtypes or devices;
 * ArgumentError for objects of other classes, and for a value that contains itself
 */
export function* pairsOf(
  actual: unknown,
  expected: unknown,
  comparison: Comparison,
  path = '',
  above: readonly unknown[] = [],
): Generator<Pair> {
  if (above.includes(expected))
    throw new ArgumentError(`${comparison.op}: the value at ${path} contains itself`, { path });
  const fail = (text: string, sides: [unknown, unknown] = [actual, expected]): Error =>
    failure(comparison, path, text, sides);
  if (actual instanceof Tensor && expected instanceof Tensor) {
    yield* tensorPair(actual, expected, comparison, path);
  } else if (isNumbers(actual) && isNumbers(expected)) {
    yield typedArrayPair(actual, expected, comparison, path);
  } else if (typeof actual === 'number' && typeof expected === 'number') {
    yield numberPair(actual, expected, path);
  } else {
    const [a, e] = [actual, expected].map((value) => partsOf(value, comparison, path));
    if (a?.kind !== e?.kind) throw fail(`expected ${named(expected)}, got ${named(actual)}`);
    if (a == null || e == null) {
      if (!Object.is(actual, expected))
        throw fail(`expected ${shown(expected)}, got ${shown(actual)}`);
      return;
    }
    const keys: [unknown[], unknown[]] = [[...a.parts.keys()], [...e.parts.keys()]];
    if (!sameKeys(a, e)) throw fail(`expected ${keysOf(e)}, got ${keysOf(a)}`, keys);
    const inside = [...above, expected];
    for (const [key, part] of e.parts)
      yield* pairsOf(a.parts.get(key), part, comparison, `${path}${e.step(key)}`, inside);
  }
}

/** A container as a Map. */
interface Parts {
  readonly kind: 'array' | 'Map' | 'object';
  readonly parts: ReadonlyMap<unknown, unknown>;
  /** The text of the access to a part. */
  readonly step: (key: unknown) => string;
}

/** Null for what is compared as it is: primitives, tensors, functions. */
function partsOf(value: unknown, { op }: Comparison, path: string): Parts | null {
  if (typeof value !== 'object' || value === null || isLeaf(value)) return null;
  if (Array.isArray(value))
    return { kind: 'array', parts: new Map(value.entries()), step: (key) => `[${key}]` };
  if (value instanceof Map)
    return { kind: 'Map', parts: value, step: (key) => `.get(${shown(key)})` };
  if (isPlain(value) || Object.getPrototypeOf(value) === null || value instanceof ValuesAndIndices)
    return { kind: 'object', parts: new Map(Object.entries(value)), step: stepInto };
  throw new ArgumentError(
    `${op}: expected tensors, numbers, and arrays, objects and Maps of these, got ` +
      `${shown(value)}${path === '' ? '' : ` at ${path}`}`,
    { op, path },
  );
}

const isLeaf = (value: object): boolean => value instanceof Tensor || isNumbers(value);

const stepInto = (key: unknown): string =>
  /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(String(key)) ? `.${key}` : `['${key}']`;

function sameKeys({ parts: a }: Parts, { parts: e }: Parts): boolean {
  return a.size === e.size && [...e.keys()].every((key) => a.has(key));
}

function keysOf({ kind, parts }: Parts): string {
  if (kind === 'array') return `${parts.size} elements`;
  return parts.size === 0 ? 'no keys' : `the keys ${[...parts.keys()].map(shown).join(', ')}`;
}

function named(value: unknown): string {
  if (value instanceof Tensor) return 'a tensor';
  return Array.isArray(value) ? 'an array' : shown(value);
}
