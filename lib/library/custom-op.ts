/**
 * Ops of users that eager mode, autograd and captured graphs treat as they treat the library's own.
 */
import { noGrad } from '../autograd/grad-mode.js';
import type { Device } from '../core/device.js';
import { dispatch } from '../core/dispatch.js';
import { type DTypeLike, dtypeOf } from '../core/dtype.js';
import { ArgumentError, AutogradError, CompileError, InPlaceError } from '../core/errors.js';
import { defineOp, type Op, type OutputMeta, opByName } from '../core/op.js';
import { param } from '../core/op-params.js';
import { checkFlag, checkFunction, optionsOf, shown, unexpected } from '../core/options.js';
import { scope } from '../core/scope.js';
import { checkSizes, type Shape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { reportUse } from '../core/unrepeatable.js';
import { flatten, inputsOf, restore, type Template, valuesOf } from './arguments.js';
import { type CustomShardingRule, shardingRuleOf } from './custom-sharding.js';

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
   * in place are not checked. False by default.
   */
  communicates?: boolean;
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
   * What decides the gradient beside the tensors: captured backward passes run a graph again only
   * for an equal state, compared by items in arrays and plain objects. It gets null for arguments
   * that are tensors, and empty lists for lists.
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
  return Object.assign(call, {
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
    registerSharding(rule: CustomShardingRule<A>) {
      checkFunction(`${name}.registerSharding`, 'rule', rule);
      custom.setSharding(rule);
      return this as unknown as CustomOp<A, R>;
    },
  });
}

/** @throws ArgumentError for a bad name or options */
function checkedOptions(name: string, options: CustomOpOptions): Required<CustomOpOptions> {
  if (typeof name !== 'string' || !/^[\w.]+::[\w.]+$/.test(name))
    throw new ArgumentError(
      `customOp: expected a name such as "mylib::scaled", got ${shown(name)}`,
      { name },
    );
  const {
    mutatesArgs = [],
    communicates = false,
    keepsNoTensors = false,
  } = optionsOf('customOp', options, 'mutatesArgs communicates keepsNoTensors');
  checkFlag('customOp', 'communicates', communicates);
  checkFlag('customOp', 'keepsNoTensors', keepsNoTensors);
  if (!Array.isArray(mutatesArgs))
    throw unexpected('customOp', 'mutatesArgs', 'an array of positions of arguments', mutatesArgs);
  const bad = mutatesArgs.find((i) => !Number.isInteger(i) || i < 0);
  if (bad !== undefined)
    throw new ArgumentError(
      `customOp: mutatesArgs holds positions of arguments, got ${String(bad)}`,
      { name },
    );
  return { mutatesArgs, communicates, keepsNoTensors };
}

class CustomOpEntry<A extends readonly unknown[], R extends OpResult> {
  describe: ((...args: A) => OutputDescription | readonly OutputDescription[] | void) | null = null;
  rule: AutogradRule<A> | null = null;
  private readonly fn: (...args: A) => R;
  private readonly options: Required<CustomOpOptions>;
  private readonly op: Op<Template>;
  /** Whether the last run returned a list, since the dispatcher always returns one. */
  private gaveList = false;

  constructor(name: string, options: Required<CustomOpOptions>, fn: (...args: A) => R) {
    this.fn = fn;
    this.options = options;
    const { mutatesArgs, communicates, keepsNoTensors } = options;
    this.op = defineOp({
      name,
      params: { slots: param.value<Template['slots']>() },
      doc: 'An op of the user.',
      kernel: null,
      traits: communicates ? ['communicates'] : [],
      meta: (inputs, template) => this.metas(inputs, template),
      compute: (inputs, template) => this.compute(inputs, template),
      ...(mutatesArgs.length > 0 && {
        mutates: (_inputs: readonly Tensor[], template: Template) => this.changed(template),
      }),
      ...(!keepsNoTensors && {
        saves: {
          inputs: (_needs: unknown, inputs: readonly Tensor[]) => inputs.map((_, i) => i),
          outputs: 'all' as const,
        },
      }),
      keepsNoGrads: keepsNoTensors,
      gradientState: (params) => this.rule?.state?.(...(valuesOf(params) as unknown as A)),
      vjp: (ctx, ...grads) => {
        const { params } = ctx;
        if (keepsNoTensors) return this.backward(params, valuesOf(params), [], grads);
        const inputs = params.slots.flatMap((_, k) => inputsOf(params, k)).map((i) => ctx.input(i));
        const outputs = grads.map((_, i) => ctx.output(i));
        return this.backward(params, restore(params, inputs), outputs, grads);
      },
      samples: () => [],
    });
  }

  call(args: A): R {
    const { inputs, template } = flatten(args);
    for (const i of this.options.mutatesArgs) {
      if (inputsOf(template, i).length === 0)
        throw new ArgumentError(
          `${this.op.name}: mutatesArgs names argument ${i}, which is no tensor in this call`,
          { op: this.op.name },
        );
    }
    const outputs = dispatch(this.op, inputs, template);
    return (this.gaveList ? outputs : outputs[0]) as R;
  }

