/**
 * Flattens a value into a list; equal lists mean that the value is unchanged. A capture compares
 * the lists of arguments before and after the function ran.
 */
import { isAnyArrayBuffer } from 'node:util/types';
import { isPlain, isUnchanging } from '../../core/plain-object.js';
import { Tensor } from '../../core/tensor.js';

/** Receives one item of the list; false ends the walk. */
export type Visit = (item: unknown) => boolean;

/** Precedes the position of an object that was visited before: records aliasing and cycles. */
const SEEN = Symbol('seen');

/** The fields of a module that guards compare. */
export interface ModuleLike {
  readonly trainingFlag: boolean;
  readonly hooks: Readonly<Record<string, ReadonlyMap<number, unknown>>>;
}

export function isModule(value: object): value is ModuleLike {
  return typeof value === 'function' && 'trainingFlag' in value;
}

/** Whether a value is an optimizer, of the library or of the program. */
export const isOptimizer = (value: object): boolean => 'paramGroups' in value && 'state' in value;

/** The iterators of arrays, maps, sets and strings, which do not show where they are. */
const tags: ReadonlySet<string> = new Set(
  ['Array', 'Map', 'Set', 'String', 'RegExp String'].map((kind) => `${kind} Iterator`),
).add('Iterator Helper');

/** Whether a value is an iterator whose place nothing shows. */
export function isOpaqueIterator(value: object): boolean {
  const tag = (value as { [Symbol.toStringTag]?: unknown })[Symbol.toStringTag];
  return typeof tag === 'string' && tags.has(tag);
}

/**
 * Whether an array, a map or a set has properties of its own beside its items, as instances of
 * subclasses have: guards compare the items alone.
 */
export function hasOwnProperties(value: object): boolean {
  if (Array.isArray(value)) {
    const names = Object.keys(value);
    return names.length > 0 && !isIndex(names.at(-1) as string);
  }
  return (value instanceof Map || value instanceof Set) && Object.keys(value).length > 0;
}

const isIndex = (name: string): boolean => String(Number(name) >>> 0) === name;

/** What the language keeps in an instance beside its properties; null for nothing. */
export function stateOfBuiltIn(value: object): unknown {
  if (value instanceof Date) return value.getTime();
  if (value instanceof RegExp) return value.lastIndex;
  if (value instanceof Error) return value.message; // not among its enumerable properties
  if (value instanceof URL || value instanceof URLSearchParams) return String(value);
  return null;
}

/** Puts back what {@link stateOfBuiltIn} gave. */
export function setStateOfBuiltIn(value: object, state: unknown): void {
  if (value instanceof Date) value.setTime(state as number);
  else if (value instanceof RegExp) value.lastIndex = state as number;
  else if (value instanceof Error) value.message = state as string;
  else if (value instanceof URL) value.href = state as string;
  else if (value instanceof URLSearchParams) {
    for (const name of [...value.keys()]) value.delete(name);
    for (const [name, item] of new URLSearchParams(state as string)) value.append(name, item);
  }
}

/** One walk over several values, which may share objects. */
export class Walk {
  /** Visited objects with their positions. */
  readonly seen = new Map<object, number>();
  private readonly visit: Visit;

  constructor(visit: Visit) {
    this.visit = visit;
  }

  /**
   * Visits any value: plain values by value, at any depth; tensors by identity, instances of
   * classes by identity and by their fields. Only the identity counts of functions, and of
   * instances inside an instance, except modules.
   */
  value(value: unknown, inInstance = false): boolean {
    const { visit } = this;
    if (value === null || (typeof value !== 'object' && typeof value !== 'function'))
      return visit(value);
    if (this.seen.has(value)) return this.again(value);
    this.seen.set(value, this.seen.size);
    if (value instanceof Tensor) return visit(value);
    if (Array.isArray(value))
      return (
        visit(Array) && visit(value.length) && value.every((item) => this.value(item, inInstance))
      );
    if (value instanceof Map || value instanceof Set) return this.collection(value, inInstance);
    if (isPlain(value)) return visit(Object) && this.properties(value, inInstance);
    if (ArrayBuffer.isView(value)) return this.bytes(value);
    if (isAnyArrayBuffer(value)) return this.bytes(new Uint8Array(value));
    if (isModule(value)) return this.module(value);
    if (typeof value === 'function' || inInstance || isUnchanging(value)) return visit(value);
    return visit(value) && visit(stateOfBuiltIn(value)) && this.properties(value, true);
  }

  private again(object: object): boolean {
    let position = this.seen.get(object);
    if (position === undefined) {
      position = this.seen.size;
      this.seen.set(object, position);
    }
    return this.visit(SEEN) && this.visit(position);
  }

  private collection(
    value: ReadonlyMap<unknown, unknown> | ReadonlySet<unknown>,
    inInstance: boolean,
  ): boolean {
    const { visit } = this;
    if (!visit(value instanceof Map ? Map : Set) || !visit(value.size)) return false;
    for (const [key, item] of value.entries())
      if (!this.value(key, inInstance) || (value instanceof Map && !this.value(item, inInstance)))
        return false;
    return true;
  }

  private bytes(view: ArrayBufferView): boolean {
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    return (
      this.visit(view.constructor) &&
      this.visit(bytes.length) &&
      bytes.every((byte) => this.visit(byte))
    );
  }

  private module(module: object & ModuleLike): boolean {
    const { visit } = this;
    if (!visit(module) || !visit(module.trainingFlag)) return false;
    for (const hooks of Object.values(module.hooks)) {
      if (!visit(hooks.size)) return false;
      for (const hook of hooks.values()) if (!visit(hook)) return false;
    }
    return this.properties(module, false);
  }

  private properties(value: object, inInstance: boolean): boolean {
    const names = Object.keys(value);
    if (!this.visit(names.length)) return false;
    for (const name of names)
      if (!this.visit(name) || !this.value((value as Record<string, unknown>)[name], inInstance))
        return false;
    return true;
  }
}

/** The list that `walk` visits. */
export function listOf(walk: (over: Walk) => boolean): unknown[] {
  const items: unknown[] = [];
  walk(new Walk((item) => items.push(item) > 0));
  return items;
}

/** Whether `walk` still visits this list. */
export function sameList(items: readonly unknown[], walk: (over: Walk) => boolean): boolean {
  let next = 0;
  return walk(new Walk((item) => Object.is(items[next++], item))) && next === items.length;
}
