/** `recomputed`: marks code that backward runs again, so that graphs compute its values again. */
import type { RecomputedRegion } from '../core/backend.js';
import { layers } from '../core/hooks.js';
import { callingModulesBy, moduleCalls } from '../core/module-calls.js';
import { checkFlag, checkFunction, optionsOf, unexpected } from '../core/options.js';
import { drawsAgain } from '../core/random.js';
import type { Tensor } from '../core/tensor.js';
import { isGradEnabled } from './grad-mode.js';

/** What backward does with the results of an op of a recomputed function. */
export type RecomputePolicy = 'MUST_SAVE' | 'PREFER_SAVE' | 'MUST_RECOMPUTE' | 'PREFER_RECOMPUTE';

/** How a function runs that backward runs again, see {@link recomputed}. */
export interface RecomputedOptions<S = unknown> {
  /**
   * Runs a function now, and again in backward. It gets the function of {@link recomputed}, or one
   * that stands for it in a graph, its arguments, the settings, and `again`, which runs a function
   * with the random numbers that were next at the call.
   */
  run: (
    fn: (...args: readonly unknown[]) => unknown,
    args: readonly unknown[],
    settings: S,
    again: <T>(fn: () => T) => T,
  ) => unknown;
  /** What `run` gets. Equal for all calls that one graph may serve. */
  settings: S;
  /** Whether the second run draws the random numbers of the first, by `again`. Default: true. */
  preservesRng?: boolean;
  /** Chooses by the name of an op and its tensors. Default: all is computed again. */
  policy?: ((op: string, ...inputs: readonly Tensor[]) => RecomputePolicy) | null;
}

/**
 * Runs `fn` by `run`, which runs it again in backward instead of keeping what its ops save. This is
 * how `checkpoint` is written, and any other function that recomputes by `savedTensorsHooks`.
 *
 * In a capture of `compile`, `fn` becomes part of the graph, and `run` is not called: the nodes get
 * the tag `mustRecompute`, and the backward graph computes their values again, with the random
 * numbers of the forward graph. A graph that runs op by op calls `run` with the nodes as function.
 * A capture of a whole step calls `run`, and has the nodes of both runs.
 *
 * @throws ArgumentError for arguments that are no functions, or no list
 * @throws CompileError in a capture, where the second run would do more than compute values again:
 * change a tensor that it did not make, or draw new random numbers
 * @see PyTorch `torch._higher_order_ops.wrap.TagActivationCheckpoint`
 * @example
 * type Fn = (...args: readonly unknown[]) => unknown;
 * const run = (fn: Fn, args: readonly unknown[]) => fn(...args);
 * const twice = autograd.recomputed((t: Tensor) => t.exp().sin(), [x], { run, settings: {} });
 */
export function recomputed<A extends readonly unknown[], R, S>(
  fn: (...args: A) => R,
  args: A,
  options: RecomputedOptions<S>,
): R {
  checkFunction('recomputed', 'fn', fn);
  if (!isList(args)) throw unexpected('recomputed', 'args', 'a list of arguments', args);
  const names = 'run settings preservesRng policy';
  const {
    run,
    settings,
    preservesRng = true,
    policy = null,
  } = optionsOf('recomputed', options, names);
  checkFunction('recomputed', 'run', run);
  checkFlag('recomputed', 'preservesRng', preservesRng);
  if (policy !== null) checkFunction('recomputed', 'policy', policy);
  const { capture } = layers.backend;
  if (capture === null || !isGradEnabled())
    return run(callingAsNow(fn as unknown as AnyFunction), args, settings, drawsAgain()) as R;
  const region = { run: run as RecomputedRegion['run'], settings, preservesRng, policy };
  return capture.recomputes(region, fn, args);
}

type AnyFunction = (...args: readonly unknown[]) => unknown;

/**
 * The function, in which the modules that are compiled now are so in each run: compiled and
 * uncompiled modules save different tensors.
 */
function callingAsNow(fn: AnyFunction): AnyFunction {
  const { run } = moduleCalls;
  if (run === null) return fn;
  return (...args) => callingModulesBy(run, () => fn(...args));
}

const isList = (value: unknown): boolean => Array.isArray(value);
