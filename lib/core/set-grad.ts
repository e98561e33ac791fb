/** Assigns `.grad`: checks the gradient and decides who owns its memory. */
import { toOneDevice } from './device.js';
import { AutogradError } from './errors.js';
import { layers } from './hooks.js';
import { outliveScope } from './scope-stack.js';
import { sameShape } from './shape.js';
import type { Tensor } from './tensor.js';

/**
 * Replaces `.grad`. Frees the old gradient at once if user code never saw it. `call`: who assigns
 * it, for errors. @internal
 */
export function setGrad(tensor: Tensor, value: Tensor | null, call = 'grad'): void {
  if (value !== null) checkGradient(tensor, value, call);
  layers.backend.capture?.setsGrad(tensor, value);
  const before = tensor.gradTensor;
  if (before === value) return;
  if (value !== null) {
    // The gradient lives as long as the memory of its tensor: a scope that owns the tensor frees
    // both.
    const scope = tensor.storage?.scope ?? null;
    if (scope === null || value.storage === null || value.storage.scope === null) value.retain();
    else outliveScope(value.storage, scope);
  }
  tensor.gradTensor = value;
  if (value !== null) layers.backend.observer?.mark(value.storage, 'gradient');
  if (before !== null && before.retains > 0) before.release();
  if (before?.storage && before.storage.handle !== 0 && !before.storage.exposed) before.dispose();
}

/** The `.grad` of a tensor, for library code that does not hand it to the program. @internal */
export function gradOf(tensor: Tensor): Tensor | null {
  layers.backend.capture?.readsGrad(tensor);
  return tensor.gradTensor;
}

/** @throws AutogradError for a gradient that does not fit the tensor */
function checkGradient(tensor: Tensor, value: Tensor, call: string): void {
  if (value === tensor)
    throw new AutogradError('grad: expected a gradient, got the tensor itself. Pass a clone().');
  if ((value.sharding === null) !== (tensor.sharding === null))
    throw gradientOfAnotherKind(tensor, value);
  const dtype = tensor.ownGradDtype ?? tensor.dtype;
  if (
    !sameShape(value.sizes, tensor.sizes) ||
    value.dtype !== dtype ||
    value.device !== tensor.device
  ) {
    const advice =
      tensor.device === value.device ? '' : `. ${toOneDevice(value.device, tensor.device)}`;
    throw new AutogradError(
      `${call}: expected ${dtype.name}[${tensor.sizes.join(', ')}] on ${tensor.device}, ` +
        `got ${value.dtype.name}[${value.sizes.join(', ')}] on ${value.device}${advice}`,
    );
  }
}

function gradientOfAnotherKind(tensor: Tensor, value: Tensor): AutogradError {
  const [of, given] = [tensor, value].map((t) =>
    t.sharding === null ? 'a plain tensor' : `a tensor placed as ${t.sharding.spec}`,
  );
  return new AutogradError(
    `grad: expected a ${tensor.sharding === null ? 'plain' : 'distributed'} gradient for ${of}, ` +
      `got ${given}. Use distributeTensor or DTensor.fromLocal, or toLocal() for a plain tensor.`,
  );
}
