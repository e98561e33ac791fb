/**
 * Makes the matchers of a guard: each is made from a value at a capture, and compares the value at
 * a call with it. Plain values count by value at any depth; functions, modules, tensors from
 * outside by identity; instances by identity and by what they hold.
 */
import { shown } from '../../core/options.js';
import { isPlain, isUnchanging } from '../../core/plain-object.js';
import { Tensor } from '../../core/tensor.js';
import { isContainer } from '../../core/tree.js';
import { ValuesAndIndices } from '../../core/values-and-indices.js';
import {
  Bytes,
  Entries,
  Fields,
  getterOf,
  hasBytes,
  Instance,
  List,
  type Pair,
  Referred,
  WithProperties,
} from './container-matchers.js';
import { propertyPath } from './facts.js';
import { Again, Getter, type Matcher, Same, type Slot, TensorArgument } from './matcher.js';
import { isModule } from './object-walk.js';
import { propertiesOfProgram, TensorFacts } from './tensor-facts.js';
import { isWeakCollection, type WeakCollection } from './weak-facts.js';

/** What a value refers to and is compared elsewhere. */
export interface References {
  tensor(t: Tensor, path: string): void;
  /** A tensor to which the program may add properties. */
  properties(t: Tensor, path: string): void;
  module(module: object, path: string): void;
  /** An array, an object, a collection or bytes, before the value is used. */
  container(value: object, path: string): void;
  /** A collection that does not show what is in it, before the value is used. */
  weak(value: WeakCollection, path: string): void;
  /** An instance inside of an instance, before the value is used. */
  inner(value: object, path: string): void;
  /** An instance inside of an instance that is one too many to be compared. */
  tooMany(path: string): void;
  /** A function, an instance of a class or the object that the function is called on. */
  members(value: object, path: string, isInner: boolean): void;
  /** Adds a getter; returns whether what it closes over is compared. */
  isSeen(getter: object): boolean;
  /** Whether only the identity of an object counts. `isInner`: it is inside of an instance. */
  isOpaque(value: object, isInner: boolean): boolean;
}

/** Instances inside of instances that are compared, at most. */
const MOST_INNER = 1000;

const isSelected = (value: unknown): boolean => value instanceof ValuesAndIndices;

/** Makes the matchers of one guard. Values may share objects. */
export class MatcherFactory {
  /** Tensors of arguments, containers and storages; different ones must stay different. */
  readonly slots: Slot[] = [];
  private readonly seen = new Map<object, Slot>();
  /** Tensors whose properties of the program were looked at. */
  private readonly extended = new Set<Tensor>();
  /** Objects of which the identity alone counts. */
  private readonly opaque = new WeakSet<object>();
  private readonly references: References;
  /** Whether the objects of arguments are looked at. */
  private isArgument = false;
  private readonly paths = new Map<Tensor, string>();
  /** Instances inside of instances so far. */
  private inner = 0;

  constructor(references: References) {
    this.references = references;
  }

  /**
   * Of an argument. Tensors in arrays, plain objects and maps are inputs of the graph, so only
   * their metadata counts, and which of them share memory.
   */
  argument(value: unknown, path: string): Matcher {
    const { isArgument } = this;
    this.isArgument = true;
    const matcher = this.inArguments(value, path);
    this.isArgument = isArgument;
    return matcher;
  }

  private inArguments(value: unknown, path: string): Matcher {
    if (typeof value !== 'object' || value === null) return this.value(value, path);
    if (!(value instanceof Tensor) && !isContainer(value)) return this.value(value, path);
    const again = this.again(value);
    if (again !== null) return again;
    if (value instanceof Tensor) return this.tensorArgument(value, path);
    const matcher = this.container(value, path, (item, at) => this.inArguments(item, at));
    this.given.push([value, this.seen.get(value) as Slot]);
    return matcher;
  }

  private tensorArgument(value: Tensor, path: string): Matcher {
    return this.withProperties(this.tensor(value, path), value, path);
  }

  /** A tensor that leads to itself is compared once. */
  private withProperties(matcher: Matcher, value: Tensor, path: string): Matcher {
    const names = propertiesOfProgram(value);
    if (this.extended.has(value)) return matcher;
    this.extended.add(value);
    this.references.properties(value, path);
    if (names.length === 0) return matcher;
    const fields = new Fields(names, this.items(value, names, path, false), newSlot());
    return new WithProperties(matcher, fields, propertiesOfProgram);
  }

  private tensor(value: Tensor, path: string): Matcher {
    this.paths.set(value, path);
    const { storage } = value;
    const facts = new TensorFacts(value);
    if (storage === null) return new TensorArgument(facts, this.slot(value), null, false);
    const shared = this.seen.get(storage);
    return new TensorArgument(
      facts,
      this.slot(value),
      shared ?? this.slot(storage),
      shared === undefined,
    );
  }

  /** Of the object that the function is called on: of a plain one, the identity counts, too. */
  receiver(value: object, path: string): Matcher {
    if (!isPlain(value)) return this.value(value, path);
    return this.again(value) ?? this.instance(value, path);
  }

  /** The arrays, objects and collections of the arguments, with their slots. */
  readonly given: (readonly [value: object, slot: Slot])[] = [];

  /** The tensors, the arrays, objects and collections of the arguments so far. */
  parts(): object[] {
    return [...this.paths.keys(), ...this.given.map(([value]) => value)];
  }

  /** The path of a tensor of the arguments. */
  pathOf(t: Tensor): string {
    return this.paths.get(t) ?? 'an argument';
  }

