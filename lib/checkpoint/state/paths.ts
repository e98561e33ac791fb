/** Objects of a state, and dotted paths into them. */
import { ArgumentError } from '../../core/errors.js';
import { Tensor } from '../../core/tensor.js';
import { isMap } from './built-ins.js';

/** An object that saves and loads itself: a module, an optimizer, a schedule, a `GradScaler`. */
export interface Stateful {
  /** The state: tensors and plain values, in objects and lists. */
  stateDict(): unknown;
  /** Takes such a state over. */
  loadStateDict(state: never): unknown;
}

export const joined = (path: string, name: string): string =>
  path === '' ? name : `${path}.${name}`;

/** Whether it is a plain object, maybe of another realm, that does not save itself. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return (prototype === null || Object.getPrototypeOf(prototype) === null) && !isStateful(value);
}

/** What an object, a list or a map holds, by name. */
export const membersOf = (value: object): ReadonlyMap<unknown, unknown> =>
  isMap(value) ? value : new Map(Object.entries(value));

export function isStateful(value: unknown): value is Stateful {
  if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return false;
  const { stateDict, loadStateDict } = value as Partial<Stateful>;
  return typeof stateDict === 'function' && typeof loadStateDict === 'function';
}

/**
 * A copy of a list, a map or a plain object with `fn` of each member. All else stays as it is; so
 * do members whose names are symbols, which are refused later.
 */
export function mapMembers(
  value: unknown,
  fn: (name: string, member: unknown) => unknown,
): unknown {
  if (Array.isArray(value)) return value.map((each, i) => fn(String(i), each));
  if (isMap(value)) return new Map([...value].map(([key, each]) => [key, fn(String(key), each)]));
  if (!isRecord(value)) return value;
  const symbols = Object.getOwnPropertySymbols(value).map((name) => [name, value[name as never]]);
  return Object.fromEntries([
    ...symbols,
    ...Object.entries(value).map(([name, each]) => [name, fn(name, each)]),
  ]);
}

/** Sets what a path leads to; objects on it that are missing are made. */
export function putAt(record: Record<string, unknown>, path: string, value: unknown): void {
  const dot = path.indexOf('.');
  const [name, rest] = dot < 0 ? [path, ''] : [path.slice(0, dot), path.slice(dot + 1)];
  const before = Object.hasOwn(record, name) ? record[name] : undefined;
  if (dot < 0 || (before !== undefined && !isRecord(before))) {
    // A property of its own, also if it is called __proto__.
    Object.defineProperty(record, path, {
      value,
      configurable: true,
      enumerable: true,
      writable: true,
    });
    return;
  }
  const inner = before ?? {};
  if (before === undefined) putAt(record, name, inner);
  putAt(inner, rest, value);
}

/** @throws ArgumentError for an object that contains itself, which no file can hold */
export function refuseCycles(op: string, state: unknown, at = ''): void {
  const above = new Map<object, string>();
  const visit = (value: unknown, path: string): void => {
    if (typeof value !== 'object' || value === null || isLeaf(value)) return;
    const outer = above.get(value);
    if (outer !== undefined) {
      const what = outer === '' ? 'the state itself' : `"${outer}" again`;
      throw new ArgumentError(
        `${op}: "${path}" of the state is ${what}; leave it out, because a file holds no object ` +
          'that contains itself',
        { op, path },
      );
    }
    above.set(value, path);
    for (const [name, each] of membersOf(value)) visit(each, joined(path, String(name)));
    above.delete(value);
  };
  visit(state, at);
}

const isLeaf = (value: object): boolean =>
  value instanceof Tensor || ArrayBuffer.isView(value) || isStateful(value);
