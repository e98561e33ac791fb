/** Runs a program on this library. */
import {
  Function as AutogradFunction,
  type FunctionContext,
  grad as gradOf,
} from '../../../lib/autograd/index.js';
import * as library from '../../../lib/index.js';
import { nn, noGrad, optim, ShardwiseError, Tensor, tensor } from '../../../lib/index.js';
import {
  type Answer,
  type Argument,
  type Description,
  decode,
  encode,
  type Ref,
  type Scalar,
  type Step,
} from './program.js';

type Callable = (...args: unknown[]) => unknown;
type Kept = Tensor[];

/** The state of a program that runs on this library. */
export class Machine {
  readonly tensors: Tensor[] = [];
  readonly kept: Kept = [];
  readonly optimizers: optim.Optimizer[] = [];
  /**
   * Memory that no step changes in place: several results of one call, where PyTorch forbids it,
   * and gradients passed to backward, which may be results of `autograd.grad` here but are clones
   * in the peer.
   */
  readonly fixed = new Set<unknown>();
  private readonly refused: number[] = [];
  private steps = 0;

  /** Runs a step. Returns whether it was refused. @throws errors that are not the library's */
  run(step: Step): boolean {
    const index = this.steps++;
    try {
      this.perform(step);
      return false;
    } catch (error) {
      if (!(error instanceof ShardwiseError) && !(error instanceof Absent)) throw error;
      this.refused.push(index);
      return true;
    }
  }

  answer(): Answer {
    return {
      refused: this.refused,
      tensors: this.tensors.map(describe),
      kept: this.kept.map(valuesOf),
    };
  }

  private at(ref: Ref): Tensor {
    const found = 'r' in ref ? this.tensors[ref.r] : this.kept[ref.k];
    if (found === undefined) throw new Absent();
    return found;
  }

  private given(gradient: Ref | null): Tensor | null {
    if (gradient === null) return null;
    const t = this.at(gradient);
    this.fixed.add(t.storage);
    return t;
  }

  private value(argument: Argument): unknown {
    if (Array.isArray(argument))
      return (argument as readonly Argument[]).map((each) => this.value(each));
    if (argument !== null && typeof argument === 'object') return this.at(argument as Ref);
    return argument;
  }

  private perform(step: Step): void {
    switch (step.do) {
      case 'tensor':
        this.tensors.push(makeTensor(step));
        return;
      case 'call':
        this.keep(
          step.name,
          step.noGrad === true ? noGrad(() => this.call(step)) : this.call(step),
        );
        return;
      case 'backward':
        this.at(step.of).backward(this.given(step.gradient), {
          retainGraph: step.retainGraph,
          createGraph: step.createGraph,
          ...(step.inputs === undefined ? {} : { inputs: step.inputs.map((ref) => this.at(ref)) }),
        });
        return;
      case 'grad':
        this.tensors.push(...this.gradients(step));
        return;
      case 'hook':
        this.hook(step);
        return;
      case 'readGrad': {
        const { grad } = this.at(step.of);
        if (grad === null) throw new Absent();
        this.tensors.push(grad);
        return;
      }
      case 'setGrad':
        this.at(step.of).grad = step.to === null ? null : this.at(step.to);
        return;
      case 'retainGrad':
        this.at(step.of).retainGrad();
        return;
      case 'requiresGrad':
        this.at(step.of).requiresGrad_(step.value);
        return;
      case 'function':
        this.tensors.push(userFunctions(this.kept)[step.kind].apply(this.at(step.of)) as Tensor);
        return;
      case 'module':
        this.module(step);
        return;
      case 'optimizer':
        this.optimizers.push(
          makeOptimizer(
            step.name,
            step.parameters.map((ref) => this.at(ref)),
            step.options,
          ),
        );
        return;
      case 'step':
        this.optimizer(step.optimizer).step();
        return;
      case 'zeroGrad':
        this.optimizer(step.optimizer).zeroGrad({ setToNone: step.setToNone });
        return;
      case 'clip':
        this.tensors.push(
          nn.utils.clipGradNorm_(
            step.of.map((ref) => this.at(ref)),
            step.maxNorm,
          ),
        );
        return;
    }
  }

  private optimizer(index: number): optim.Optimizer {
    const found = this.optimizers[index];
    if (found === undefined) throw new Absent();
    return found;
  }

  private call({ name, args, options }: Step & { do: 'call' }): unknown {
    const given = args.map((argument) => this.value(argument));
    const rest =
      options === undefined
        ? []
        : [
            Object.fromEntries(
              Object.entries(options).map(([key, value]) => [key, this.value(value)]),
            ),
          ];
    const [first, ...others] = given;
    const method =
      first instanceof Tensor
        ? (first as unknown as Record<string, Callable | undefined>)[name]
        : undefined;
    if (typeof method === 'function') return method.call(first, ...others, ...rest);
    const fn =
      (library as unknown as Record<string, Callable | undefined>)[name] ??
      (nn.functional as unknown as Record<string, Callable | undefined>)[name];
    if (fn === undefined) throw new Error(`there is no op named ${name}`);
    return fn(...given, ...rest);
  }

