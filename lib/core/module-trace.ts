/**
 * Which modules are being called, for those that want to know whose work something is. Nothing is
 * written down unless someone asks.
 */

/** @internal */
export interface ModuleTrace {
  /** How many ask at the moment. */
  asking: number;
  /**
   * From the outermost call to the innermost; in backward, those in whose forward the node was
   * made.
   */
  calls: readonly object[];
  /** Whether the work is part of a backward pass. */
  backward: boolean;
}

/** @internal */
export const moduleTrace: ModuleTrace = { asking: 0, calls: [], backward: false };

/** Runs a call of a module. @internal */
export function insideModule<T>(module: object, fn: () => T): T {
  const before = moduleTrace.calls;
  moduleTrace.calls = [...before, module];
  try {
    return fn();
  } finally {
    moduleTrace.calls = before;
  }
}

/** Runs the gradient of what was done in such calls. @internal */
export function insideBackwardOf<T>(calls: readonly object[], fn: () => T): T {
  const { calls: before, backward } = moduleTrace;
  moduleTrace.calls = calls;
  moduleTrace.backward = true;
  try {
    return fn();
  } finally {
    moduleTrace.calls = before;
    moduleTrace.backward = backward;
  }
}
