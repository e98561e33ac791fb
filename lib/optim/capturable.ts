/**
 * Learning rates and counts of steps that are tensors: a captured step reads them at every run, and
 * a number would stay what it was at the capture. A step that may be skipped on the device counts
 * there, too.
 */
import { noGrad } from '../autograd/grad-mode.js';
import { float32, float64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { checkNumber, unexpected } from '../core/options.js';
import { keep } from '../core/scope.js';
import { Tensor } from '../core/tensor.js';
import { valueBeside, valueOn } from '../ops/beside.js';
import { foreachAddScalar_ } from '../ops/capturable-steps.js';
import { foreachAdd_ } from '../ops/optimizer-steps.js';
import { where } from '../ops/where.js';

/** What decides whether a group has tensors for its rate and steps. */
interface Capturable {
  [name: string]: unknown;
  lr?: unknown;
  capturable?: boolean | undefined;
  fused?: boolean | null | undefined;
}

/**
 * Whether the steps of a group are counted by tensors. `isScaled`: whether a step may have been
 * skipped on the device, which numbers cannot count.
 */
export function countsByTensors(
  { capturable, fused, lr }: Capturable,
  isScaled: boolean = false,
): boolean {
  return isScaled || capturable === true || (fused === true && lr instanceof Tensor);
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

/** The rate on the device of a parameter, for a step of many. */
export const rateOn = (lr: Tensor | number, p: Tensor): Tensor | number =>
  typeof lr === 'number' ? lr : valueOn(lr, p);

/** The rate for ops on a parameter: on its device, and replicated on its mesh. */
export const rateBeside = (lr: Tensor | number, p: Tensor): Tensor | number =>
  typeof lr === 'number' ? lr : valueBeside(lr, p);

/** Counts a step in tensors, unless `foundInf` is 1. */
export function countStep(steps: readonly Tensor[], foundInf: Tensor | null): void {
  foreachAddScalar_(steps, 1);
  if (foundInf === null) return;
  foreachAdd_(
    steps,
    steps.map((step) => valueBeside(foundInf, step)),
    { alpha: -1 },
  );
}

/** Runs `step`, which overwrites tensors; they stay as they are if `foundInf` is not 0. */
export function stepUnless(
  foundInf: Tensor | null,
  tensors: readonly (Tensor | null)[],
  step: () => void,
): void {
  if (foundInf === null) {
    step();
    return;
  }
  const written = tensors.filter((t) => t !== null);
  const before = written.map((t) => t.detach().clone());
  step();
  for (const [i, t] of written.entries()) {
    const skipped = valueBeside(foundInf, t).ne(0);
    t.copy_(where(skipped, before[i] as Tensor, t));
  }
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

/** Whether the count of a parameter is of the kind that is needed; see {@link convertStep}. */
export function hasStep(p: Tensor, step: Tensor | number | undefined, byTensors: boolean): boolean {
  if (!byTensors) return typeof step === 'number';
  return (
    step instanceof Tensor &&
    step.device === p.device &&
    (step.sharding === null) === (p.sharding === null)
  );
}

/**
 * Gives a state the kind of count that is needed: a number, or a tensor beside the parameter. A
 * tensor is read if a number is needed.
 */
export function convertStep(
  p: Tensor,
  state: Record<string, Tensor | number>,
  byTensors: boolean,
): void {
  const { step } = state;
  if (step === undefined || hasStep(p, step, byTensors)) return;
  if (!byTensors) state['step'] = numberOf(step);
  else if (typeof step === 'number' || step.sharding !== null)
    state['step'] = stepTensor(p, numberOf(step));
  else state['step'] = keep(valueBeside(step, p));
}

/**
 * A number that follows from a count of steps, for ops on a parameter: computed in float64, in
 * which large counts and betas near 1 keep their digits.
 */
export function scalarFor(p: Tensor, step: Tensor, compute: (step: Tensor) => Tensor): Tensor {
  const dtype = p.dtype === float64 ? float64 : float32;
  return compute(step.to(float64)).to(dtype);
}
