/** Two tensors, typed arrays or numbers to compare: where their values are, and how they differ. */
import { types } from 'node:util';
import {
  type DType,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  uint8,
} from '../../core/dtype.js';
import { formatShape, type Shape, sameShape } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import type { TypedArray } from '../../core/values.js';
import { type LocalShard, localShardOf, meshOf } from '../../dtensor/spec/local-shard.js';
import { shardAt } from '../../dtensor/spec/shard-geometry.js';
import { type Comparison, failure } from './failure.js';
import { type Differences, differencesOf, tolerancesOf } from './tolerances.js';

/** Two sides to compare, actual and expected. */
export interface Pair {
  /** Where they are in the compared values. */
  readonly path: string;
  readonly sides: readonly [Side, Side];
  /** Of the expected values. */
  readonly shape: Shape;
  /** The index of the first value, where the values are those of a shard. */
  readonly offsets: Shape | null;
  /** What is compared, for errors: `float32[2, 3]`. */
  readonly words: string;
}

/** One of them. */
export interface Side {
  readonly dtype: DType;
  valuesNow(): TypedArray;
  values(): Promise<TypedArray>;
}

/** @throws AssertionError if the elements are not close */
export function checkPair(
  pair: Pair,
  [actual, expected]: readonly [TypedArray, TypedArray],
  comparison: Comparison,
): void {
  // A rank outside of a mesh has no values of the tensor.
  if (actual.length !== expected.length) return;
  const { equalNan } = comparison;
  const tolerances = comparison.tolerances ?? tolerancesOf(pair.sides.map(({ dtype }) => dtype));
  const found = differencesOf(actual, expected, { ...tolerances, equalNan });
  if (found === null) return;
  const text = describe(pair, found, expected.length, tolerances);
  throw failure(comparison, pair.path, text, [
    elements(pair, found, actual),
    elements(pair, found, expected),
  ]);
}

function describe(
  pair: Pair,
  { count, absolute, relative }: Differences,
  of: number,
  { rtol, atol }: { rtol: number; atol: number },
): string {
  const percent = ((100 * count) / of).toFixed(1);
  const what =
    pair.shape.length === 0 ? 'values differ' : `${count} of ${of} elements differ (${percent}%)`;
  return [
    what,
    `  greatest absolute difference: ${absolute.value}${indexOf(pair, absolute.at)}, atol ${atol}`,
    `  greatest relative difference: ${relative.value}${indexOf(pair, relative.at)}, rtol ${rtol}`,
    `  ${pair.words}`,
  ].join('\n');
}

const indexOf = (pair: Pair, at: number): string =>
  pair.shape.length === 0 ? '' : ` at ${formatShape(position(pair, at))}`;

function position({ shape, offsets }: Pair, at: number): number[] {
  let rest = at;
  const inside = shape.toReversed().map((size) => {
    const index = rest % size;
    rest = (rest - index) / size;
    return index;
  });
  return inside.toReversed().map((index, dim) => index + (offsets?.[dim] ?? 0));
}

/** The first elements that differ, by index: runners print a diff of these. */
function elements(pair: Pair, { first }: Differences, values: TypedArray): unknown {
  if (pair.shape.length === 0) return values[0];
  return Object.fromEntries(first.map((at) => [formatShape(position(pair, at)), values[at]]));
}

/** A pair of numbers, which are float64. */
export function numberPair(actual: number, expected: number, path: string): Pair {
  const side = (value: number): Side => arraySide(Float64Array.of(value), float64);
  const sides = [side(actual), side(expected)] as const;
  return { path, sides, shape: [], offsets: null, words: `expected ${expected}, got ${actual}` };
}

/** The dtypes of typed arrays; others have none. */
const dtypes = new Map<string, DType>([
  ['Float32Array', float32],
  ['Float64Array', float64],
  ['BigInt64Array', int64],
  ['Int32Array', int32],
  ['Int16Array', int16],
  ['Int8Array', int8],
  ['Uint8Array', uint8],
  ['Uint8ClampedArray', uint8],
]);

