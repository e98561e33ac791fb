/** `opaqueHook`: marks hooks that graphs of backward passes call instead of containing them. */
import { ArgumentError } from '../core/errors.js';
import { checkFunction, optionsOf, shown } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { describeHook } from './made-hooks.js';

/** Options of {@link opaqueHook}. */
export interface OpaqueHookOptions {
  /** Gives the tensors whose memory the hook fills or frees; by default none. */
  memory?: () => readonly Tensor[];
  /**
   * Runs in place of the hook where a whole step is captured: the ops that it calls become nodes of
   * the graph, and do at each run what the hook does. By default the graph calls the hook.
   */
  inSteps?: () => void;
}

/**
 * Marks a hook for `registerMultiGradHook` or `registerPostAccumulateGradHook` as one that
 * communicates, manages memory or counts. A captured backward pass has no part of it: each run of
 * the graph calls the hook of its own pass, where the engine would. Eager passes run it as ever.
 *
 * @param key - what tells the hook from others: a pass whose hooks have equal keys runs the same
 * graph. Arrays and plain objects are compared by their items, all else by identity
 * @returns the hook
 * @throws ArgumentError for a hook that is no function, and a key that is no array
 * @see PyTorch, whose compiled autograd treats hooks with `_dynamo.disable` alike
 * @example
 * const weight = ones([2], { requiresGrad: true });
 * let calls = 0;
 * const count = autograd.opaqueHook(() => void calls++, ['count']);
 * weight.registerPostAccumulateGradHook(count);
 * weight.sum().backward();
 * calls; // 1
 */
export function opaqueHook<F extends () => void>(
  hook: F,
  key: readonly unknown[],
  options: OpaqueHookOptions = {},
): F {
  checkFunction('opaqueHook', 'hook', hook);
  if (!Array.isArray(key))
    throw new ArgumentError(`opaqueHook: expected the key as an array, got ${shown(key)}`, {
      op: 'opaqueHook',
    });
  const { memory = () => [], inSteps = null } = optionsOf('opaqueHook', options, 'memory inSteps');
  checkFunction('opaqueHook', 'memory', memory);
  if (inSteps !== null) checkFunction('opaqueHook', 'inSteps', inSteps);
  const opaque = { call: hook, memory, inSteps };
  return describeHook(hook, { owner: hook, module: null, facts: () => key, opaque });
}
