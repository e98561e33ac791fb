/** How a step runs: all parameters at once, or one at a time in plain ops. */
import { ArgumentError } from '../core/errors.js';
import { checkFlag } from '../core/options.js';
import { gradOf } from '../core/set-grad.js';
import type { Tensor } from '../core/tensor.js';

/**
 * Implementation of a step; all give the same values up to rounding.
 *
 * PyTorch has two implementations that step many parameters at once, `fused` and `foreach`. Here
 * both select one kernel for all parameters of a dtype and device, which reads each value once. It
 * is also the default. The loop in plain ops serves debugging, and graphs that show each op.
 */
export interface StepMode {
  /**
   * True: all parameters at once. False: one parameter at a time in plain ops, unless `fused` is
   * true. Null, the default: `fused` decides.
   */
  foreach?: boolean | null;
  /**
   * True: all parameters at once. False: one parameter at a time in plain ops, unless `foreach` is
   * true. Null, the default: `foreach` decides.
   */
  fused?: boolean | null;
  /** Only false, for PyTorch's states: autograd does not record steps. */
  differentiable?: false;
}

/** @throws ArgumentError if `differentiable` is true, or both `fused` and `foreach` are */
export function checkStepMode(
  optimizer: string,
  { foreach, fused, differentiable }: StepMode,
): void {
  checkFlag(optimizer, 'foreach', foreach, { orNull: true });
  checkFlag(optimizer, 'fused', fused, { orNull: true });
  checkFlag(optimizer, 'differentiable', differentiable);
  if (differentiable)
    throw new ArgumentError(
      `${optimizer}: differentiable is not supported; write the update with tensors to ` +
        'differentiate through it',
      { differentiable },
    );
  if (fused && foreach)
    throw new ArgumentError(`${optimizer}: fused and foreach cannot both be true`, {
      fused,
      foreach,
    });
}

/** Whether a step loops over the parameters in plain ops. */
export function isPlainLoop({ foreach, fused }: StepMode): boolean {
  return !fused && !foreach && (foreach === false || fused === false);
}

/** Parameters with a gradient, grouped by dtype and device: one kernel takes each group. */
export function withGradients(params: readonly Tensor[]): Tensor[][] {
  const groups = new Map<string, Tensor[]>();
  for (const p of params) {
    if (gradOf(p) === null) continue;
    const key = `${p.dtype.name} ${p.device}`;
    const group = groups.get(key);
    if (group) group.push(p);
    else groups.set(key, [p]);
  }
  return [...groups.values()];
}
