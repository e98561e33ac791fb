/**
 * The result of a captured function: tensors and objects of the arguments in their places, those
 * that were there before as they are, and all else made anew at each call.
 */
import { isOfLibrary } from '../../core/library-exports.js';
import { kindOf } from '../../core/options.js';
import { isUnchanging } from '../../core/plain-object.js';
import { Tensor } from '../../core/tensor.js';
import { isContainer, mapLeaves } from '../../core/tree.js';
import { isBuiltIn } from '../closures/names.js';
import { hasBytes } from '../guards/container-matchers.js';
import type { Recorder } from './recorder.js';

/** Builds the result of a call. */
export type Rebuild = (
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  args: readonly unknown[],
) => unknown;

/** What a result is built from. */
interface Run {
  readonly args: readonly unknown[];
  /** What has been made for this result, so that an object at two places is one. */
  readonly made: Map<object, unknown>;
  tensor(position: number): Tensor | undefined;
}

/** What stands in a result for an object that each call finds or makes. */
abstract class Place {
  abstract in(run: Run): unknown;
}

/** A tensor, by its position among those of the result. */
class Output extends Place {
  private readonly position: number;

  constructor(position: number) {
    super();
    this.position = position;
  }

  in(run: Run): unknown {
    return run.tensor(this.position);
  }
}

/** An object of the arguments, which a result has, too. */
class Given extends Place {
  private readonly path: readonly unknown[];

  constructor(path: readonly unknown[]) {
    super();
    this.path = path;
  }

  in({ args }: Run): unknown {
    let at: unknown = args;
    for (const step of this.path)
      at = at instanceof Map ? at.get(step) : (at as Record<PropertyKey, unknown>)[step as string];
    return at;
  }
}

/** An object that was there before the capture, and that the arguments do not have. */
class Kept extends Place {
  private readonly value: object;

  constructor(value: object) {
    super();
    this.value = value;
  }

  in(): unknown {
    return this.value;
  }
}

/** A date, bytes or a set that the function made. */
class Made extends Place {
  private readonly make: (run: Run) => object;

  constructor(make: (run: Run) => object) {
    super();
    this.make = make;
  }

  in(run: Run): unknown {
    return madeOnce(run, this, () => this.make(run));
  }
}

function madeOnce<T extends object>({ made }: Run, key: object, make: () => T): T {
  const known = made.get(key) as T | undefined;
  if (known !== undefined) return known;
  const value = make();
  made.set(key, value);
  return value;
}

/**
 * The result, with places for objects of the arguments, for others that were there before, and for
 * those that each call makes. @throws CompileError for an instance that no call could make anew
 */
export function withPlaces(result: unknown, args: readonly unknown[], recorder: Recorder): unknown {
  const places = new Map<object, Place>();
  let given: ReadonlyMap<object, Given> | null = null;
  const placeOf = (value: object): Place | null => {
    given ??= objectsIn(args);
    const found = given.get(value);
    if (found !== undefined) return found;
    if (recorder.guards.knows(value)) return new Kept(value);
    return isContainer(value) ? null : madeAnew(value, replaced, recorder);
  };
  const replace = (value: object): unknown => {
    const place = places.get(value) ?? placeOf(value);
    if (place === null) return value;
    places.set(value, place);
    return place;
  };
  const copies = new Map<object, unknown>();
  const replaced = (value: unknown): unknown => mapLeaves((leaf) => leaf, value, replace, copies);
  return replaced(result);
}

/** The place of an object that is no container and that the capture did not find. */
function madeAnew(
  value: object,
  inner: (value: unknown) => unknown,
  recorder: Recorder,
): Place | null {
  if (value instanceof Place || isUnchanging(value) || isOfLibrary(value)) return null;
  const { constructor } = value;
  if (value instanceof Set && constructor === Set) {
    const items = inner([...value]);
    return new Made((run) => new Set(filled(items, run) as unknown[]));
  }
  if (value instanceof Date && constructor === Date) {
    const time = value.getTime();
    return new Made(() => new Date(time));
  }
  if (hasBytes(value) && isBuiltIn(constructor)) return new Made((run) => copyOf(value, run));
  return recorder.unsupported(`${kindOf(value)} was made and returned`);
}

/** A copy of bytes. Views of one buffer stay so. */
function copyOf(value: ArrayBufferView | ArrayBufferLike, run: Run): object {
  if (!ArrayBuffer.isView(value)) return madeOnce(run, value, () => value.slice(0));
  if (value instanceof Buffer) return Buffer.from(value);
  const { buffer, byteOffset, byteLength } = value;
  const copy = copyOf(buffer, run);
  const length = 'length' in value ? (value.length as number) : byteLength;
  return Reflect.construct(value.constructor, [copy, byteOffset, length]) as object;
}

function objectsIn(args: readonly unknown[]): ReadonlyMap<object, Given> {
  const found = new Map<object, Given>();
  const add = (value: unknown, path: readonly unknown[]): void => {
    if (typeof value !== 'object' || value === null || value instanceof Tensor) return;
    if (found.has(value) || !isContainer(value)) return;
    found.set(value, new Given(path));
    const items = value instanceof Map ? [...value] : Object.entries(value);
    for (const [step, item] of items) add(item, [...path, step]);
  };
  args.forEach((value, i) => add(value, [i]));
  return found;
}

/**
 * Puts the outputs into the shape of a result with places. `tensors`: those of the result, and
 * `sources`: of each, the input or the tensor from outside that it is; -1 for an output. It holds
 * nothing else of the capture.
 */
export function rebuildFrom(
  result: unknown,
  tensors: readonly Tensor[],
  sources: readonly (number | Tensor)[],
): Rebuild {
  const positions = new Map<unknown, number>();
  for (const [i, t] of tensors.entries()) if (!positions.has(t)) positions.set(t, i);
  const place = (leaf: unknown): unknown =>
    leaf instanceof Tensor ? new Output(positions.get(leaf) as number) : leaf;
  const template = mapLeaves(place, result, undefined, new Map());
  return (outputs, inputs, args) => {
    const tensor = (position: number): Tensor | undefined => {
      const source = sources[position] as Tensor | number;
      if (typeof source !== 'number') return source;
      return source >= 0 ? inputs[source] : outputs[position];
    };
    return filled(template, { args, made: new Map(), tensor });
  };
}

/** What a template is in a run. */
const filled = (template: unknown, run: Run): unknown =>
  mapLeaves(
    (leaf) => leaf,
    template,
    (value) => (value instanceof Place ? value.in(run) : value),
    run.made,
  );
