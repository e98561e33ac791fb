/**
 * `checkpoint`: computes a part of a model again in backward instead of keeping its activations.
 */
import {
  checkFlag,
  checkFunction,
  checkOneOf,
  checkSynchronous,
  optionsOf,
  unexpected,
} from '../../core/options.js';
import { ArgumentError, amp, autograd, graphBreak, isGradEnabled } from '../../index.js';
import type { CheckpointedFunction } from './nested-calls.js';
import { Recomputation } from './recomputation.js';
import { policyOfContext, type RecomputePolicyOf } from './selective.js';

/** Runs a function in a context, such as a mode that is on meanwhile. */
export interface CheckpointContext {
  /** Returns what `fn` returns. */
  <T>(fn: () => T): T;
  /** Called when no recomputation can follow. */
  release?: () => void;
}

/** Options of {@link checkpoint}. */
export interface CheckpointOptions {
  /** Only false: recomputation by saved-tensor hooks. */
  useReentrant?: false;
  /** Whether a recomputation draws the random numbers of the forward pass. Default: true. */
  preserveRngState?: boolean;
  /** What is compared: shapes, dtypes and devices, or nothing. Default: `'default'`. */
  determinismCheck?: 'default' | 'none';
  /** Whether a recomputation ends at the last tensor that backward needs. Default: true. */
  earlyStop?: boolean;
  /**
   * Makes the contexts in which the forward pass and the recomputation run, such as those of
   * {@link createSelectiveCheckpointContexts}.
   */
  contextFn?: () => readonly [forward: CheckpointContext, recompute: CheckpointContext];
}

const OPTIONS = 'useReentrant preserveRngState determinismCheck earlyStop contextFn';
const NAMES: ReadonlySet<string> = new Set(OPTIONS.split(' '));
const CHECKS = ['default', 'none'] as const;

/** The options with their defaults, after their check. @throws ArgumentError @internal */
export function checkedOptions(
  op: string,
  options: CheckpointOptions,
): Required<Omit<CheckpointOptions, 'contextFn'>> & Pick<CheckpointOptions, 'contextFn'> {
  const {
    useReentrant = false,
    preserveRngState = true,
    determinismCheck = 'default',
    earlyStop = true,
    contextFn,
  } = optionsOf(op, options, OPTIONS);
  if (useReentrant !== false)
    throw unexpected(op, 'useReentrant', 'false; there is no reentrant checkpoint', useReentrant);
  checkFlag(op, 'preserveRngState', preserveRngState);
  checkOneOf(op, 'determinismCheck', determinismCheck, CHECKS);
  checkFlag(op, 'earlyStop', earlyStop);
  if (contextFn !== undefined) checkFunction(op, 'contextFn', contextFn);
  return { useReentrant, preserveRngState, determinismCheck, earlyStop, contextFn };
}

/**
 * Runs `fn(...args)` without keeping what its ops save for backward. Backward runs `fn` once more
 * when it needs the first of these tensors, and frees them as it uses them. So the memory of a part
 * of a model falls to that of its arguments, for a second forward pass.
 *
 * A last argument that is an object of options alone belongs to `checkpoint`; options objects of
 * `fn` pass through, with tensors in them. The second run has the gradient mode, mixed precision
 * and, by `preserveRngState`, random numbers of the first, those of distributed tensors too. What
 * `fn` stores elsewhere is freed at its end as in a `scope`, unless it goes through `keep`; so it
 * returns tensors in arrays, plain objects, maps or sets. Checkpoints nest, and a graph that is
 * retained is recomputed by each backward pass. It needs no process group.
 *
 * @throws ArgumentError for options that are none, and for an asynchronous `fn`. Backward throws
 * AutogradError if the second run saves another number of tensors, or others, than the first, and
 * InPlaceError if an argument was changed in place
 * @see PyTorch `torch.utils.checkpoint.checkpoint`; Chen et al., arXiv:1604.06174
 * @example
 * const block = (x: Tensor, { scale }: { scale: number }) => x.sin().mul(scale);
 * const y = checkpoint(block, x, { scale: 2 }, { preserveRngState: false });
 * y.shape; // [4, 8]
 */
export function checkpoint<A extends readonly unknown[], R>(fn: (...args: A) => R, ...args: A): R;
export function checkpoint<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  ...args: [...args: A, options: CheckpointOptions]
): R;
export function checkpoint<R>(fn: (...args: unknown[]) => R, ...all: unknown[]): R {
  checkFunction('checkpoint', 'fn', fn);
  const { args, options } = separated(all);
  return runCheckpoint('checkpoint', fn, args, options);
}

/** Separates the arguments of the function from options at their end. */
function separated(all: readonly unknown[]): {
  args: readonly unknown[];
  options: CheckpointOptions;
} {
  const last = all.at(-1);
  const names = isPlainObject(last) ? Object.keys(last) : [];
  if (names.length === 0 || !names.every((name) => NAMES.has(name)))
    return { args: all, options: {} };
  return { args: all.slice(0, -1), options: last as CheckpointOptions };
}

