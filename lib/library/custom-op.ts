/**
 * Ops of users that eager mode, autograd and captured graphs treat as they treat the library's own.
 */
import type { Device } from '../core/device.js';
import type { DTypeLike } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { declareMade } from '../core/library-exports.js';
import { opByName } from '../core/op.js';
import { checkFlag, checkFunction, optionsOf, shown, unexpected } from '../core/options.js';
import type { Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { reportUse } from '../core/unrepeatable.js';
import { CustomOpEntry } from './custom-op-entry.js';
import type { CustomShardingRule } from './custom-sharding.js';

/** The result of an op. */
export type OpResult = Tensor | readonly Tensor[] | void;

/** Options of {@link customOp}. */
export interface CustomOpOptions {
  /** Positions of the arguments that `fn` changes in place. It must change no others. */
  mutatesArgs?: readonly number[];
  /**
   * Whether `fn` communicates between ranks, or manages memory of its own. It then gets distributed
   * tensors as they are, may return them and memory that it or an argument has, runs in the scope
   * of its caller, and under FakeTensorMode, too, which counts what it does. Changes of arguments
   * in place are not checked. `'wait'`: `fn` ends what another op has started. `'frees'`: it frees
   * what another op has filled. Both communicate nothing. False by default.
   */
  communicates?: boolean | 'wait' | 'frees';
  /**
   * Positions of the arguments whose memory `fn` fills or frees, while others may have results on
   * it: passes over graphs keep what reads that memory on its side of the op. Unlike
   * {@link mutatesArgs}, their versions stay. By default none.
   */
  managesArgs?: readonly number[];
  /**
   * Whether backward of a compiled graph runs the op again, instead of keeping its results: for an
   * op whose results are freed after forward. It gets null for arguments that are tensors, and
   * empty lists for lists. An op that has the option may run again, and does so in a checkpoint,
   * whatever the answer. False by default.
   */
  runsAgain?: (...args: never[]) => boolean;
  /**
   * Whether the gradient keeps no tensors. Arguments and results are then not saved for it:
   * `setupContext` gets null for an argument that is a tensor, empty lists for lists, and no
   * outputs. And it keeps no gradients: those that it gets are freed after their use, and `.grad`
   * takes over those that it returns, without a copy. False by default.
   */
  keepsNoTensors?: boolean;
}

/**
 * The metadata of an output; dtype and device default to those of the first tensor argument. A
 * tensor describes an output like itself.
 */
export type OutputDescription = Tensor | { shape: Shape; dtype?: DTypeLike; device?: Device };

/** A gradient, or none. */
export type Grad = Tensor | null | undefined;

/** Prepares the context of `backward`: fills `ctx`, or returns another object. */
export type SetupContext<A extends readonly unknown[]> = (
  ctx: Record<string, unknown>,
  args: A,
  outputs: readonly Tensor[],
) => object | void;

/** What `backward` gets: the object that `setupContext` returned, or else the one it filled. */
export type GradientContext<S extends (...args: never[]) => unknown> =
  ReturnType<S> extends object ? ReturnType<S> : Record<string, unknown>;

/** The gradient of an op. */
export interface AutogradRule<
  A extends readonly unknown[],
  S extends SetupContext<A> = (...args: Parameters<SetupContext<A>>) => void,
> {
  /**
   * Stores on `ctx` the values that backward needs, or returns an object that becomes the context,
   * with its type. Arguments and outputs stay in memory until then, without copies, unless the op
   * {@link CustomOpOptions.keepsNoTensors | keeps no tensors}.
   */
  setupContext?: S;
  /**
   * What decides the gradient beside the tensors: compiled functions and captured backward passes
   * run a graph again only for an equal state, compared by items in arrays and plain objects. It
   * gets null for arguments that are tensors, and empty lists for lists.
   */
  state?: (...args: A) => unknown;
  /**
   * Computes the gradients of the arguments from those of the outputs, which are null if none
   * arrived. Returns null for an argument without a gradient and a list for a list.
   */
  backward: (
    ctx: GradientContext<S>,
    ...grads: (Tensor | null)[]
  ) => Grad | readonly (Grad | readonly Grad[])[];
}

/** A user's op: call it as a function. */
export interface CustomOp<A extends readonly unknown[], R extends OpResult> {
  (...args: A): R;
  /** `namespace::name`. */
  readonly opName: string;
  /**
   * Registers a function that returns the metadata of the outputs without computing them, for fake
   * tensors and captured graphs.
   */
  registerFake(
    describe: (...args: A) => OutputDescription | readonly OutputDescription[] | void,
  ): CustomOp<A, R>;
  /**
   * Registers the gradient of the op. @throws ArgumentError for an op that changes its arguments
   */
  registerAutograd<S extends SetupContext<A>>(rule: AutogradRule<A, S>): CustomOp<A, R>;
  /**
   * Registers the ops of which the op consists: lowered graphs have these in its place. They run
   * without recording gradients.
   */
  registerDecomposition(decompose: (...args: A) => R): CustomOp<A, R>;
  /**
   * Registers how the op runs on distributed tensors, also before `registerSharding` of
   * `shardwise/distributed` is loaded. Needs `registerFake`, for the shapes of the results.
   *
   * @throws ArgumentError if the op has a rule, or changes its arguments
   * @see PyTorch `torch.distributed.tensor.experimental.register_sharding`
   */
  registerSharding(rule: CustomShardingRule<A>): CustomOp<A, R>;
}

/**
 * Makes an op of a function. `fn` runs on real tensors without recording; in graphs it is one node.
 *
 * @param name `namespace::name`, not taken yet
 * @throws ArgumentError for a bad name or position. The op throws InPlaceError if `fn` changes an
 * argument that it did not declare, and ArgumentError if a result shares memory with an argument.
 * @see PyTorch `torch.library.custom_op`
 * @example
 * const scaled = library.customOp('mylib::scaledBy', {}, (x: Tensor, k: number) => x.mul(k));
 * scaled.registerFake((x) => x).registerAutograd({
 *   setupContext: (ctx, [, k]) => { ctx.k = k; },
 *   backward: (ctx, g) => [g?.mul(ctx.k as number), null],
 * });
 */
export function customOp<A extends readonly unknown[], R extends OpResult>(
  name: string,
  options: CustomOpOptions,
  fn: (...args: A) => R,
): CustomOp<A, R> {
  const checked = checkedOptions(name, options);
  const { mutatesArgs } = checked;
  checkFunction('customOp', 'fn', fn);
  reportUse('customOp');
  if (opByName(name) !== undefined)
    throw new ArgumentError(`customOp: an op named "${name}" is already defined`, { name });
  const custom = new CustomOpEntry<A, R>(name, checked, fn);
  const call = (...args: A): R => custom.call(args);
  return Object.assign(declareMade(call), {
    opName: name,
    registerFake(
      describe: (...args: A) => OutputDescription | readonly OutputDescription[] | void,
    ) {
      checkFunction(`${name}.registerFake`, 'describe', describe);
      custom.describe = describe;
      return this as unknown as CustomOp<A, R>;
    },
    registerAutograd<S extends SetupContext<A>>(rule: AutogradRule<A, S>) {
      if (mutatesArgs.length > 0)
        throw new ArgumentError(
          `${name}: an op that changes its arguments has no gradient; return the results instead`,
          { name },
        );
      checkFunction(
        `${name}.registerAutograd`,
        'backward',
        optionsOf(`${name}.registerAutograd`, rule).backward,
      );
      custom.rule = rule as unknown as AutogradRule<A>;
      return this as unknown as CustomOp<A, R>;
    },
    registerDecomposition(decompose: (...args: A) => R) {
      checkFunction(`${name}.registerDecomposition`, 'decompose', decompose);
      custom.setDecomposition(decompose);
      return this as unknown as CustomOp<A, R>;
    },
    registerSharding(rule: CustomShardingRule<A>) {
      checkFunction(`${name}.registerSharding`, 'rule', rule);
      custom.setSharding(rule);
      return this as unknown as CustomOp<A, R>;
    },
  });
}

/** @throws ArgumentError for a bad name or options */
function checkedOptions(name: string, options: CustomOpOptions): CheckedOptions {
  if (typeof name !== 'string' || !/^[\w.]+::[\w.]+$/.test(name))
    throw new ArgumentError(
      `customOp: expected a name such as "mylib::scaled", got ${shown(name)}`,
      { name },
    );
  const {
    mutatesArgs = [],
    communicates = false,
    keepsNoTensors = false,
    managesArgs = [],
    runsAgain = null,
  } = optionsOf('customOp', options, OPTIONS);
  if (communicates !== 'wait' && communicates !== 'frees')
    checkFlag('customOp', 'communicates', communicates);
  checkFlag('customOp', 'keepsNoTensors', keepsNoTensors);
  if (runsAgain !== null) checkFunction('customOp', 'runsAgain', runsAgain);
  checkPositions(name, 'mutatesArgs', mutatesArgs);
  checkPositions(name, 'managesArgs', managesArgs);
  return { mutatesArgs, communicates, keepsNoTensors, managesArgs, runsAgain };
}

const OPTIONS = 'mutatesArgs communicates keepsNoTensors managesArgs runsAgain';

function checkPositions(name: string, option: string, positions: readonly number[]): void {
  if (!Array.isArray(positions))
    throw unexpected('customOp', option, 'an array of positions of arguments', positions);
  const bad = positions.find((i) => !Number.isInteger(i) || i < 0);
  if (bad !== undefined)
    throw new ArgumentError(
      `customOp: ${option} holds positions of arguments, got ${String(bad)}`,
      {
        name,
      },
    );
}

/** Options that were checked. @internal */
export type CheckedOptions = Required<Omit<CustomOpOptions, 'runsAgain'>> & {
  readonly runsAgain: CustomOpOptions['runsAgain'] | null;
};
