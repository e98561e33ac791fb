/** One value for ops on another tensor: on its device, and replicated on its mesh. */
import type { Tensor } from '../core/tensor.js';

/** The value on the device of a tensor. @internal */
export const valueOn = (value: Tensor, { device }: Tensor): Tensor =>
  value.device === device ? value : value.detach().to(device);

/** The value on the device of a tensor, and replicated if that is distributed. @internal */
export function valueBeside(value: Tensor, t: Tensor): Tensor {
  const there = valueOn(value, t);
  if (there.sharding !== null || t.sharding === null) return there;
  return t.sharding.replicated(there.detach());
}
