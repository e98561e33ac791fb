/** Matchers of values with parts: arrays, plain objects, instances, collections, bytes. */
import { isAnyArrayBuffer } from 'node:util/types';
import { shown } from '../../core/options.js';
import { isPlain } from '../../core/plain-object.js';
import { type Difference, propertyPath } from './facts.js';
import { firstOf, Matcher, Same, type Slot } from './matcher.js';
import { stateOfBuiltIn } from './object-walk.js';

export class List extends Matcher {
  private readonly items: readonly Matcher[];
  private readonly slot: Slot;

  constructor(items: readonly Matcher[], slot: Slot) {
    super();
    this.items = items;
    this.slot = slot;
  }

  matches(value: unknown): boolean {
    const { items } = this;
    if (!Array.isArray(value) || value.length !== items.length) return false;
    this.slot.current = value;
    for (let i = 0; i < items.length; i++) if (!items[i]?.matches(value[i])) return false;
    return true;
  }

  difference(path: string, value: unknown): Difference | null {
    const { length } = this.items;
    if (!Array.isArray(value)) return { path, before: 'an array', now: shown(value) };
    if (value.length !== length)
      return { path: `${path}.length`, before: String(length), now: String(value.length) };
    this.slot.current = value;
    return firstOf(this.items, (item, i) => item.difference(`${path}[${i}]`, value[i]));
  }

  sentences(path: string): string[] {
    return this.items.length === 0
      ? [`${path} is []`]
      : this.items.flatMap((item, i) => item.sentences(`${path}[${i}]`));
  }
}

/** The properties of an object by name. */
export class Fields extends Matcher {
  private readonly names: readonly string[];
  private readonly items: readonly Matcher[];
  private readonly slot: Slot;

  private readonly isKind: (value: unknown) => boolean;

  /** `isKind`: whether a value is of the kind of the object. */
  constructor(
    names: readonly string[],
    items: readonly Matcher[],
    slot: Slot,
    isKind: (value: unknown) => boolean = isPlain,
  ) {
    super();
    this.names = names;
    this.items = items;
    this.slot = slot;
    this.isKind = isKind;
  }

  matches(value: unknown): boolean {
    return this.isKind(value) && this.matchesFields(value as object);
  }

  matchesFields(value: object): boolean {
    const { names, items } = this;
    this.slot.current = value;
    const now = Object.keys(value);
    if (now.length !== names.length) return false;
    for (let i = 0; i < names.length; i++) {
      const name = names[i] as string;
      const item = items[i] as Matcher;
      if (now[i] !== name || !item.matches(propertyFor(item, value, name))) return false;
    }
    return true;
  }

  difference(path: string, value: unknown): Difference | null {
    if (!this.isKind(value)) return { path, before: 'an object', now: shown(value) };
    return this.differenceOfFields(path, value as object);
  }

  differenceOfFields(path: string, value: object): Difference | null {
    this.slot.current = value;
    const [before, now] = [this.names, Object.keys(value)].map((names) => names.join(', '));
    if (before !== now)
      return { path: `the list of keys of ${path}`, before: before as string, now: now as string };
    return firstOf(this.items, (item, i) => {
      const name = this.names[i] as string;
      return item.difference(propertyPath(path, name), propertyFor(item, value, name));
    });
  }

  sentences(path: string): string[] {
    return this.items.flatMap((item, i) =>
      item.sentences(propertyPath(path, this.names[i] as string)),
    );
  }
}

/** What a matcher compares of a property. */
const propertyFor = (matcher: Matcher, value: object, name: string): unknown =>
  matcher.isOfGetter ? getterOf(value, name) : (value as Record<string, unknown>)[name];

/** The getter of an own property; undefined if it has none. */
export const getterOf = (value: object, name: string): (() => unknown) | undefined =>
  Object.getOwnPropertyDescriptor(value, name)?.get;

/** An instance of a class: the same, with the same plain values in its properties. */
export class Instance extends Matcher {
  private readonly expected: object;
  private readonly fields: Fields;
  private readonly state: unknown;

  constructor(expected: object, fields: Fields) {
    super();
    this.expected = expected;
    this.fields = fields;
    this.state = stateOfBuiltIn(expected);
  }

  matches(value: unknown): boolean {
    const { expected } = this;
    if (value !== expected || !this.fields.matchesFields(expected)) return false;
    return this.state === null || Object.is(stateOfBuiltIn(expected), this.state);
  }

  difference(path: string, value: unknown): Difference | null {
    if (value !== this.expected) return new Same(this.expected).difference(path, value);
    const now = stateOfBuiltIn(this.expected);
    if (!Object.is(now, this.state)) return { path, before: String(this.state), now: String(now) };
    return this.fields.differenceOfFields(path, this.expected);
  }

