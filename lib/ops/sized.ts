/** Lets factories take sizes one by one: `zeros(2, 3)` beside `zeros([2, 3])`. */

import type { Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/** A factory of tensors of a given size, with options of the type `O`. */
export interface SizedFactory<O> {
  (size: Shape, options?: O): Tensor;
  (...size: number[]): Tensor;
  (...sizeAndOptions: [...size: number[], options: O]): Tensor;
  (sizeAndOptions: O & { size: Shape }): Tensor;
}

/** Lets a factory take sizes one by one. `listed` takes them as an array. */
export function sizedFactory<O>(listed: (size: Shape, options?: O) => Tensor): SizedFactory<O> {
  const factory = (...args: unknown[]): Tensor => {
    const [size, options] = typeof args[0] === 'number' ? separate(args) : args;
    return listed(size as Shape, options as O);
  };
  Object.defineProperty(factory, 'name', { value: listed.name, configurable: true });
  return factory as SizedFactory<O>;
}

/** The same for a method; its `listed` takes the tensor first. */
export function sizedMethod<O>(
  listed: (input: Tensor, size: Shape, options?: O) => Tensor,
): (this: Tensor, ...args: unknown[]) => Tensor {
  return function (...args) {
    const [size, options] = typeof args[0] === 'number' ? separate(args) : args;
    return listed(this, size as Shape, options as O);
  };
}

/** The sizes at the front of the arguments, and the remaining arguments. */
function separate(args: readonly unknown[]): [unknown[], unknown] {
  const end = args.findIndex((arg) => typeof arg === 'object' || arg === undefined);
  return end === -1 ? [[...args], undefined] : [args.slice(0, end), args[end]];
}

/**
 * The sizes or dims of a call of a method: given one by one, as an array, or by name in options.
 * @internal
 */
export function listOrFirst(args: readonly unknown[]): readonly number[] {
  return (typeof args[0] === 'object' ? args[0] : args) as readonly number[];
}
