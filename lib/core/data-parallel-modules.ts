/** Modules that reduce gradients over ranks themselves, so that each rank passes its own batch. */
const marked = new WeakSet<object>();

/**
 * Marks a module that makes data parallel training of a forward and a backward on one rank's part
 * of the batch, as `fullyShard` and `DistributedDataParallel` do. `spmd.compile` leaves the plain
 * tensors of its steps as they are: it would reduce gradients once more.
 *
 * @example
 * markDataParallel(model);
 */
export function markDataParallel(module: object): void {
  marked.add(module);
}

/** Whether a module was marked. @internal */
export const isDataParallel = (module: object): boolean => marked.has(module);
