/**
 * What the objects that a capture can reach hold before it: modules, `this`, and the arrays, maps,
 * sets, plain objects, instances of classes and bytes in them and in arguments. A function that
 * turns out to need its JavaScript at every call finds them as they were.
 */
import { isUnchanging } from '../../core/plain-object.js';
import { Tensor } from '../../core/tensor.js';
import { propertyPath } from './facts.js';
import { isModule, isOptimizer, setStateOfBuiltIn, stateOfBuiltIn } from './object-walk.js';
import { propertiesOfProgram } from './tensor-facts.js';

/** What one object held. */
interface Contents {
  isSame(): boolean;
  restore(): void;
}

/** Objects inside of instances that are looked at, at most. */
const MAX_INNER = 10_000;

/** The state of objects, each as it was when it was added. */
export class StateBefore {
  private readonly contents = new Map<object, Contents>();
  /** Paths of the objects inside of instances; guards may compare the identity alone. */
  private readonly inner = new Map<object, string>();

  add(value: object): void {
    if (!this.contents.has(value)) this.contents.set(value, contentsOf(value));
  }

  /** Adds what the program has added to a tensor. */
  addTensor(t: Tensor, path: string): void {
    if (this.contents.has(t)) return;
    this.add(t);
    this.inner.set(t, path);
  }

  /** Adds an object inside of an instance, and all that it refers to. */
  addInner(value: object, path: string): void {
    if (this.contents.has(value) || this.inner.size >= MAX_INNER || isSkipped(value)) return;
    this.add(value);
    if (isOptimizer(value)) return; // its state may be made by the capture, and stays
    this.inner.set(value, path);
    for (const [name, item] of partsOf(value))
      if (typeof item === 'object' && item !== null) this.addInner(item, propertyPath(path, name));
  }

  /** The path of an object inside of an instance that has changed; undefined if there is none. */
  changed(): string | undefined {
    for (const [value, path] of this.inner)
      if (this.contents.get(value)?.isSame() === false) return path;
    return undefined;
  }

  restore(): void {
    for (const contents of this.contents.values()) if (!contents.isSame()) contents.restore();
  }
}

/** Tensors and modules are compared and put back elsewhere. */
const isSkipped = (value: object): boolean =>
  value instanceof Tensor || isModule(value) || isUnchanging(value) || ArrayBuffer.isView(value);

function partsOf(value: object): (readonly [name: string, part: unknown])[] {
  if (value instanceof Map) return [...value].map(([key, item]) => [String(key), item]);
  if (value instanceof Set) return [...value].map((item) => ['values', item]);
  return propertiesOf(value);
}

function contentsOf(value: object): Contents {
  if (Array.isArray(value)) return new Items(value);
  if (value instanceof Map) return new Entries(value);
  if (value instanceof Set) return new Members(value);
  if (ArrayBuffer.isView(value)) return new Bytes(value);
  return new Properties(value);
}

/** The items of an array, which may have holes. */
class Items implements Contents {
  private readonly array: unknown[];
  private readonly items: readonly unknown[];

  constructor(array: unknown[]) {
    this.array = array;
    this.items = Array.prototype.slice.call(array);
  }

  isSame(): boolean {
    const { array, items } = this;
    if (array.length !== items.length) return false;
    for (let i = 0; i < items.length; i++)
      if (!Object.is(items[i], array[i]) || i in items !== i in array) return false;
    return true;
  }

  restore(): void {
    const { array, items } = this;
    array.length = items.length;
    for (let i = 0; i < items.length; i++)
      if (i in items) array[i] = items[i];
      else delete array[i];
  }
}

class Entries implements Contents {
  private readonly map: Map<unknown, unknown>;
  private readonly entries: readonly (readonly [unknown, unknown])[];

  constructor(map: Map<unknown, unknown>) {
    this.map = map;
    this.entries = [...map];
  }

  isSame(): boolean {
    return sameItems(this.entries.flat(), [...this.map].flat());
  }

  restore(): void {
    this.map.clear();
    for (const [key, value] of this.entries) this.map.set(key, value);
  }
}

class Members implements Contents {
  private readonly set: Set<unknown>;
  private readonly items: readonly unknown[];

  constructor(set: Set<unknown>) {
    this.set = set;
    this.items = [...set];
  }

  isSame(): boolean {
    return sameItems(this.items, [...this.set]);
  }

  restore(): void {
    this.set.clear();
    for (const item of this.items) this.set.add(item);
  }
}

class Bytes implements Contents {
  private readonly bytes: Buffer;
  private readonly before: Buffer;

  constructor({ buffer, byteOffset, byteLength }: ArrayBufferView) {
    this.bytes = Buffer.from(buffer, byteOffset, byteLength);
    this.before = Buffer.from(this.bytes);
  }

  isSame(): boolean {
    return this.before.equals(this.bytes);
  }

  restore(): void {
    this.before.copy(this.bytes);
  }
}

/**
 * The own properties that can be written; of a module, its training flag; of a date and its like,
 * what they keep beside properties.
 */
class Properties implements Contents {
  private readonly target: Record<string, unknown>;
  private readonly properties: ReadonlyMap<string, unknown>;
  private readonly trainingFlag: boolean | null;
  private readonly state: unknown;

  constructor(target: object) {
    this.target = target as Record<string, unknown>;
    this.properties = new Map(propertiesOf(target));
    this.trainingFlag = isModule(target) ? target.trainingFlag : null;
    this.state = stateOfBuiltIn(target);
  }

  isSame(): boolean {
    const { target, properties } = this;
    const now = propertiesOf(target);
    return (
      sameItems([...properties].flat(), now.flat()) &&
      (this.trainingFlag === null || target.trainingFlag === this.trainingFlag) &&
      Object.is(stateOfBuiltIn(target), this.state)
    );
  }

  restore(): void {
    const { target, properties, trainingFlag, state } = this;
    if (trainingFlag !== null) target.trainingFlag = trainingFlag;
    setStateOfBuiltIn(target, state);
    for (const [name] of propertiesOf(target)) if (!properties.has(name)) delete target[name];
    for (const [name, value] of properties)
      if (!Object.is(target[name], value)) target[name] = value;
  }
}

/** The own properties that can be written, with their values. Getters are not called. */
function propertiesOf(target: object): [name: string, value: unknown][] {
  const names = target instanceof Tensor ? propertiesOfProgram(target) : Object.keys(target);
  return names.flatMap((name) => {
    const property = Object.getOwnPropertyDescriptor(target, name);
    return property?.writable === true ? [[name, property.value]] : [];
  });
}

const sameItems = (before: readonly unknown[], now: readonly unknown[]): boolean =>
  before.length === now.length && before.every((item, i) => Object.is(item, now[i]));
