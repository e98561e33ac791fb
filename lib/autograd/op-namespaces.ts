/** Ops by namespace, as in PyTorch's `torch.ops`. */
import type { Tensor } from '../core/tensor.js';
import { requireTensor } from '../ops/operand.js';
import { set_ } from './set-storage.js';

/**
 * Copies `source` into the memory of `target`, broadcast and converted. `set_` is faster, because
 * it takes over the memory of `source` instead of copying.
 *
 * @throws InPlaceError for a leaf that requires a gradient, outside of `noGrad`. @throws ShapeError
 * @throws FreedError
 * @see PyTorch `torch.ops.fsdp.copy_`
 */
function copy_<T extends Tensor>(target: T, source: Tensor): T {
  requireTensor(target, 'fsdp.copy_', 'target');
  requireTensor(source, 'fsdp.copy_', 'source');
  return target.copy_(source);
}

/** Ops that refill the parameters of a module, for fully sharded training. */
export const fsdp: { readonly set_: typeof set_; readonly copy_: typeof copy_ } = { set_, copy_ };
