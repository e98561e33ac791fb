/**
 * Learning rates and counts of steps that are tensors: a captured step reads them at every run, and
 * a number would stay what it was at the capture.
 */
import { noGrad } from '../autograd/grad-mode.js';
import { float32, float64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { checkNumber, unexpected } from '../core/options.js';
import { keep } from '../core/scope.js';
import { Tensor } from '../core/tensor.js';

/** What decides whether a group has tensors for its rate and steps. */
interface Capturable {
  [name: string]: unknown;
  lr?: unknown;
  capturable?: boolean | undefined;
  fused?: boolean | null | undefined;
}

/** Whether the steps of a group are counted by tensors. */
export function countsByTensors({ capturable, fused, lr }: Capturable): boolean {
  return capturable === true || (fused === true && lr instanceof Tensor);
}

/**
 * @throws ArgumentError for a rate below 0, and for a tensor that is not of one floating element or
 * whose group is neither capturable nor fused. A resumed run keeps any rate that a schedule set.
 */
export function checkRate(optimizer: string, group: Capturable & { initialLr?: unknown }): void {
  const { lr, initialLr } = group;
  if (!(lr instanceof Tensor)) {
    checkNumber(optimizer, 'lr', lr, initialLr === undefined ? { from: 0 } : {});
    return;
  }
  if (!lr.dtype.isFloatingPoint || lr.numel() !== 1)
    throw unexpected(optimizer, 'lr', 'a number or a floating tensor of one element', lr);
  if (!countsByTensors(group))
    throw new ArgumentError(
      `${optimizer}: lr is a tensor, which only a step with capturable: true or fused: true reads`,
      { lr },
    );
}

/** A rate or a count as a number; reads a tensor. */
export const numberOf = (value: Tensor | number): number =>
  typeof value === 'number' ? value : value.item<number>();

/** The rate on a device, for a step of many parameters. */
export const rateOn = (lr: Tensor | number, { device }: Tensor): Tensor | number =>
  typeof lr === 'number' || lr.device === device ? lr : lr.detach().to(device);

/** A rate or count for ops on a parameter: on its device, and replicated on its mesh. */
export function rateBeside(lr: Tensor | number, p: Tensor): Tensor | number {
  const there = rateOn(lr, p);
  if (typeof there === 'number' || there.sharding !== null || p.sharding === null) return there;
  return p.sharding.replicated(there.detach());
}

/**
 * Writes a new rate into the tensor that a group had as its rate, since captured steps and programs
 * hold that, if the group can still have one.
 */
export function keepRate(group: Capturable, before: unknown): void {
  const { lr } = group;
  if (!(before instanceof Tensor) || !countsByTensors({ ...group, lr: before })) return;
  noGrad(() => (lr instanceof Tensor ? before.copy_(lr) : before.fill_(lr as number)));
  group.lr = before;
}

/** A count of steps beside a parameter, which no scope disposes of; replicated on its mesh. */
export const stepTensor = (p: Tensor, steps: number): Tensor =>
  keep(noGrad(() => p.detach().newFull([], steps, { dtype: float32 })));

/** Whether the count of a parameter is what its group needs; see {@link convertStep}. */
export function hasStep(p: Tensor, step: Tensor | number | undefined, group: Capturable): boolean {
  if (!countsByTensors(group)) return typeof step === 'number';
  return (
    step instanceof Tensor &&
    step.device === p.device &&
    (step.sharding === null) === (p.sharding === null)
  );
}

/**
 * Gives a state the kind of count that its group has: a number, or a tensor beside the parameter. A
 * tensor is read if a number is needed.
 */
export function convertStep(
  p: Tensor,
  state: Record<string, Tensor | number>,
  group: Capturable,
): void {
  const { step } = state;
  if (step === undefined || hasStep(p, step, group)) return;
  if (!countsByTensors(group)) state['step'] = numberOf(step);
  else if (typeof step === 'number' || step.sharding !== null)
    state['step'] = stepTensor(p, numberOf(step));
  else state['step'] = keep(rateBeside(step, p) as Tensor);
}

/**
 * A number that follows from a count of steps, for ops on a parameter: computed in float64, in
 * which large counts and betas near 1 keep their digits.
 */
export function scalarFor(p: Tensor, step: Tensor, compute: (step: Tensor) => Tensor): Tensor {
  const dtype = p.dtype === float64 ? float64 : float32;
  return compute(step.to(float64)).to(dtype);
}
