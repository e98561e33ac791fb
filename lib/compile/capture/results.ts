/**
 * The result of a captured function: tensors and objects of the arguments in their places, all else
 * as the capture returned it.
 */
import { Tensor } from '../../core/tensor.js';
import { isContainer, mapLeaves, map as mapTensors } from '../../core/tree.js';
import { PLACE } from './functions.js';

/** Builds the result of a call. */
export type Rebuild = (
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  args: readonly unknown[],
) => unknown;

/** An object of the arguments, which a result has, too. */
class Given {
  private readonly path: readonly unknown[];

  constructor(path: readonly unknown[]) {
    this.path = path;
  }

  in(args: readonly unknown[]): unknown {
    let at: unknown = args;
    for (const step of this.path)
      at = at instanceof Map ? at.get(step) : (at as Record<PropertyKey, unknown>)[step as string];
    return at;
  }
}

/** An object that was there before the capture, and that the arguments do not have. */
class Kept {
  readonly value: object;

  constructor(value: object) {
    this.value = value;
  }
}

/**
 * The result, with its objects of the arguments, and others that were there before, as places in
 * it. `isOuter`: whether an object was there before the capture.
 */
export function withPlaces(
  result: unknown,
  args: readonly unknown[],
  isOuter: (value: object) => boolean,
): unknown {
  let given: ReadonlyMap<object, Given> | null = null;
  return mapLeaves(
    (leaf) => leaf,
    result,
    (value) => {
      if (!isContainer(value)) return value;
      given ??= objectsIn(args);
      return given.get(value) ?? (isOuter(value) ? new Kept(value) : value);
    },
  );
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
 * Puts the outputs into the shape of a result with places. `sources`: of each tensor, the input or
 * the tensor from outside that it is; -1 for an output. It holds nothing else of the capture.
 */
export function rebuildFrom(result: unknown, sources: readonly (number | Tensor)[]): Rebuild {
  const template = mapTensors(() => PLACE, result);
  return (outputs, inputs, args) => {
    let next = 0;
    const output = (): Tensor | undefined => {
      const i = next++;
      const source = sources[i] as Tensor | number;
      if (typeof source !== 'number') return source;
      return source >= 0 ? inputs[source] : outputs[i];
    };
    const object = (value: object): unknown =>
      value instanceof Given ? value.in(args) : value instanceof Kept ? value.value : value;
    const leaf = (value: unknown): unknown => (value instanceof Tensor ? output() : value);
    return mapLeaves(leaf, template, object);
  };
}
