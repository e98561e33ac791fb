/**
 * The current call of the program, for messages of errors and records of collectives. Composite
 * functions, layers and modules set a field and restore it, so reading it is free and no code
 * searches the stack. Valid for synchronous code only, because each function restores the field
 * before it returns.
 */

/** @internal */
export interface CallContext {
  /**
   * The outermost composite function, or op that runs as its decomposition, that the program
   * called. Null outside of both.
   */
  op: string | null;
  /** What to do where `op` would wait, such as "Use `await scaler.stepAsync(…)` instead." */
  advice: string | null;
  /** The call site in the program, if it was looked up while the stack was short. */
  site: string | null;
  /**
   * The modules whose forward is running, from the outermost to the innermost. In backward, the
   * modules whose forward recorded the node.
   */
  modules: readonly object[];
  /** How many observers need `modules`; modules do not register themselves while it is 0. */
  moduleObservers: number;
  /** Whether the work is part of a backward pass. */
  isBackward: boolean;
  /**
   * The reason for the collectives that run now, which must be equal on all ranks. Native code
   * compares it at every call, and errors quote it; a line of advice may follow.
   */
  purpose: string;
  /** Gives the redistribution that communicates, for observers of collectives; null outside. */
  cause: (() => string) | null;
  /** The mesh dimension of the redistribution's current step. */
  meshDim: string | null;
}

/** @internal */
export const callContext: CallContext = {
  op: null,
  advice: null,
  site: null,
  modules: [],
  moduleObservers: 0,
  isBackward: false,
  purpose: '',
  cause: null,
  meshDim: null,
};

/**
 * Runs `fn` and names `op` as its caller, unless an outer caller is named already. `advice`: what
 * to do where it would wait for other ranks, as a sentence. @internal
 */
export function calledAs<T>(op: string, fn: () => T, advice: string | null = null): T {
  const { op: before, advice: adviceBefore } = callContext;
  if (before === null) {
    callContext.op = op;
    callContext.advice = advice;
  }
  try {
    return fn();
  } finally {
    callContext.op = before;
    callContext.advice = adviceBefore;
  }
}

/** Runs `fn` with the module on the stack of modules. @internal */
export function insideModule<T>(module: object, fn: () => T): T {
  const before = callContext.modules;
  callContext.modules = [...before, module];
  try {
    return fn();
  } finally {
    callContext.modules = before;
  }
}

/** Runs a gradient that was recorded inside these modules. @internal */
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

/**
 * Runs `fn` with `site` as the place that errors name for the collectives in it. A library that
 * calls collectives says so what it does; and the search for the program's line, which takes tens
 * of microseconds in a deep stack, is saved.
 *
 * @example
 * const [whole, shard] = [zeros([4]), ones([2])];
 * withCallSite('the all-gather of blocks.0', () => allGatherIntoTensor(whole, shard));
 * await whole.read(); // [1, 1, 1, 1]
 */
export function withCallSite<T>(site: string, fn: () => T): T {
  const before = callContext.site;
  callContext.site = before ?? site;
  try {
    return fn();
  } finally {
    callContext.site = before;
  }
}

/** Runs `fn`; messages about its collectives quote the purpose. @internal */
export function withPurpose<T>(purpose: string, fn: () => T): T {
  const before = callContext.purpose;
  callContext.purpose = purpose;
  try {
    return fn();
  } finally {
    callContext.purpose = before;
  }
}
