/** The key by which a sharding decision is cached: a short text for the parameters of a call. */
import { Device } from '../../core/device.js';
import { DType } from '../../core/dtype.js';

/** Keys of frozen params, which ops with few or no params share between calls. */
const frozenKeys = new WeakMap<object, { names: readonly string[]; key: string }>();
/** Params of ops are not deeper; a limit, because an object may contain itself. */
const MOST_NESTING = 4;

/**
 * The key of the parameters `names`, which the op's schema lists; equal parameters have equal keys.
 * Null where one holds what has no key: a tensor, a function, an object of some class.
 */
export function paramsKey(names: readonly string[], params: object): string | null {
  const known = frozenKeys.get(params);
  if (known !== undefined && known.names === names) return known.key;
  const key = valuesKey(names, params as Fields);
  if (key !== null && Object.isFrozen(params) && Object.values(params).every(isConstant))
    frozenKeys.set(params, { names, key });
  return key;
}

type Fields = Readonly<Record<string, unknown>>;

function isConstant(value: unknown): boolean {
  return (
    typeof value !== 'object' || value === null || value instanceof DType || value instanceof Device
  );
}

/** One value behind the other, in the order of the schema. */
function valuesKey(names: readonly string[], params: Fields): string | null {
  let key = '';
  for (let i = 0; i < names.length; i++) {
    const value = valueKey(params[names[i] as string], 0);
    if (value === null) return null;
    key += value;
  }
  return key;
}

/**
 * Texts are preceded by their length and numbers followed by a comma, so that keys are unambiguous.
 */
function fieldsKey(fields: Fields, depth: number): string | null {
  let key = '';
  for (const name in fields) {
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
