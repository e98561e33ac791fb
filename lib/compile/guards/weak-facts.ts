/**
 * What guards compare of a `WeakMap` or a `WeakSet`, which does not show what is in it: of each
 * tensor and object of the arguments whether it is in one, and then which it is; and what the
 * function was given for each key that it asked for.
 */
import { shown } from '../../core/options.js';
import { isObject } from '../../core/plain-object.js';
import { Tensor } from '../../core/tensor.js';
import type { Difference } from './facts.js';
import { firstOf, type Slot } from './matcher.js';

export type WeakCollection = WeakMap<object, unknown> | WeakSet<object>;

export const isWeakCollection = (value: unknown): value is WeakCollection =>
  value instanceof WeakMap || value instanceof WeakSet;

/** An object of the arguments. */
interface Part {
  readonly path: string;
  /** The object that stands in its place in a call. */
  now(inputs: readonly Tensor[]): object | null;
  /** The object of the capture, if it was in a collection before; else null. */
  readonly member: WeakRef<object> | null;
}

/** A key that the function asked for, with what it is given after the capture. */
class Answer {
  private readonly path: string;
  private readonly collection: WeakRef<WeakCollection>;
  private readonly key: WeakRef<object>;
  private readonly expected: unknown;

  constructor(path: string, collection: WeakCollection, key: object) {
    this.path = path;
    this.collection = new WeakRef(collection);
    this.key = new WeakRef(key);
    this.expected = keptWeakly(answerOf(collection, key));
  }

  /** A key or a collection that is gone can be asked for no more. */
  difference(): Difference | null {
    const [collection, key] = [this.collection.deref(), this.key.deref()];
    if (collection === undefined || key === undefined) return null;
    const [before, now] = [valueOf(this.expected), answerOf(collection, key)];
    if (Object.is(before, now)) return null;
    const [was, is] = [shown(before), shown(now)];
    return { path: this.path, before: was, now: was === is ? 'another one' : is };
  }

  sentence(): string {
    return `${this.path} is ${shown(valueOf(this.expected))}`;
  }
}

const answerOf = (collection: WeakCollection, key: object): unknown =>
  collection instanceof WeakMap ? WeakMap.prototype.get.call(collection, key) : collection.has(key);

const keptWeakly = (value: unknown): unknown => (isObject(value) ? new WeakRef(value) : value);
const valueOf = (kept: unknown): unknown => (kept instanceof WeakRef ? kept.deref() : kept);

interface Uses {
  readonly path: string;
  readonly asked: Set<object>;
  /** Keys whose entries the function changes itself, which happens at captures only. */
  readonly changed: Set<object>;
  /** Keys for which it stores tensors, which have no values at captures, with what was there. */
  readonly before: Map<object, unknown>;
  /** Its methods that say what they are called with. */
  readonly replaced: string[];
}

/** Collects during one capture. */
export class WeakCollections {
  private readonly collections = new Map<WeakCollection, Uses>();
  private readonly members = new WeakSet<object>();
  private isWatching = false;

  /** Adds a collection before its first use. `parts`: tensors and objects of the arguments. */
  add(collection: WeakCollection, path: string, parts: readonly object[]): void {
    if (this.collections.has(collection)) return;
    const uses: Uses = {
      path,
      asked: new Set(),
      changed: new Set(),
      before: new Map(),
      replaced: [],
    };
    this.collections.set(collection, uses);
    for (const part of parts) if (collection.has(part)) this.members.add(part);
    if (this.isWatching) watch(collection, uses);
  }

  /** Remembers the keys that the program asks for, until {@link unwatch}. */
  watch(): void {
    this.isWatching = true;
    for (const [collection, uses] of this.collections) watch(collection, uses);
  }

  unwatch(): void {
    this.isWatching = false;
    for (const [collection, uses] of this.collections) unwatch(collection, uses);
  }

  /** The path of a map in which the function stored a tensor; undefined if there is none. */
  changed(): string | undefined {
    for (const [collection, { path, before }] of this.collections)
      for (const key of before.keys())
        if (collection.has(key)) return `${path}, in which it stores a tensor,`;
    return undefined;
  }

  /** Takes stored tensors out again. What is stored for their keys later counts. */
  restore(): void {
    for (const [collection, { changed, before }] of this.collections) {
      for (const [key, value] of before) {
        changed.delete(key);
        if (value === undefined) collection.delete(key);
        else (collection as WeakMap<object, unknown>).set(key, value);
      }
      before.clear();
    }
  }

