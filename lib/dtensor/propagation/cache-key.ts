/**
 * A short text for the params of an op: equal ones have equal keys. What decisions are cached by.
 */
import { Device } from '../../core/device.js';
import { DType } from '../../core/dtype.js';

/** Keys of frozen params, which ops without params and with few of them share between calls. */
const frozenKeys = new WeakMap<object, string>();
/** Deeper ones, perhaps without an end, are no params of an op. */
const MOST_NESTING = 4;

/** Where the numbers of a draw come from: other ones each time, which no decision depends on. */
const DRAW: ReadonlySet<string> = new Set(['seedLow', 'seedHigh', 'offset']);

/**
 * The key, or null where params hold something that has none: a tensor, a function, an object of
 * some class.
 */
export function paramsKey(params: object): string | null {
  const known = frozenKeys.get(params);
  if (known !== undefined) return known;
  const key = fieldsKey(params as Fields, 0, 'seedLow' in params ? DRAW : null);
  if (key !== null && Object.isFrozen(params) && Object.values(params).every(isConstant))
    frozenKeys.set(params, key);
  return key;
}

type Fields = Readonly<Record<string, unknown>>;

function isConstant(value: unknown): boolean {
  return (
    typeof value !== 'object' || value === null || value instanceof DType || value instanceof Device
  );
}

/**
 * Lengths stand before texts and commas behind numbers, so that none can look like the beginning of
 * what follows.
 */
function fieldsKey(
  fields: Fields,
  depth: number,
  without: ReadonlySet<string> | null = null,
): string | null {
  let key = '';
  for (const name in fields) {
    if (without?.has(name)) continue;
    const value = valueKey(fields[name], depth);
    if (value === null) return null;
    key += `${name.length}:${name}${value}`;
  }
  return key;
}

function valueKey(value: unknown, depth: number): string | null {
  switch (typeof value) {
    case 'number':
      return `=${value},`;
    case 'boolean':
      return value ? 't' : 'f';
    case 'string':
      return `'${value.length}:${value}`;
    case 'undefined':
      return 'u';
    case 'bigint':
      return `=${value}n,`;
    case 'object':
      return value === null ? '0' : objectKey(value, depth + 1);
    default:
      return null;
  }
}

function objectKey(value: object, depth: number): string | null {
  if (value instanceof DType) return `:${value.name},`;
  if (value instanceof Device) return `@${value.toString()},`;
  if (depth > MOST_NESTING) return null;
  if (Array.isArray(value)) return arrayKey(value, depth);
  if (Object.getPrototypeOf(value) !== Object.prototype) return null;
  const fields = fieldsKey(value as Fields, depth);
  return fields === null ? null : `{${fields}}`;
}

function arrayKey(values: readonly unknown[], depth: number): string | null {
  let key = `[${values.length},`;
  for (const value of values) {
    const element = valueKey(value, depth);
    if (element === null) return null;
    key += element;
  }
  return key;
}
