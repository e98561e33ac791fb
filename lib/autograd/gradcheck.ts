/** `gradcheck` compares gradients with finite differences, in float64. */
import { float64 } from '../core/dtype.js';
import { ArgumentError, AutogradError } from '../core/errors.js';
import { checkFunction, optionsOf } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import { requireTensors } from '../ops/operand.js';
import { grad } from './backward.js';
import { noGrad } from './grad-mode.js';

/** Options of {@link gradcheck}. */
export interface GradcheckOptions {
  /** Step of the central differences. */
  eps?: number;
  /** The absolute tolerance. */
  atol?: number;
  /** The relative tolerance. */
  rtol?: number;
  /** With false, returns false instead of throwing. */
  raiseException?: boolean;
}

type Differentiable = (...inputs: Tensor[]) => Tensor | readonly Tensor[];

/**
 * Whether the gradients of `fn` agree with central differences, for every input that requires a
 * gradient.
 *
 * @throws ArgumentError unless those inputs are float64
 * @throws AutogradError naming output, input, element and both values where they differ
 * @see PyTorch `torch.autograd.gradcheck`
 */
export function gradcheck(
  fn: Differentiable,
  inputs: readonly Tensor[],
  options: GradcheckOptions = {},
): boolean {
  checkFunction('gradcheck', 'fn', fn);
  requireTensors(inputs, 'gradcheck', 'inputs');
  return check(fn, inputs, options, 'skipped');
}

/**
 * `cutOff` says whether an output that requires no gradient is skipped or compared as a constant.
 */
function check(
  fn: Differentiable,
  inputs: readonly Tensor[],
  options: GradcheckOptions,
  cutOff: 'skipped' | 'constant',
): boolean {
  const {
    eps = 1e-6,
    atol = 1e-5,
    rtol = 1e-3,
    raiseException = true,
  } = optionsOf('gradcheck', options, 'eps atol rtol raiseException');
  const checked = inputs.flatMap((t, i) => (t.requiresGrad ? [i] : []));
  if (checked.length === 0) throw new ArgumentError('gradcheck: no input requires a gradient');
  for (const i of checked)
    if ((inputs[i] as Tensor).dtype !== float64)
      throw new ArgumentError(
        `gradcheck: input ${i} must be float64, it is ${(inputs[i] as Tensor).dtype.name}`,
      );
  const outputs = listOf(fn(...inputs));
  for (const [o, output] of outputs.entries()) {
    if (!output.requiresGrad && cutOff === 'skipped') continue;
    for (const i of checked) {
      const problem = compareJacobians(fn, inputs, o, i, output, { eps, atol, rtol });
      if (problem === null) continue;
      if (raiseException) throw new AutogradError(`gradcheck: ${problem}`, { output: o, input: i });
      return false;
    }
  }
  return true;
}

/**
 * As {@link gradcheck}, for second derivatives: checks the gradients of the gradients, for the
 * inputs and for the gradients of the outputs. A detached gradient counts as a constant.
 */
export function gradgradcheck(
  fn: Differentiable,
  inputs: readonly Tensor[],
  options: GradcheckOptions = {},
): boolean {
  checkFunction('gradgradcheck', 'fn', fn);
  requireTensors(inputs, 'gradgradcheck', 'inputs');
  optionsOf('gradgradcheck', options);
  const outputs = listOf(fn(...inputs)).filter((t) => t.requiresGrad);
  if (outputs.length === 0 || !inputs.some((t) => t.requiresGrad)) return true;
  // Weights differ by element, so that no derivative cancels.
  const weights = outputs.map((t) => weightsLike(t).requiresGrad_());
  const first = (...given: Tensor[]): Tensor[] => {
    const own = given.slice(0, inputs.length);
    const wanted = own.filter((t) => t.requiresGrad);
    const roots = listOf(fn(...own)).filter((t) => t.requiresGrad);
    const grads = grad(roots, wanted, {
      gradOutputs: given.slice(inputs.length),
      createGraph: true,
      allowUnused: true,
    });
    return grads.map((g, i) => g ?? (wanted[i] as Tensor).detach().zerosLike());
  };
  return check(first, [...inputs, ...weights], options, 'constant');
}

function listOf(value: Tensor | readonly Tensor[]): readonly Tensor[] {
  if (value instanceof Tensor) return [value];
  requireTensors(value, 'gradcheck', 'what fn returns');
  return value;
}

function weightsLike(t: Tensor): Tensor {
  return t.detach().newOnes([t.numel()]).cumsum(0).mul(0.7).sin().add(1.5).reshape(t.sizes);
}

function compareJacobians(
  fn: Differentiable,
  inputs: readonly Tensor[],
  o: number,
  i: number,
  output: Tensor,
  { eps, atol, rtol }: Required<Omit<GradcheckOptions, 'raiseException'>>,
): string | null {
  const input = inputs[i] as Tensor;
  const analytical = analyticalJacobian(output, input);
  for (let column = 0; column < input.numel(); column++) {
    const numerical = numericalColumn(fn, inputs, o, i, column, eps);
    for (let row = 0; row < output.numel(); row++) {
      const [a, n] = [analytical[row]?.[column] ?? 0, numerical[row] as number];
      if (!(Math.abs(a - n) <= atol + rtol * Math.abs(n))) {
        return (
          `d output ${o} [${row}] / d input ${i} [${column}] is ${a} by the gradient and ${n} ` +
          `by differences (output ${output.sizes.join('x') || 'scalar'}, input ` +
          `${input.sizes.join('x') || 'scalar'})`
        );
      }
    }
  }
  return null;
}

function analyticalJacobian(output: Tensor, input: Tensor): number[][] {
  if (!output.requiresGrad) return [];
  return Array.from({ length: output.numel() }, (_, row) => {
    const direction = output.detach().newZeros([output.numel()]);
    direction.select(0, row).fill_(1);
    const [g] = grad(output, input, {
      gradOutputs: direction.reshape(output.sizes),
      retainGraph: true,
      allowUnused: true,
    });
    return g ? Array.from(g.toTypedArray() as Float64Array) : [];
  });
}

function numericalColumn(
  fn: Differentiable,
  inputs: readonly Tensor[],
  o: number,
  i: number,
  column: number,
  eps: number,
): number[] {
  const at = (step: number): Float64Array => {
    const moved = inputs.map((t, k) => (k === i ? t.detach().clone().contiguous() : t.detach()));
    const target = moved[i] as Tensor;
    noGrad(() => target.view(-1).select(0, column).add_(step));
    // New leaves, because functions may differentiate inside.
    const leaves = moved.map((t, k) =>
      (inputs[k] as Tensor).requiresGrad ? t.requiresGrad_() : t,
    );
    return (listOf(fn(...leaves))[o] as Tensor).detach().toTypedArray() as Float64Array;
  };
  const [above, below] = [at(eps), at(-eps)];
  return Array.from(above, (v, row) => (v - (below[row] as number)) / (2 * eps));
}