  /** Of objects of the arguments, others stand in their places in other calls. */
  private answers(given: readonly object[]): Answer[] {
    const others = new Set(given.filter((part) => !this.members.has(part)));
    return [...this.collections].flatMap(([collection, { path, asked, changed }]) =>
      [...asked]
        .filter((key) => !others.has(key) && !changed.has(key))
        .map((key) => new Answer(`${path} of ${shown(key)}`, collection, key)),
    );
  }

  /** Null if there are no collections. */
  facts(
    inputs: readonly Tensor[],
    given: readonly (readonly [value: object, slot: Slot])[],
    pathOf: (position: number) => string,
  ): WeakFacts | null {
    if (this.collections.size === 0) return null;
    const memberOf = (part: object): WeakRef<object> | null =>
      this.members.has(part) ? new WeakRef(part) : null;
    return new WeakFacts(
      [...this.collections.keys()].map((each) => new WeakRef(each)),
      this.answers([...inputs, ...given.map(([value]) => value)]),
      [
        ...inputs.map((t, i): Part => {
          const now = (of: readonly Tensor[]): object | null => of[i] ?? null;
          return { path: pathOf(i), now, member: memberOf(t) };
        }),
        ...given.map(([value, slot]): Part => {
          const path = 'an object of the arguments';
          return { path, now: () => slot.current, member: memberOf(value) };
        }),
      ],
    );
  }
}

const METHODS = ['has', 'get', 'set', 'add', 'delete'];

/** While it has methods of its own, a collection says for what it is asked. */
function watch(collection: WeakCollection, { asked, changed, before, replaced }: Uses): void {
  if (!Object.isExtensible(collection)) return;
  const methods = collection as unknown as Record<string, (...args: unknown[]) => unknown>;
  for (const name of METHODS) {
    const method = methods[name];
    // A set has no get(); those of a program stay.
    if (method === undefined || Object.hasOwn(collection, name)) continue;
    const keys = name === 'has' || name === 'get' ? asked : changed;
    const value = (key: unknown, ...more: unknown[]): unknown => {
      if (isObject(key)) keys.add(key);
      if (isObject(key) && more[0] instanceof Tensor && !before.has(key))
        before.set(key, answerOf(collection, key));
      return method.call(collection, key, ...more);
    };
    Object.defineProperty(collection, name, { value, configurable: true });
    replaced.push(name);
  }
}

function unwatch(collection: WeakCollection, { replaced }: Uses): void {
  for (const name of replaced.splice(0)) Reflect.deleteProperty(collection, name);
}

export class WeakFacts {
  private readonly collections: readonly WeakRef<WeakCollection>[];
  private readonly answers: readonly Answer[];
  private readonly parts: readonly Part[];

  constructor(
    collections: readonly WeakRef<WeakCollection>[],
    answers: readonly Answer[],
    parts: readonly Part[],
  ) {
    this.collections = collections;
    this.answers = answers;
    this.parts = parts;
  }

  /** Slots must have the objects of the call. */
  matches(inputs: readonly Tensor[]): boolean {
    return (
      this.answers.every((answer) => answer.difference() === null) &&
      this.parts.every((part) => this.isSame(part, part.now(inputs)))
    );
  }

  private isSame({ member }: Part, now: object | null): boolean {
    if (member !== null) return now === member.deref();
    return now === null || !this.collections.some((each) => each.deref()?.has(now));
  }

  difference(inputs: readonly Tensor[]): Difference | null {
    return firstOf(this.answers, (answer) => answer.difference()) ?? this.differenceOfParts(inputs);
  }

  private differenceOfParts(inputs: readonly Tensor[]): Difference | null {
    return firstOf(this.parts, (part) => {
      if (this.isSame(part, part.now(inputs))) return null;
      const { path, member } = part;
      const [inOne, inNone] = ['in a WeakMap or a WeakSet', 'in none'];
      return member === null
        ? { path, before: inNone, now: inOne }
        : { path, before: `the one ${inOne}`, now: 'another one' };
    });
  }

  sentences(): string[] {
    const ofParts = this.parts.map(({ path, member }) =>
      member === null
        ? `${path} is in no WeakMap or WeakSet of the function`
        : `${path} is the same object, which a WeakMap or a WeakSet of the function has`,
    );
    return [...this.answers.map((answer) => answer.sentence()), ...ofParts];
  }
}
