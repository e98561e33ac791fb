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
  /**
   * Runs the hooks of a module around `forward`, which stands for the method of that name. Filled
   * by lib/runtime.ts.
   */
  withHooks: (
    module: object,
    args: readonly unknown[],
    forward: (...args: never[]) => unknown,
  ) => unknown;
} = { run: null, withHooks: (_, args, forward) => forward(...(args as never[])) };

/** Runs a function while `run` runs the calls of modules. @internal */
export function callingModulesBy<T>(run: (typeof moduleCalls)['run'], fn: () => T): T {
  const before = moduleCalls.run;
  moduleCalls.run = run;
  try {
    return fn();
  } finally {
    moduleCalls.run = before;
  }
}
