/**
 * Samples become a batch in two steps, so that the first can run in a worker thread: arrays of all
 * samples side by side in memory, then tensors.
 */
import { DataError } from '../core/errors.js';
import { shown } from '../core/options.js';
import type { Tensor } from '../index.js';

type Numeric = number | bigint | boolean;
type NestedNumbers = readonly Numeric[] | readonly NestedNumbers[];

/** What {@link defaultCollate} makes of samples of a type. */
export type Collated<Sample> = unknown extends Sample
  ? unknown
  : Sample extends Tensor | Numeric | ArrayBufferView | NestedNumbers
    ? Tensor
    : Sample extends string
      ? string[]
      : { [Key in keyof Sample]: Collated<Sample[Key]> };

/** Arrays of all samples side by side. */
export interface HostArray {
  readonly kind: 'array';
  readonly data: ArrayBufferView;
  readonly shape: readonly number[];
  /** `own`: that of the array. `default`: the default dtype of numbers. */
  readonly dtype: 'bool' | 'int64' | 'own' | 'default';
}

/** A batch before it has tensors: arrays, in the lists and objects that a sample has. */
export type HostBatch =
  | HostArray
  | { readonly kind: 'list'; readonly items: readonly HostBatch[] }
  | { readonly kind: 'record'; readonly items: Readonly<Record<string, HostBatch>> }
  /** Strings, and tensors of this thread. */
  | { readonly kind: 'values'; readonly values: readonly unknown[] };

/**
 * Puts samples side by side. @throws DataError with the path in the sample for kinds that differ, or
 * are none of those that a batch can have
 */
export function collateArrays(samples: readonly unknown[], path = ''): HostBatch {
  const [first] = samples;
  if (first instanceof Object && ArrayBuffer.isView(first)) return ofViews(samples, path);
  if (isNumeric(first)) return ofNumbers(samples, path);
  if (typeof first === 'string' || isTensor(first)) {
    const kind = typeof first === 'string' ? 'a string' : 'a tensor';
    const isLike = typeof first === 'string' ? (s: unknown) => typeof s === 'string' : isTensor;
    requireAll(samples, path, isLike, kind);
    return { kind: 'values', values: samples };
  }
  if (Array.isArray(first)) {
    const isLike = (s: unknown): boolean => Array.isArray(s) && s.length === first.length;
    requireAll(samples, path, isLike, `an array of ${first.length}`);
    const lists = samples as unknown[][];
    const items = first.map((_, i) =>
      collateArrays(
        lists.map((list) => list[i]),
        `${path}[${i}]`,
      ),
    );
    return { kind: 'list', items };
  }
  if (typeof first === 'object' && first !== null) return ofRecords(samples, first, path);
  throw wrong(
    path,
    'numbers, typed arrays, strings, tensors, or arrays and objects of them',
    first,
  );
}

/** A number, or arrays of numbers, nested to one depth: a pair of a vector and a number is none. */
function isNumeric(value: unknown): boolean {
  if (!Array.isArray(value)) return isNumber(value);
  return value.length > 0 && (value.every(isNumber) || value.every(isNumericArray));
}

const isNumber = (value: unknown): value is Numeric =>
  typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean';
const isNumericArray = (value: unknown): boolean => Array.isArray(value) && isNumeric(value);

/** Tensors are known by what they have: a worker need not load them. */
export const isTensor = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && 'untypedStorage' in value;

function ofRecords(samples: readonly unknown[], first: object, path: string): HostBatch {
  const names = Object.keys(first);
  const isLike = (sample: unknown): boolean =>
    typeof sample === 'object' &&
    sample !== null &&
    Object.keys(sample).length === names.length &&
    names.every((name) => Object.hasOwn(sample, name));
  requireAll(samples, path, isLike, `an object with ${names.join(', ') || 'nothing'}`);
  const records = samples as Record<string, unknown>[];
  const items = names.map((name) => [
    name,
    collateArrays(
      records.map((record) => record[name]),
      path === '' ? name : `${path}.${name}`,
    ),
  ]);
  return { kind: 'record', items: Object.fromEntries(items) };
}

type View = ArrayBufferView & { readonly length: number; set(from: View, at: number): void };
type ViewClass = new (length: number) => View;

function ofViews(samples: readonly unknown[], path: string): HostArray {
  const first = samples[0] as View;
  const ofClass = first.constructor as unknown as ViewClass;
  requireAll(
    samples,
    path,
    (s) => s instanceof ofClass && s.length === first.length,
    `a ${ofClass.name} of ${first.length}`,
  );
  const data = new ofClass(samples.length * first.length);
  samples.forEach((each, i) => data.set(each as View, i * first.length));
  return { kind: 'array', data, shape: [samples.length, first.length], dtype: 'own' };
}

function ofNumbers(samples: readonly unknown[], path: string): HostArray {
  const shape = [samples.length, ...shapeOf(samples[0])];
  const flat: Numeric[] = [];
  samples.forEach((sample, i) =>
    flatten(sample, shape, 1, flat, () => unlike(samples, i, path, shape)),
  );
  if (flat.every((n) => typeof n === 'boolean'))
    return { kind: 'array', data: Uint8Array.from(flat, Number), shape, dtype: 'bool' };
  if (flat.every((n) => typeof n === 'bigint'))
    return { kind: 'array', data: BigInt64Array.from(flat as bigint[]), shape, dtype: 'int64' };
  // Doubles, because the default dtype may be float64.
  return { kind: 'array', data: Float64Array.from(flat, Number), shape, dtype: 'default' };
}

function shapeOf(value: unknown): number[] {
  return Array.isArray(value) ? [value.length, ...shapeOf(value[0])] : [];
}

function flatten(
  value: unknown,
  shape: readonly number[],
  depth: number,
  flat: Numeric[],
  failure: () => DataError,
): void {
  if (depth === shape.length) {
    if (!isNumber(value)) throw failure();
    flat.push(value);
    return;
  }
  if (!Array.isArray(value) || value.length !== shape[depth]) throw failure();
  for (const each of value) flatten(each, shape, depth + 1, flat, failure);
}

function unlike(
  samples: readonly unknown[],
  index: number,
  path: string,
  [, ...shape]: readonly number[],
): DataError {
  const like = shape.length === 0 ? 'a number' : `numbers in arrays of ${shape.join(' by ')}`;
  return wrong(path, `${like}, as in the first sample`, samples[index], index);
}

function requireAll(
  samples: readonly unknown[],
  path: string,
  isLike: (sample: unknown) => boolean,
  like: string,
): void {
  const index = samples.findIndex((sample) => !isLike(sample));
  if (index >= 0) throw wrong(path, `${like}, as in the first sample`, samples[index], index);
}

function wrong(path: string, expected: string, value: unknown, index = 0): DataError {
  const where = path === '' ? 'the samples' : `${path} of the samples`;
  const given = ArrayBuffer.isView(value)
    ? `${shown(value)} of ${(value as View).length}`
    : shown(value);
  return new DataError(
    `defaultCollate: expected ${where} to be ${expected}; sample ${index} of the batch has ` +
      `${given}. Give a collateFn for other samples.`,
    { path, expected, sample: index },
  );
}
