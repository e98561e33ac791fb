/** The option `out`: a tensor that receives the result of an op. */
import { toOneDevice } from '../core/device.js';
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { AutogradError, DeviceError } from '../core/errors.js';
import { gradState } from '../core/modes.js';
import type { AnyOp } from '../core/op.js';
import { optionsOf } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { requireTensor } from './operand.js';

/** An option of functions that can write their result into a tensor. */
export interface OutOption {
  /**
   * Receives the result and is returned. It has the shape of the result and a dtype of its category
   * or a higher one (bool, integer, floating), and may be a view.
   */
  out?: Tensor | undefined;
}

/** The tensor in the options of a function that has no other option. @internal */
export function outOf(op: string, options: OutOption): Tensor | undefined {
  return optionsOf(op, options, 'out').out;
}

/**
 * Runs an op with one output, and writes the result into `out` if there is one.
 *
 * @throws AutogradError if recording is on and a tensor requires a gradient; DeviceError for a
 * tensor on another device; ShapeError for another shape; DtypeError for a dtype of a lower
 * category; InPlaceError for expanded memory
 * @internal
 */
export function dispatchInto(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  out: Tensor | undefined,
): Tensor {
  if (out === undefined) return dispatchOne(op, inputs, params);
  checkOut(op.name, inputs, out);
  return dispatch(op, inputs, params, out)[0] as Tensor;
}

/** Checks the `out` of a call before its result is computed; see {@link dispatchInto}. @internal */
export function checkOut(op: string, inputs: readonly Tensor[], out: Tensor): void {
  requireTensor(out, op, 'out');
  if (gradState.recording && (out.requiresGrad || inputs.some((t) => t.requiresGrad)))
    throw new AutogradError(
      `${op}: expected no tensor that requires a gradient where \`out\` is given, because ` +
        'its gradient would be lost. Leave `out` away, or call it inside noGrad(() => ...).',
      { op },
    );
  const haveNoDims = inputs.every((t) => t.dim() === 0);
  const other = inputs.find(
    (t) => t.storage !== null && t.device !== out.device && (haveNoDims || t.dim() > 0),
  );
  if (other !== undefined)
    throw new DeviceError(
      `${op}: expected \`out\` on ${other.device}, got one on ${out.device}. ` +
        toOneDevice(other.device, out.device),
      { op },
    );
}
