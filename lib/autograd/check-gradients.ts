/**
 * Checks the gradients that user code returns: a wrong shape would broadcast to wrong numbers.
 */
import type { Device } from '../core/device.js';
import type { DType } from '../core/dtype.js';
import { AutogradError } from '../core/errors.js';
import { formatShape, type Shape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';

/** The shape, dtype and device that a gradient must have: those of its tensor. */
export interface GradientSlot {
  readonly shape: Shape;
  readonly dtype: DType;
  readonly device: Device;
}

/**
 * Marks gradients as visible to user code, so that the engine neither adds into them nor reuses or
 * frees them. Returns them.
 */
export function expose<T extends readonly (Tensor | null | undefined)[]>(grads: T): T {
  for (let i = 0; i < grads.length; i++) grads[i]?.storage?.expose();
  return grads;
}

/** The same for one gradient. */
export function exposeOne(grad: Tensor): Tensor {
  grad.storage?.expose();
  return grad;
}

function describe(value: unknown): string {
  return value instanceof Tensor
    ? `${value.dtype.name}${formatShape(value.sizes)} on ${value.device}`
    : `${value === null ? 'null' : typeof value}`;
}

function refuse(source: string, slot: GradientSlot, given: unknown): AutogradError {
  const expected = `${slot.dtype.name}${formatShape(slot.shape)} on ${slot.device}`;
  return new AutogradError(
    `${source} returned ${describe(given)} as a gradient, expected ${expected}`,
    { op: source, expected, given: describe(given) },
  );
}

const isSame = (a: Shape, b: Shape): boolean =>
  a.length === b.length && a.every((size, i) => size === b[i]);

/** Whether `to` broadcasts to `from`, so that a gradient of shape `from` can be summed to it. */
function isBroadcastOf(from: Shape, to: Shape): boolean {
  const more = from.length - to.length;
  return more >= 0 && to.every((size, i) => size === 1 || size === from[i + more]);
}

/**
 * Fits a gradient that `backward` of a user's function returned to its input: sums it over
 * broadcast dims and casts it, as for the ops of the library.
 *
 * @throws AutogradError for a value that is not a tensor, or whose shape or device does not fit the
 * input's.
 */
export function fitReturned(given: unknown, slot: GradientSlot, source: string): Tensor {
  if (
    !(given instanceof Tensor) ||
    given.device !== slot.device ||
    !isBroadcastOf(given.sizes, slot.shape)
  )
    throw refuse(source, slot, given);
  const summed = isSame(given.sizes, slot.shape) ? given : given.sumToSize(slot.shape);
  return summed.dtype === slot.dtype ? summed : summed.to(slot.dtype);
}

/**
 * Checks the gradient that a hook returned as a replacement; undefined and null keep the old one.
 *
 * @throws AutogradError unless it has the shape, dtype and device of the gradient.
 * @see PyTorch `torch::autograd::check_hook_result`
 */
export function fitReplaced(given: unknown, grad: Tensor, source: string): Tensor {
  if (given === undefined || given === null) return grad;
  if (
    !(given instanceof Tensor) ||
    given.device !== grad.device ||
    given.dtype !== grad.dtype ||
    !isSame(given.sizes, grad.sizes)
  )
    throw refuse(source, grad, given);
  return exposeOne(given);
}