  sentences(path: string): string[] {
    return [...new Same(this.expected).sentences(path), ...this.fields.sentences(path)];
  }
}

/** An item of a collection. */
export type Pair = readonly [key: Matcher, value: Matcher | null];

/** A map, or a set: pairs without values. The order counts. */
export class Entries extends Matcher {
  private readonly isMap: boolean;
  private readonly pairs: readonly Pair[];
  private readonly slot: Slot;

  constructor(isMap: boolean, pairs: readonly Pair[], slot: Slot) {
    super();
    this.isMap = isMap;
    this.pairs = pairs;
    this.slot = slot;
  }

  matches(value: unknown): boolean {
    return this.difference('', value) === null;
  }

  difference(path: string, value: unknown): Difference | null {
    const { pairs, isMap } = this;
    if (!(isMap ? value instanceof Map : value instanceof Set))
      return { path, before: isMap ? 'a Map' : 'a Set', now: shown(value) };
    const { size } = value as Map<unknown, unknown>;
    if (size !== pairs.length)
      return { path: `${path}.size`, before: String(pairs.length), now: String(size) };
    this.slot.current = value as object;
    const entries = [...(value as Map<unknown, unknown>).entries()];
    return firstOf(pairs, ([key, item], i) => {
      const [name, now] = entries[i] as [unknown, unknown];
      return (
        key.difference(`a key of ${path}`, name) ??
        (item === null ? null : item.difference(`${path}.get(${shown(name)})`, now))
      );
    });
  }

  sentences(path: string): string[] {
    return this.pairs.flatMap(([key, item], i) => [
      ...key.sentences(`key ${i} of ${path}`),
      ...(item?.sentences(`value ${i} of ${path}`) ?? []),
    ]);
  }
}

/** A typed array, another view of bytes, or their buffer. */
export class Bytes extends Matcher {
  private readonly type: unknown;
  private readonly bytes: Buffer;
  private readonly slot: Slot;

  constructor(view: object, slot: Slot) {
    super();
    this.type = view.constructor;
    this.bytes = Buffer.from(bytesOf(view));
    this.slot = slot;
  }

  matches(value: unknown): boolean {
    if (!hasBytes(value) || value.constructor !== this.type) return false;
    this.slot.current = value;
    return this.bytes.equals(bytesOf(value));
  }

  difference(path: string, value: unknown): Difference | null {
    if (this.matches(value)) return null;
    return { path, before: `${this.bytes.length} bytes`, now: `other bytes in ${shown(value)}` };
  }

  sentences(path: string): string[] {
    return [`${path} has the same ${this.bytes.length} bytes`];
  }
}

/** Whether a value is a view of bytes, or a buffer of them. */
export const hasBytes = (value: unknown): value is ArrayBufferView | ArrayBufferLike =>
  ArrayBuffer.isView(value) || isAnyArrayBuffer(value);

const bytesOf = (value: object): Buffer =>
  ArrayBuffer.isView(value)
    ? Buffer.from(value.buffer, value.byteOffset, value.byteLength)
    : Buffer.from(value as ArrayBuffer);

/** A value that has properties of the program beside what it is compared by. */
export class WithProperties extends Matcher {
  private readonly inner: Matcher;
  private readonly fields: Fields;
  private readonly namesOf: (value: object) => readonly string[];

  /** `namesOf`: the properties of the program that a value has. */
  constructor(inner: Matcher, fields: Fields, namesOf: (value: object) => readonly string[]) {
    super();
    this.inner = inner;
    this.fields = fields;
    this.namesOf = namesOf;
  }

  matches(value: unknown): boolean {
    return this.inner.matches(value) && this.fields.matches(this.propertiesOf(value as object));
  }

  difference(path: string, value: unknown): Difference | null {
    return (
      this.inner.difference(path, value) ??
      this.fields.difference(path, this.propertiesOf(value as object))
    );
  }

  sentences(path: string): string[] {
    return [...this.inner.sentences(path), ...this.fields.sentences(path)];
  }

  private propertiesOf(value: object): object {
    const names = this.namesOf(value);
    return Object.fromEntries(
      names.map((name) => [name, (value as Record<string, unknown>)[name]]),
    );
  }
}

/** A weak reference, and what it refers to. */
export class Referred extends Matcher {
  private readonly reference: WeakRef<object>;
  private readonly target: Matcher;

  constructor(reference: WeakRef<object>, target: Matcher) {
    super();
    this.reference = reference;
    this.target = target;
  }

  matches(value: unknown): boolean {
    return value === this.reference && this.target.matches(this.reference.deref());
  }

  difference(path: string, value: unknown): Difference | null {
    if (value !== this.reference) return new Same(this.reference).difference(path, value);
    return this.target.difference(`${path}.deref()`, this.reference.deref());
  }

  sentences(path: string): string[] {
    return this.target.sentences(`${path}.deref()`);
  }
}
