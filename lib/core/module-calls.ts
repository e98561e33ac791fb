/** Who runs the calls of modules. */

/** Calls a module: runs its hooks and `forward`. @internal */
export type ModuleCall = (module: object, args: readonly unknown[]) => unknown;

/** @internal */
export const moduleCalls: {
  /**
   * Runs a call in place of the module, which `call` does. Null while modules run themselves.
   * `compile` sets it while a function runs that could not be captured.
   */
  run: ((module: object, args: readonly unknown[], call: ModuleCall) => unknown) | null;
} = { run: null };