  /** @throws ArgumentError if there is a rule, or the op changes its arguments */
  setSharding(rule: CustomShardingRule<A>): void {
    const { name, sharding } = this.op;
    const { mutatesArgs, communicates } = this.options;
    const why =
      sharding !== null
        ? 'it has a sharding rule already'
        : mutatesArgs.length > 0 || communicates
          ? 'an op that changes its arguments or communicates takes no sharding rule'
          : null;
    if (why !== null) throw new ArgumentError(`${name}: ${why}`, { op: name });
    (this.op as { sharding: Op<Template>['sharding'] }).sharding = shardingRuleOf(name, rule);
  }

  private changed(template: Template): readonly number[] {
    return this.options.mutatesArgs.flatMap((i) => inputsOf(template, i));
  }

  private metas(inputs: readonly Tensor[], template: Template): OutputMeta[] {
    const { name } = this.op;
    if (this.describe === null)
      throw new CompileError(
        `${name}: the shapes of its outputs are unknown. Register them: ` +
          'op.registerFake((...args) => ({ shape, dtype })).',
        { op: name },
      );
    const described = this.describe(...(restore(template, inputs) as unknown as A));
    if (Array.isArray(described) && described.some((each) => typeof each !== 'object'))
      throw new ArgumentError(
        `${name}: registerFake must give { shape, dtype, device } for each output, got ` +
          `[${described.join(', ')}]; a shape alone is { shape: [${described.join(', ')}] }`,
        { op: name },
      );
    this.gaveList = Array.isArray(described);
    const list = (
      described === undefined ? [] : Array.isArray(described) ? described : [described]
    ) as readonly OutputDescription[];
    return list.map((each) => {
      checkSizes(each.shape, name);
      const { dtype = inputs[0]?.dtype, device = inputs[0]?.device } = each;
      if (dtype === undefined || device === undefined)
        throw new ArgumentError(
          `${name}: registerFake must give dtype and device, there is no tensor ` +
            'argument to take them from',
        );
      return { shape: each.shape, strides: null, dtype: dtypeOf(dtype, name), device };
    });
  }

  private compute(inputs: readonly Tensor[], template: Template): Tensor[] {
    const run = (): R => this.fn(...(restore(template, inputs) as unknown as A));
    const { communicates } = this.options;
    const versions = communicates ? null : inputs.map((t) => t._version);
    const result = noGrad(communicates ? run : () => scope(run));
    if (versions !== null) this.checkChanges(inputs, versions, template);
    this.gaveList = Array.isArray(result);
    const outputs = (
      result === undefined ? [] : Array.isArray(result) ? [...result] : [result]
    ) as Tensor[];
    outputs.forEach((output, i) => {
      this.checkOutput(output, i, inputs);
    });
    return outputs;
  }

  /** The dispatcher counts the declared changes once. */
  private checkChanges(
    inputs: readonly Tensor[],
    versions: readonly number[],
    template: Template,
  ): void {
    const declared = this.changed(template);
    const families = new Set(declared.map((i) => (inputs[i] as Tensor).sharedVersion()));
    inputs.forEach((t, i) => {
      if (t._version === versions[i]) return;
      if (!families.has(t.sharedVersion())) {
        throw new InPlaceError(
          `${this.op.name}: it changed tensor ${i} in place without saying so. Name the ` +
            'argument in mutatesArgs, or work on a clone().',
          {
            op: this.op.name,
            input: i,
          },
        );
      }
    });
    for (const i of declared) (inputs[i] as Tensor).sharedVersion().value = versions[i] as number;
  }

  private checkOutput(output: unknown, i: number, inputs: readonly Tensor[]): void {
    const { name } = this.op;
    if (!(output instanceof Tensor))
      throw new ArgumentError(
        `${name}: expected tensors as results, got ${typeof output} as number ${i}`,
        { op: name },
      );
    if (!this.options.communicates && inputs.some((t) => t.storage === output.storage))
      throw new ArgumentError(
        `${name}: result ${i} shares memory with an argument. Return a clone(), or nothing for ` +
          'an argument in mutatesArgs.',
        { op: name },
      );
  }

  private backward(
    template: Template,
    args: readonly unknown[],
    outputs: readonly Tensor[],
    grads: readonly (Tensor | null)[],
  ): (Tensor | null)[] {
    const { rule } = this;
    const { name } = this.op;
    if (rule === null)
      throw new AutogradError(
        `${name}: it has no gradient. Register one: op.registerAutograd({ backward }).`,
        { op: name },
      );
    const own: Record<string, unknown> = {};
    const ctx = rule.setupContext?.(own, args as unknown as A, outputs) ?? own;
    const given = rule.backward(ctx as Record<string, unknown>, ...grads);
    const list = (Array.isArray(given) ? given : [given]) as readonly (Grad | readonly Grad[])[];
    if (list.length !== args.length)
      throw new AutogradError(
        `${name}: backward gave ${list.length} gradients for ${args.length} arguments; give ` +
          'null for those without one',
        { op: name },
      );
    // Inputs are in the order of arguments.
    return list.flatMap((grad, k) => {
      const each = Array.isArray(grad) ? (grad as readonly Grad[]) : [grad as Grad];
      return inputsOf(template, k).map((_, n) => each[n] ?? null);
    });
  }
}