  /** Of any value. Instances inside of an instance are compared if they are of the program. */
  value(value: unknown, path: string, isInInstance = false): Matcher {
    if (value === null || (typeof value !== 'object' && typeof value !== 'function'))
      return new Same(value);
    if (value instanceof Tensor) {
      this.references.tensor(value, path);
      return this.withProperties(new Same(value), value, path);
    }
    if (isModule(value)) {
      this.references.module(value, path);
      return new Same(value);
    }
    if (typeof value === 'function') this.references.members(value, path, isInInstance);
    if (typeof value === 'function' || isUnchanging(value)) return new Same(value);
    const again = this.again(value);
    if (again !== null) return again;
    if (isWeakCollection(value)) this.references.weak(value, path);
    if (value instanceof WeakRef) return this.reference(value, path);
    if (this.references.isOpaque(value, false)) return this.identity(value);
    const inner = (item: unknown, at: string): Matcher => this.value(item, at, isInInstance);
    if (isContainer(value) || value instanceof Set) return this.container(value, path, inner);
    if (hasBytes(value)) return new Bytes(value, this.containerSlot(value, path));
    return isInInstance ? this.innerInstance(value, path) : this.instance(value, path);
  }

  private innerInstance(value: object, path: string): Matcher {
    const { references } = this;
    references.inner(value, path);
    if (references.isOpaque(value, true)) return this.identity(value);
    if (this.inner++ < MOST_INNER) return this.instance(value, path, true);
    references.tooMany(path);
    return new Same(value);
  }

  private reference(value: WeakRef<object>, path: string): Matcher {
    this.slot(value);
    return new Referred(value, this.value(value.deref(), `${path}.deref()`));
  }

  private identity(value: object): Matcher {
    this.opaque.add(value);
    return new Same(value);
  }

  private instance(value: object, path: string, isInner = false): Matcher {
    this.references.members(value, path, isInner);
    const slot = this.containerSlot(value, path);
    const names = Object.keys(value);
    const fields = new Fields(names, this.items(value, names, path, true), slot);
    const instance = new Instance(value, fields);
    const inherited = inheritedNames(value);
    if (inherited.length === 0) return instance;
    const items = this.items(value, inherited, path, true);
    const above = new Fields(inherited, items, newSlot());
    return new WithProperties(instance, above, inheritedNames);
  }

  private container(
    value: object,
    path: string,
    inner: (item: unknown, path: string) => Matcher,
  ): Matcher {
    const slot = this.containerSlot(value, path);
    if (Array.isArray(value))
      return new List(
        Array.from(value, (item, i) => inner(item, `${path}[${i}]`)),
        slot,
      );
    if (value instanceof Map) {
      const entries = [...value].map(
        ([key, item]): Pair => [
          this.value(key, `a key of ${path}`),
          inner(item, `${path}.get(${shown(key)})`),
        ],
      );
      return new Entries(true, entries, slot);
    }
    if (value instanceof Set) {
      const keys = [...value].map((key): Pair => [this.value(key, `a value of ${path}`), null]);
      return new Entries(false, keys, slot);
    }
    const names = Object.keys(value);
    const fields = this.fields(value, names, path, inner);
    return new Fields(names, fields, slot, isSelected(value) ? isSelected : isPlain);
  }

  private items(
    value: object,
    names: readonly string[],
    path: string,
    isInInstance: boolean,
  ): Matcher[] {
    return this.fields(value, names, path, (item, at) => this.value(item, at, isInInstance));
  }

  /** Calls no getter of the program, which may change what it closes over. */
  private fields(
    value: object,
    names: readonly string[],
    path: string,
    inner: (item: unknown, path: string) => Matcher,
  ): Matcher[] {
    return names.map((name) => {
      const getter = getterOf(value, name);
      if (getter !== undefined && this.references.isSeen(getter)) return new Getter(getter);
      return inner((value as Record<string, unknown>)[name], propertyPath(path, name));
    });
  }

  /** Whether an object has been met. */
  knows(value: object): boolean {
    return this.seen.has(value) || this.opaque.has(value);
  }

  private again(value: object): Matcher | null {
    const slot = this.seen.get(value);
    return slot === undefined ? null : new Again(slot);
  }

  private containerSlot(value: object, path: string): Slot {
    this.references.container(value, path);
    return this.slot(value);
  }

  private slot(value: object): Slot {
    const slot = newSlot(this.isArgument || value instanceof Tensor ? null : value);
    this.seen.set(value, slot);
    this.slots.push(slot);
    return slot;
  }
}

const newSlot = (first: object | null = null): Slot => ({
  current: null,
  first: first === null ? null : new WeakRef(first),
});

/** The enumerable properties that an object has of those above it: of no class, as a rule. */
function inheritedNames(value: object): readonly string[] {
  const names: string[] = [];
  for (const name in value) if (!Object.hasOwn(value, name)) names.push(name);
  return names;
}

/** Number of slots up to which all pairs are compared. */
const FEW = 8;

/** Lets go of the objects of the latest call. */
export function forget(slots: readonly Slot[]): void {
  for (let i = 0; i < slots.length; i++) (slots[i] as Slot).current = null;
}

/** Whether the objects of the latest call are as different as those of the capture. */
export function areDistinct(slots: readonly Slot[]): boolean {
  if (slots.length > FEW) return new Set(slots.map((slot) => slot.current)).size === slots.length;
  for (let i = 1; i < slots.length; i++)
    for (let j = 0; j < i; j++) if (slots[i]?.current === slots[j]?.current) return false;
  return true;
}
