/**
 * What guards compare of a `WeakMap` or a `WeakSet`, which does not show what is in it: of each
 * tensor and object of the arguments whether it is in one, and then which it is.
 */
import type { Tensor } from '../../core/tensor.js';
import type { Difference } from './facts.js';
import { firstOf, type Slot } from './matcher.js';

type WeakCollection = WeakMap<object, unknown> | WeakSet<object>;

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

/** Collects during one capture. */
export class WeakCollections {
  private readonly collections = new Map<WeakCollection, WeakRef<WeakCollection>>();
  private readonly members = new WeakSet<object>();

  /** Adds a collection before its first use. `parts`: tensors and objects of the arguments. */
  add(collection: WeakCollection, parts: readonly object[]): void {
    if (this.collections.has(collection)) return;
    this.collections.set(collection, new WeakRef(collection));
    for (const part of parts) if (collection.has(part)) this.members.add(part);
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
      [...this.collections.values()],
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

export class WeakFacts {
  private readonly collections: readonly WeakRef<WeakCollection>[];
  private readonly parts: readonly Part[];

  constructor(collections: readonly WeakRef<WeakCollection>[], parts: readonly Part[]) {
    this.collections = collections;
    this.parts = parts;
  }

  /** Slots must have the objects of the call. */
  matches(inputs: readonly Tensor[]): boolean {
    return this.parts.every((part) => this.isSame(part, part.now(inputs)));
  }

  private isSame({ member }: Part, now: object | null): boolean {
    if (member !== null) return now === member.deref();
    return now === null || !this.collections.some((each) => each.deref()?.has(now));
  }

  difference(inputs: readonly Tensor[]): Difference | null {
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
    return this.parts.map(({ path, member }) =>
      member === null
        ? `${path} is in no WeakMap or WeakSet of the function`
        : `${path} is the same object, which a WeakMap or a WeakSet of the function has`,
    );
  }
}
