/** The base class of parallel styles, and the proxy that lets programs omit `new`. */

import type { DeviceMesh } from '../../distributed/index.js';
import type { nn } from '../../index.js';

/** Options of {@link parallelizeModule} that reach the styles. */
export interface StyleOptions {
  /**
   * The source of values. 0: the mesh's first rank sends its values. null: each rank takes its
   * shard from its own tensor.
   */
  srcDataRank?: 0 | null;
}

/** Options of {@link ParallelStyle._apply}. */
export interface ApplyOptions extends StyleOptions {
  /**
   * The path of the module in the argument of `parallelizeModule`, for errors; empty for the
   * argument itself.
   */
  path?: string;
}

/** Names of {@link ApplyOptions}. @internal */
export const APPLY_OPTIONS = 'path srcDataRank';

/**
 * How one module runs on the ranks of a mesh. Subclasses distribute its parameters, inputs and
 * outputs.
 *
 * @see PyTorch `torch.distributed.tensor.parallel.ParallelStyle`
 */
export abstract class ParallelStyle {
  /**
   * Distributes the module's parameters and registers hooks. `parallelizeModule` calls it once for
   * each module with this style.
   */
  abstract _apply(module: nn.AnyModule, mesh: DeviceMesh, options?: ApplyOptions): void;
}

/** A class that can be called without `new`: `ColwiseParallel()` is `new ColwiseParallel()`. */
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
