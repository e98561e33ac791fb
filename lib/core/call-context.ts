/**
 * Who is calling: for the texts of errors and for records of collectives. Compositions, layers and
 * modules set a field and restore it, so reading it is free and nothing searches the stack. Valid
 * for synchronous code only: each function restores the field before it returns.
 */

/** @internal */
export interface CallContext {
  /**
   * What the program called: a function made of other ops, or an op that runs as its decomposition.
   * The outermost one; null outside of both.
   */
  op: string | null;
  /** The call site in the program, if it was looked up while the stack was short. */
  site: string | null;
  /**
   * The modules that are being called, from the outermost to the innermost. In backward, those in
   * whose forward the node was recorded.
   */
  modules: readonly object[];
  /** How many observers need `modules`; modules do not register themselves while it is 0. */
  moduleObservers: number;
  /** Whether the work is part of a backward pass. */
  isBackward: boolean;
  /**
   * What the ranks must have in common beside the collectives that they call. Native code compares
   * it at every call, and errors quote it; a line of advice may follow.
   */
  purpose: string;
}

/** @internal */
export const callContext: CallContext = {
  op: null,
  site: null,
  modules: [],
  moduleObservers: 0,
  isBackward: false,
  purpose: '',
};

/** Runs `fn` as the work of `op`, unless a caller is named already. @internal */
export function calledAs<T>(op: string, fn: () => T): T {
  const before = callContext.op;
  callContext.op = before ?? op;
  try {
    return fn();
  } finally {
    callContext.op = before;
  }
}

/** Runs a call of a module. @internal */
export function insideModule<T>(module: object, fn: () => T): T {
  const before = callContext.modules;
  callContext.modules = [...before, module];
  try {
    return fn();
  } finally {
    callContext.modules = before;
  }
}

/** Runs the gradient of what was recorded inside of these modules. @internal */
export function insideBackwardOf<T>(modules: readonly object[], fn: () => T): T {
  const { modules: before, isBackward } = callContext;
  callContext.modules = modules;
  callContext.isBackward = true;
  try {
    return fn();
  } finally {
    callContext.modules = before;
    callContext.isBackward = isBackward;
  }
}

/** Runs `fn`, whose collectives serve this purpose. @internal */
export function withPurpose<T>(purpose: string, fn: () => T): T {
  const before = callContext.purpose;
  callContext.purpose = purpose;
  try {
    return fn();
  } finally {
    callContext.purpose = before;
  }
}