const classOf = (value: TypedArray): string => value[Symbol.toStringTag];

/** Whether a value is a typed array of a dtype. */
export const isNumbers = (value: unknown): value is TypedArray =>
  types.isTypedArray(value) && dtypes.has(value[Symbol.toStringTag]);

/** @throws AssertionError for arrays of different lengths or classes */
export function typedArrayPair(
  actual: TypedArray,
  expected: TypedArray,
  comparison: Comparison,
  path: string,
): Pair {
  const [a, e] = [actual, expected].map((values) =>
    arraySide(values, dtypes.get(classOf(values)) as DType),
  ) as [Side, Side];
  const check = checker(comparison, path);
  check('length', actual.length, expected.length);
  if (comparison.checkDtype) check('class', classOf(actual), classOf(expected));
  const words = `${classOf(expected)} of ${expected.length}`;
  return { path, sides: [a, e], shape: [expected.length], offsets: null, words };
}

const arraySide = (values: TypedArray, dtype: DType): Side => ({
  dtype,
  valuesNow: () => values,
  values: async () => values,
});

/**
 * The pair of two tensors; none if one is of `meta`, which has no values.
 *
 * @throws AssertionError for different shapes, dtypes, devices or strides
 */
export function* tensorPair(
  actual: Tensor,
  expected: Tensor,
  comparison: Comparison,
  path: string,
): Generator<Pair> {
  const check = checker(comparison, path);
  check('shape', actual.shape, expected.shape, sameShape);
  if (comparison.checkDtype) check('dtype', actual.dtype.name, expected.dtype.name);
  if (comparison.checkDevice) check('device', `${actual.device}`, `${expected.device}`);
  if (comparison.checkStride) check('stride', actual.stride(), expected.stride(), sameShape);
  check('layout', actual.layout, expected.layout);
  if (actual.isMeta || expected.isMeta) return;
  const [a, e] = [localShardOf(actual), localShardOf(expected)];
  const words = wordsOf(actual, expected);
  if (a !== null && e !== null && a.spec === e.spec && !isPartial(a)) {
    const { shape, offsets } = shardAt(a.spec, meshOf(a.spec).getCoordinate());
    const sides = [tensorSide(a.local), tensorSide(e.local)] as const;
    yield { path, sides, shape, offsets, words: `${words}: the shard of this rank` };
  } else {
    const sides = [tensorSide(actual), tensorSide(expected)] as const;
    yield { path, sides, shape: expected.shape, offsets: null, words };
  }
}

const isPartial = ({ spec }: LocalShard): boolean =>
  spec.placements.some((placement) => placement.isPartial());

/** `float32[2, 3]`, and for distributed tensors mesh and placements. */
function wordsOf(actual: Tensor, expected: Tensor): string {
  const words = (t: Tensor): string =>
    localShardOf(t)?.spec.toString() ?? `${t.dtype.name}${formatShape(t.shape)}`;
  const [a, e] = [words(actual), words(expected)];
  return a === e ? e : `expected ${e}, got ${a}`;
}

const tensorSide = (t: Tensor): Side => ({
  dtype: t.dtype,
  valuesNow: () => t.toTypedArray(),
  values: () => t.read(),
});

/** Checks properties of two values. */
function checker(comparison: Comparison, path: string) {
  return <T>(
    name: string,
    actual: T,
    expected: T,
    equals: (a: T, e: T) => boolean = Object.is,
  ): void => {
    if (equals(actual, expected)) return;
    const inWords = (value: T): string =>
      Array.isArray(value) ? formatShape(value) : String(value);
    throw failure(
      comparison,
      path,
      `expected ${name} ${inWords(expected)}, got ${inWords(actual)}`,
      [actual, expected],
    );
  };
}
