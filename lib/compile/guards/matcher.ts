/** Matchers of values without parts, and of arguments that are tensors. */
import { shown } from '../../core/options.js';
import { Tensor } from '../../core/tensor.js';
import type { Difference } from './facts.js';
import { areAnyNumbers, type TensorFacts } from './tensor-facts.js';

/** Compares a value with the one that it was made from. */
export abstract class Matcher {
  abstract matches(value: unknown): boolean;
  /** The first difference of a value, if it does not match. */
  abstract difference(path: string, value: unknown): Difference | null;
  /** What is compared, as sentences. */
  abstract sentences(path: string): string[];
  /** Whether it compares the getter of a property instead of what that returns. */
  get isOfGetter(): boolean {
    return false;
  }
}

/** An object of the value, with the object that stood in its place in the latest call. */
export interface Slot {
  current: object | null;
  /** The object of the capture; null for arguments, which a reference would keep in this turn. */
  readonly first: WeakRef<object> | null;
}

/** The same object, or the same plain value. */
export class Same extends Matcher {
  private readonly expected: unknown;

  constructor(expected: unknown) {
    super();
    this.expected = expected;
  }

  matches(value: unknown): boolean {
    return Object.is(value, this.expected) || areAnyNumbers(value, this.expected);
  }

  difference(path: string, value: unknown): Difference | null {
    if (this.matches(value)) return null;
    const [before, now] = [shown(this.expected), shown(value)];
    return { path, before, now: before === now ? `another ${now.replace(/^an? /, '')}` : now };
  }

  sentences(path: string): string[] {
    return [`${path} is ${shown(this.expected)}`];
  }
}

/** A getter, which a comparison does not call: what it closes over is compared. */
export class Getter extends Same {
  override get isOfGetter(): boolean {
    return true;
  }
}

/**
 * An object that stood at another place, too: of the same call, if that has been compared, or else,
 * as objects of modules and variables, that of the capture.
 */
export class Again extends Matcher {
  private readonly slot: Slot;

  constructor(slot: Slot) {
    super();
    this.slot = slot;
  }

  matches(value: unknown): boolean {
    const { current, first } = this.slot;
    return value === (current ?? first?.deref());
  }

  difference(path: string, value: unknown): Difference | null {
    if (this.matches(value)) return null;
    return { path, before: 'an object that is passed twice', now: 'another object' };
  }

  sentences(path: string): string[] {
    return [`${path} is an object that is passed twice`];
  }
}

export class TensorArgument extends Matcher {
  private readonly facts: TensorFacts;
  private readonly slot: Slot;
  private readonly storage: Slot | null;
  private readonly isFirstOnStorage: boolean;

  constructor(facts: TensorFacts, slot: Slot, storage: Slot | null, isFirstOnStorage: boolean) {
    super();
    this.facts = facts;
    this.slot = slot;
    this.storage = storage;
    this.isFirstOnStorage = isFirstOnStorage;
  }

  matches(value: unknown): boolean {
    return value instanceof Tensor && this.facts.matches(value) && this.matchesMemory(value);
  }

  private matchesMemory(t: Tensor): boolean {
    this.slot.current = t;
    if (this.storage === null) return t.storage === null;
    if (!this.isFirstOnStorage) return t.storage === this.storage.current;
    this.storage.current = t.storage;
    return true;
  }

  difference(path: string, value: unknown): Difference | null {
    if (!(value instanceof Tensor)) return { path, before: String(this.facts), now: shown(value) };
    if (!this.facts.matches(value)) return this.facts.difference(path, value);
    if (this.matchesMemory(value)) return null;
    return { path, before: 'a tensor that shares memory', now: 'one with memory of its own' };
  }

  sentences(path: string): string[] {
    const shares = this.isFirstOnStorage ? '' : ', and shares memory with an earlier argument';
    return [`${path} is ${this.facts}${shares}`];
  }
}

/** The first result that is not null. */
export function firstOf<T, R>(
  items: readonly T[],
  find: (item: T, i: number) => R | null,
): R | null {
  for (let i = 0; i < items.length; i++) {
    const found = find(items[i] as T, i);
    if (found !== null) return found;
  }
  return null;
}
