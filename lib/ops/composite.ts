/**
 * Ops that are functions of other ops, without a kernel or a gradient rule of their own. Each is
 * registered here with its samples, so that the generated tests check its gradient, its method, its
 * in-place twin and its shape under fake tensors as they check the op table.
 */
import { namedAfter } from '../core/caller-name.js';
import { DtypeError, ShapeError } from '../core/errors.js';
import { gradState } from '../core/modes.js';
import { formatShape, sameShape } from '../core/shape.js';
import { declarationOf, methodOf, underName } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { copyBack } from './copy.js';
import { addMethod } from './method.js';
import { checkOut } from './out.js';

// biome-ignore lint/suspicious/noExplicitAny: each function is typed where it is defined.
type AnyFunction = (...args: any[]) => unknown;

/** A registered composite function. @internal */
export interface Composite {
  readonly name: string;
  readonly fn: AnyFunction;
  /** Whether `tensor.name(...)` exists beside the function. */
  readonly method: boolean;
  /** Whether the twin `tensor.name_(...)` exists. */
  readonly inPlace: boolean;
  /** Whether the result's shape depends on values, so that it must read them. */
  readonly readsValues: boolean;
  /** Argument lists, the tensor first. */
  readonly samples: () => readonly (readonly unknown[])[];
}

const table: Composite[] = [];

/** All composite functions, in order of definition. @internal */
export function allComposites(): readonly Composite[] {
  return table;
}

/**
 * Registers a composite function and puts its methods on Tensor; the interface declared beside it
 * gives their types. Returns the function, which errors and records of collectives name as the
 * caller. @internal
 */
export function defineComposite<F extends AnyFunction>(
  name: string,
  body: F,
  options: Partial<Omit<Composite, 'name' | 'fn'>> & Pick<Composite, 'samples'>,
): F {
  const fn = underName(name, body);
  const entry: Composite = {
    method: true,
    inPlace: false,
    readsValues: false,
    ...options,
    name,
    fn,
  };
  table.push(entry);
  if (entry.method) addMethod(name, methodFor(fn));
  if (entry.inPlace) {
    addMethod(`${name}_`, function (...args: unknown[]) {
      return overwrite(`${name}_`, this, (input) => fn(input, ...args) as Tensor, args);
    });
  }
  return fn;
}

/** Functions without options get all arguments of the call. */
function methodFor(fn: AnyFunction): AnyFunction {
  if (declarationOf(fn) !== undefined) return methodOf(fn);
  return function (this: Tensor, ...args: unknown[]) {
    return fn(this, ...args);
  };
}

/**
 * Writes the result of an op on `target` and `others` into `target`. The op gets a copy if the
 * gradient of any operand may need the old values.
 *
 * @internal
 */
export function overwrite(
  name: string,
  target: Tensor,
  op: (input: Tensor) => Tensor,
  others: readonly unknown[] = [],
): Tensor {
  const recorded =
    gradState.recording &&
    (target.requiresGrad || others.some((t) => t instanceof Tensor && t.requiresGrad));
  try {
    return writeBack(name, target, op(recorded ? target.clone() : target));
  } catch (error) {
    throw namedAfter(error, name);
  }
}

/**
 * Writes a result into the tensor that an op in place is called on. @throws ShapeError, DtypeError
 * unless it fits. @internal
 */
export function writeBack(name: string, target: Tensor, result: Tensor): Tensor {
  if (!sameShape(result.sizes, target.sizes)) {
    throw new ShapeError(
      `${name}: the result has shape ${formatShape(result.sizes)} and cannot be written into a ` +
        `tensor of shape ${formatShape(target.sizes)}`,
      { op: name },
    );
  }
  if (result.dtype.category > target.dtype.category) {
    throw new DtypeError(
      `${name}: a ${result.dtype.name} result cannot be written into a tensor of ` +
        `${target.dtype.name}`,
      { op: name },
    );
  }
  return copyBack(target, result);
}

/**
 * Computes a result by other ops, and writes it into `out` if there is one. @throws the errors of
 * {@link dispatchInto} @internal
 */
export function writeOut(
  name: string,
  inputs: readonly Tensor[],
  out: Tensor | undefined,
  compute: () => Tensor,
): Tensor {
  if (out === undefined) return compute();
  checkOut(name, inputs, out);
  return writeBack(name, out, compute());
}

/** Adds a read-only property to Tensor; its type is declared beside the op. @internal */
export function addProperty(name: string, get: (t: Tensor) => unknown): void {
  Object.defineProperty(Tensor.prototype, name, {
    get(this: Tensor) {
      return get(this);
    },
    configurable: true,
    enumerable: false,
  });
}