function isPlainObject(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** {@link checkpoint} with its options apart. @internal */
export function runCheckpoint<R>(
  op: string,
  fn: (...args: unknown[]) => R,
  args: readonly unknown[],
  options: CheckpointOptions,
): R {
  const { preserveRngState, contextFn } = checkedOptions(op, options);
  return autograd.recomputed(
    (...given: readonly unknown[]) => synchronous(op, fn(...given)),
    args,
    {
      run: runRecomputed,
      settings: { op, ...options },
      preservesRng: preserveRngState,
      policy: contextFn === undefined ? null : policyFrom(op, contextFn),
    },
  );
}

type ContextFn = NonNullable<CheckpointOptions['contextFn']>;

/** What a policy of the contexts chooses, for captures. Other contexts end one. */
function policyFrom(op: string, contextFn: ContextFn): RecomputePolicyOf {
  let known: RecomputePolicyOf | undefined;
  const policy = (): RecomputePolicyOf => {
    known ??= policyOfContext(contextsOf(op, contextFn)[0]);
    if (known === undefined) graphBreak('checkpoint got contexts of the program');
    return known as RecomputePolicyOf;
  };
  return (name, ...inputs) => policy()(name, ...inputs);
}

/** Runs the function, keeps its arguments, and runs it again in backward. */
function runRecomputed(
  fn: CheckpointedFunction,
  args: readonly unknown[],
  { op, ...options }: CheckpointOptions & { readonly op: string },
  sameDraws: <T>(fn: () => T) => T,
): unknown {
  const { preserveRngState, determinismCheck, earlyStop, contextFn } = checkedOptions(op, options);
  if (!isGradEnabled()) return fn(...args);
  const [forward, recompute] = contextsOf(op, contextFn);
  const precision = precisionNow();
  const again = (called: CheckpointedFunction, given: readonly unknown[]): unknown =>
    underPrecision(precision, () => recompute(() => called(...given)));
  const call = new Recomputation(fn, args, {
    run: (...run) => (preserveRngState ? sameDraws(() => again(...run)) : again(...run)),
    checks: determinismCheck === 'default',
    stopsEarly: earlyStop,
    end: () => recompute.release?.(),
  });
  // Contexts match the calls of both runs, so the first may not use what was converted before it.
  const convertsAgain = contextFn !== undefined;
  return call.forward(firstRun(forward, fn, args, convertsAgain ? precision : undefined));
}

/** Outside of {@link runRecomputed}, whose closures live until backward, and `args` with them. */
function firstRun(
  forward: CheckpointContext,
  fn: CheckpointedFunction,
  args: readonly unknown[],
  precision: Precision | undefined,
): () => unknown {
  const run = (): unknown => forward(() => fn(...args));
  return precision === undefined ? run : () => underPrecision(precision, run);
}

function synchronous<R>(op: string, result: R): R {
  checkSynchronous(op, result, 'backward runs it again, and does not wait');
  return result;
}

const asItIs: CheckpointContext = (fn) => fn();

/** @throws ArgumentError unless `contextFn` returns two functions */
function contextsOf(
  op: string,
  contextFn: CheckpointOptions['contextFn'],
): readonly [CheckpointContext, CheckpointContext] {
  if (contextFn === undefined) return [asItIs, asItIs];
  const contexts: unknown = contextFn();
  const fits =
    Array.isArray(contexts) &&
    contexts.length === 2 &&
    contexts.every((context) => typeof context === 'function');
  if (fits) return contexts as unknown as [CheckpointContext, CheckpointContext];
  throw new ArgumentError(
    `${op}: expected contextFn to return two functions, the contexts of forward and of ` +
      'recomputation. Return for example createSelectiveCheckpointContexts(policy).',
    { op, argument: 'contextFn' },
  );
}

const DEVICE_TYPES = ['cpu', 'cuda'] as const;

/** Mixed precision on each type of device; null if it is off. */
type Precision = readonly amp.AutocastOptions[] | null;

function precisionNow(): Precision {
  if (!DEVICE_TYPES.some((type) => amp.isAutocastEnabled(type))) return null;
  return DEVICE_TYPES.map((deviceType) => ({
    deviceType,
    dtype: amp.getAutocastDtype(deviceType),
    enabled: amp.isAutocastEnabled(deviceType),
    // Weights that a recomputation converts are freed after it.
    cacheEnabled: false,
  }));
}

const PRECISION_OFF: Precision = DEVICE_TYPES.map((deviceType) => ({ deviceType, enabled: false }));

function underPrecision<T>(precision: Precision, fn: () => T): T {
  if (precision === null && precisionNow() === null) return fn();
  return (precision ?? (PRECISION_OFF as NonNullable<Precision>)).reduceRight<() => T>(
    (run, options) => () => amp.autocast(options, run),
    fn,
  )();
}
