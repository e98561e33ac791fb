/** The entry of a user's op in the op table: its metadata, its computation and its gradient. */
import { noGrad } from '../autograd/grad-mode.js';
import { dispatch } from '../core/dispatch.js';
import { dtypeOf } from '../core/dtype.js';
import { ArgumentError, AutogradError, CompileError, InPlaceError } from '../core/errors.js';
import { defineOp, type Op, type OutputMeta, type Trait } from '../core/op.js';
import { param } from '../core/op-params.js';
import { checkSynchronous, unexpected } from '../core/options.js';
import { copyOfPlain } from '../core/plain-object.js';
import { scope } from '../core/scope.js';
import { checkSizes } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { flatten, inputsOf, restore, type Template, valuesOf } from './arguments.js';
import type {
  AutogradRule,
  CheckedOptions,
  Grad,
  OpResult,
  OutputDescription,
} from './custom-op.js';
import { type CustomShardingRule, shardingRuleOf } from './custom-sharding.js';

function traitsOf(communicates: CheckedOptions['communicates']): Trait[] {
  if (typeof communicates === 'string') return ['communicates', communicates];
  return communicates ? ['communicates'] : [];
}

export class CustomOpEntry<A extends readonly unknown[], R extends OpResult> {
  describe: ((...args: A) => OutputDescription | readonly OutputDescription[] | void) | null = null;
  rule: AutogradRule<A> | null = null;
  private readonly fn: (...args: A) => R;
  private readonly options: CheckedOptions;
  private readonly op: Op<Template>;
  /** Whether the last run returned a list, since the dispatcher always returns one. */
  private gaveList = false;

  constructor(name: string, options: CheckedOptions, fn: (...args: A) => R) {
    this.fn = fn;
    this.options = options;
    const { mutatesArgs, communicates, keepsNoTensors, managesArgs, runsAgain } = options;
    this.op = defineOp({
      name,
      params: { slots: param.value<Template['slots']>() },
      doc: 'An op of the user.',
      kernel: null,
      traits: traitsOf(communicates),
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
      ...(managesArgs.length > 0 && {
        manages: (params: Template) => managesArgs.flatMap((i) => inputsOf(params, i)),
      }),
      ...(runsAgain && {
        runsAgain: (params: Template) => runsAgain(...(valuesOf(params) as never[])),
      }),
      // The program may go on changing the object that it returns.
      gradientState: (params) =>
        copyOfPlain(this.rule?.state?.(...(valuesOf(params) as unknown as A))),
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

  setDecomposition(decompose: (...args: A) => R): void {
    (this.op as { parts: Op<Template>['parts'] }).parts = (inputs, params) => {
      const run = (): R => decompose(...(restore(params, inputs) as unknown as A));
      return this.resultsOf(noGrad(run));
    };
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
    const outputs = this.resultsOf(result);
    outputs.forEach((output, i) => {
      this.checkOutput(output, i, inputs);
    });
    return outputs;
  }

  private resultsOf(result: R): Tensor[] {
    this.gaveList = Array.isArray(result);
    if (result === undefined) return [];
    return (Array.isArray(result) ? [...result] : [result]) as Tensor[];
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
    checkSynchronous(`${name}.setupContext`, ctx, NOT_WAITED);
    const given = rule.backward(ctx as Record<string, unknown>, ...grads);
    checkSynchronous(`${name}.backward`, given, NOT_WAITED);
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
      for (const one of each) checkGrad(name, k, one);
      return inputsOf(template, k).map((_, n) => each[n] ?? null);
    });
  }
}

const NOT_WAITED = 'a backward pass does not wait for it';

/** @throws ArgumentError unless it is a tensor, or null for none */
function checkGrad(name: string, argument: number, grad: unknown): void {
  if (grad != null && !(grad instanceof Tensor))
    throw unexpected(
      `${name}.backward`,
      `the gradient of argument ${argument}`,
      'a tensor or null',
      grad,
    );
}
