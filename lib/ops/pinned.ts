/** Pinned host memory: `pinMemory`, `isPinned`, and the creation option. */
import { DeviceError } from '../core/errors.js';
import { formatShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { toPinned } from './copy.js';
import { addMethod } from './method.js';

addMethod('pinMemory', function () {
  if (!this.isCpu) {
    throw new DeviceError(
      `pinMemory: expected a CPU tensor, got ${this.dtype.name}${formatShape(this.sizes)} on ` +
        `${this.device}. Pinned memory is host memory: leave pinMemory out, or make the ` +
        'tensor on the CPU.',
      { op: 'pinMemory', device: String(this.device) },
    );
  }
  return this.isPinned() ? this : toPinned(this, this.dtype);
});
addMethod('isPinned', function () {
  return this.liveStorage('isPinned').isPinned();
});

/**
 * Applies `pinMemory` and `requiresGrad` to a new tensor.
 *
 * @throws DeviceError if there is no pinned memory; AutogradError for a gradient of integers
 */
export function finish(
  t: Tensor,
  { pinMemory = false, requiresGrad = false }: { pinMemory?: boolean; requiresGrad?: boolean },
): Tensor {
  const placed = pinMemory ? t.pinMemory() : t;
  if (placed !== t && !t.isFake) t.dispose();
  return requiresGrad ? placed.requiresGrad_() : placed;
}

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * The tensor in pinned (page-locked) host memory, for asynchronous copies from and to a GPU;
     * itself if it is pinned already. Shape and dtype stay. Gradient: yes.
     *
     * @throws DeviceError for a tensor on a GPU, and where CUDA cannot be used, with the reason.
     * @throws OutOfMemoryError; FreedError if it was freed
     * @see PyTorch `torch.Tensor.pin_memory`
     */
    pinMemory(): Tensor;
    /**
     * Whether the memory is pinned host memory; false on a GPU. @throws FreedError if it was freed
     * @see PyTorch `torch.Tensor.is_pinned`
     */
    isPinned(): boolean;
  }
}
