/**
 * What all parallel styles have in common: they are applied to one module, and are made without
 * `new`.
 */

import type { DeviceMesh } from '../../distributed/index.js';
import type { nn } from '../../index.js';

/** What {@link parallelizeModule} tells a style beside module and mesh. */
export interface StyleOptions {
  /**
   * Whose values count: 0, those of the mesh's first rank, which sends them; null, each rank cuts
   * its part out of what it has.
   */
  srcDataRank?: 0 | null;
}

/** What a style is told of the module that it is applied to. */
export interface ApplyOptions extends StyleOptions {
  /**
   * Where the module is in the one that was given to `parallelizeModule`; empty for that one. For
   * messages.
   */
  path?: string;
}

/** Names of {@link ApplyOptions}. @internal */
export const APPLY_OPTIONS = 'path srcDataRank';

/**
 * A way to run one module on the ranks of a mesh. Subclasses say what becomes of its parameters,
 * inputs and outputs.
 *
 * @see PyTorch `torch.distributed.tensor.parallel.ParallelStyle`
 */
export abstract class ParallelStyle {
  /**
   * Distributes the module's parameters and hooks it; called once by `parallelizeModule` for each
   * module that the style is given to.
   */
  abstract _apply(module: nn.AnyModule, mesh: DeviceMesh, options?: ApplyOptions): void;
}

/** A class that can be called, too: `ColwiseParallel()` is `new ColwiseParallel()`. */
export interface CallableClass<Args extends readonly unknown[], T> {
  (...args: Args): T;
  new (...args: Args): T;
  readonly prototype: T;
}

/** The class under its public name, callable without `new`. */
export function callable<Args extends readonly unknown[], T extends object>(
  name: string,
  Class: new (...args: Args) => T,
): CallableClass<Args, T> {
  Object.defineProperty(Class, 'name', { value: name });
  return new Proxy(Class, {
    apply: (_, __, args) => new Class(...(args as unknown as Args)),
  }) as unknown as CallableClass<Args, T>;
}