  /**
   * Adds results to the tensors of the program, those of `max` and similar ops in the peer's order.
   */
  private keep(name: string, result: unknown): void {
    if (name.endsWith('_')) return;
    if (result instanceof Tensor) this.tensors.push(result);
    else if (Array.isArray(result)) {
      for (const each of result) this.keep(name, each);
      if (result[0] instanceof Tensor) this.fixed.add(result[0].storage);
    } else if (result !== null && typeof result === 'object')
      for (const each of Object.values(result)) this.keep(name, each);
  }

  private gradients(step: Step & { do: 'grad' }): Tensor[] {
    const { retainGraph, createGraph, gradient } = step;
    return gradOf(
      this.at(step.of),
      step.inputs.map((ref) => this.at(ref)),
      { retainGraph, createGraph, gradOutputs: this.given(gradient) },
    );
  }

  private hook({ on, at, returns }: Step & { do: 'hook' }): void {
    const t = this.at(on);
    const other = typeof returns === 'string' ? null : this.at(returns);
    const answer = (grad: Tensor): Tensor | undefined => {
      this.kept.push(grad);
      return returns === 'nothing'
        ? undefined
        : returns === 'double'
          ? grad.mul(2)
          : (other as Tensor);
    };
    if (at === 'tensor') {
      t.registerHook(answer);
      return;
    }
    if (t.gradFn === null) throw new Absent();
    t.gradFn.registerHook((inputs) => {
      const replaced = inputs.map((grad) => (grad === null ? null : (answer(grad) ?? grad)));
      return returns === 'nothing' ? undefined : replaced;
    });
  }

  private module({ name, args, of, keeps }: Step & { do: 'module' }): void {
    const Module = (nn as unknown as Record<string, new (...args: never[]) => nn.Module>)[name];
    if (Module === undefined) throw new Error(`there is no module named ${name}`);
    const module = new Module(...(args as never[])).double();
    noGrad(() => {
      for (const parameter of module.parameters())
        parameter.copy_(
          tensor(pattern(parameter.numel()), { dtype: library.float64 }).reshape(parameter.shape),
        );
    });
    if (keeps)
      module.registerFullBackwardHook(
        (_module, inputs) =>
          void this.kept.push(...inputs.filter((grad): grad is Tensor => grad !== null)),
      );
    const result = (module as unknown as (input: Tensor) => Tensor)(this.at(of));
    this.tensors.push(...module.parameters(), result);
  }
}

/** The program uses something that does not exist; the peer refuses it, too. */
class Absent extends Error {}

/** 0.1, -0.2, 0.3, … */
export function pattern(count: number): number[] {
  return Array.from({ length: count }, (_, i) => (i % 2 === 0 ? 1 : -1) * ((i % 7) + 1) * 0.1);
}

function makeTensor({ dtype, shape, data, grad }: Step & { do: 'tensor' }): Tensor {
  const type = (library as unknown as Record<string, library.DType>)[dtype] as library.DType;
  const values = type.isFloatingPoint
    ? data.map(decode)
    : dtype === 'bool'
      ? data.map(Boolean)
      : data.map(decode);
  return tensor(values as number[], { dtype: type })
    .reshape(shape)
    .clone()
    .requiresGrad_(grad);
}

function makeOptimizer(
  name: string,
  parameters: Tensor[],
  options: Readonly<Record<string, number | boolean>>,
): optim.Optimizer {
  const Optimizer = (
    optim as unknown as Record<
      string,
      new (
        parameters: Tensor[],
        options: object,
      ) => optim.Optimizer
    >
  )[name];
  if (Optimizer === undefined) throw new Error(`there is no optimizer named ${name}`);
  return new Optimizer(parameters, options);
}

function userFunctions(
  kept: Kept,
): Record<'same' | 'triple' | 'constant', { apply(x: Tensor): unknown }> {
  const define = (factor: number, backward: (grad: Tensor) => Tensor) =>
    class extends AutogradFunction {
      static forward(_: FunctionContext, x: Tensor): Tensor {
        return x.mul(factor);
      }
      static backward(_: FunctionContext, grad: Tensor): Tensor {
        kept.push(grad);
        const returned = backward(grad);
        kept.push(returned);
        return returned;
      }
    };
  return {
    same: define(1, (grad) => grad),
    triple: define(3, (grad) => grad.mul(3)),
    constant: define(1, (grad) => library.onesLike(grad)),
  };
}

function valuesOf(t: Tensor): Scalar[] {
  const plain = t.detach().reshape([-1]).tolist() as (number | bigint | boolean)[];
  return plain.map(encode);
}

function describe(t: Tensor): Description {
  const grad = t.grad;
  return {
    dtype: t.dtype.name,
    shape: [...t.shape],
    values: valuesOf(t),
    requiresGrad: t.requiresGrad,
    isLeaf: t.isLeaf,
    grad: grad === null ? null : valuesOf(grad),
  };
}
