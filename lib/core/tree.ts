/**
 * The `tree` namespace: values as trees of arrays, plain objects and maps, with tensors at the
 * leaves. Arguments and results of modules are such trees.
 */
import { ArgumentError } from './errors.js';
import { checkFunction } from './options.js';
import { isPlain } from './plain-object.js';
import { Tensor } from './tensor.js';
import { ValuesAndIndices } from './values-and-indices.js';

/** Maximal depth; a value that contains itself is deeper. */
const MOST_LEVELS = 1000;

/**
 * Rebuilds a value with `fn` of every tensor in place of the tensor. Arrays, plain objects, maps,
 * and results such as those of `sort`, are copied, to any depth; all other values, such as
 * instances of classes, sets and the keys of maps, are taken over as they are. Tensors are visited
 * in order, one that occurs twice is visited twice.
 *
 * @throws ArgumentError if `fn` is no function, or the value contains itself or has more than 1000
 * levels
 * @see PyTorch `torch.utils._pytree.tree_map_only`
 * @example
 * const moved = tree.map((t) => t.to('cuda'), { x, options: [ones([2]), 3] });
 * moved.options[1]; // 3
 */
export function map<T>(fn: (t: Tensor) => Tensor, value: T): T;
export function map(fn: (t: Tensor) => unknown, value: unknown): unknown;
export function map(fn: (t: Tensor) => unknown, value: unknown): unknown {
  checkFunction('tree.map', 'fn', fn);
  return mapLeaves((leaf) => (leaf instanceof Tensor ? fn(leaf) : leaf), value);
}

/**
 * As {@link map} with `fn` of every leaf: of tensors and of all that is no container. `replace`
 * sees each object first: what it gives in place of one is not looked into. `copies`: containers so
 * far with their copies, so that one at two places is copied once. @internal
 */
export function mapLeaves(
  fn: (leaf: unknown) => unknown,
  value: unknown,
  replace: (value: object) => unknown = (object) => object,
  copies: Map<object, unknown> | null = null,
): unknown {
  return mapped({ fn, replace, copies }, value, 0);
}

interface Mapping {
  readonly fn: (leaf: unknown) => unknown;
  readonly replace: (value: object) => unknown;
  readonly copies: Map<object, unknown> | null;
}

/**
 * All tensors of a value in the order in which {@link map} visits them.
 *
 * @throws ArgumentError if the value contains itself or has more than 1000 levels
 * @see PyTorch `torch.utils._pytree.tree_leaves`
 */
export function tensors(value: unknown): Tensor[] {
  const found: Tensor[] = [];
  collect(value, found, 0);
  return found;
}

/**
 * All tensors that an argument or a result of a module leads to, each once: those of
 * {@link tensors}, and those in sets, keys of maps and properties of instances of classes, symbols
 * too, at any depth. Hooks of sharded modules follow them. @internal
 */
export function tensorsWithin(value: unknown): Tensor[] {
  const found: Tensor[] = [];
  const seen = new Set<object>();
  const open: unknown[] = [value];
  // The list grows while it is read.
  for (const next of open) {
    if (typeof next !== 'object' || next === null || seen.has(next)) continue;
    seen.add(next);
    if (next instanceof Tensor) found.push(next);
    else for (const item of itemsOf(next)) open.push(item);
  }
  return found;
}

/** What an object holds. Getters do not run, and binary data holds no tensors. */
function itemsOf(value: object): readonly unknown[] {
  if (Array.isArray(value)) return value;
  if (ArrayBuffer.isView(value)) return [];
  const items = value instanceof Map || value instanceof Set ? [...value.values()] : [];
  if (value instanceof Map) items.push(...value.keys());
  for (const name of Reflect.ownKeys(value)) {
    const item: unknown = Object.getOwnPropertyDescriptor(value, name)?.value;
    if (typeof item === 'object' && item !== null) items.push(item);
  }
  return items;
}

/** Whether a value is no tree, because an array, a plain object or a map contains itself. @internal */
export function containsItself(value: unknown, around = new Set<object>()): boolean {
  if (typeof value !== 'object' || value === null || value instanceof Tensor) return false;
  if (!isContainer(value) || around.size > MOST_LEVELS) return false;
  if (around.has(value)) return true;
  around.add(value);
  const items = value instanceof Map ? value.values() : Object.values(value);
  for (const item of items) if (containsItself(item, around)) return true;
  around.delete(value);
  return false;
}

/** Whether a value is one that {@link map} copies and looks into. @internal */
export const isContainer = (value: object): boolean =>
  Array.isArray(value) ||
  value instanceof Map ||
  value instanceof ValuesAndIndices ||
  isPlain(value);

function mapped(by: Mapping, value: unknown, level: number): unknown {
  if (value instanceof Tensor || typeof value !== 'object' || value === null) return by.fn(value);
  const replaced = by.replace(value);
  if (replaced !== value) return replaced;
  if (!isContainer(value)) return by.fn(value);
  const { copies } = by;
  if (copies?.has(value)) return copies.get(value);
  checkLevel('tree.map', level);
  const copy = copied(value, (item) => mapped(by, item, level + 1));
  copies?.set(value, copy);
  return copy;
}

/** A container of the same kind. */
function copied(value: object, inner: (item: unknown) => unknown): unknown {
  if (Array.isArray(value)) return value.map(inner);
  if (value instanceof Map) return new Map([...value].map(([key, item]) => [key, inner(item)]));
  if (value instanceof ValuesAndIndices)
    return new ValuesAndIndices(inner(value.values) as Tensor, inner(value.indices) as Tensor);
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, inner(item)]));
}

function collect(value: unknown, found: Tensor[], level: number): void {
  if (value instanceof Tensor) found.push(value);
  else if (typeof value !== 'object' || value === null) return;
  else if (Array.isArray(value)) {
    checkLevel('tree.tensors', level);
    for (const item of value) collect(item, found, level + 1);
  } else if (value instanceof Map) {
    checkLevel('tree.tensors', level);
    for (const item of value.values()) collect(item, found, level + 1);
  } else if (value instanceof ValuesAndIndices) found.push(value.values, value.indices);
  else if (isPlain(value)) {
    checkLevel('tree.tensors', level);
    for (const name of Object.keys(value)) collect(value[name], found, level + 1);
  }
}

function checkLevel(op: string, level: number): void {
  if (level >= MOST_LEVELS)
    throw new ArgumentError(
      `${op}: expected a value of at most ${MOST_LEVELS} levels of arrays, objects and maps, got ` +
        'more. A value that contains itself is no tree: pass its tensors as a list.',
      { op, levels: MOST_LEVELS },
    );
}
