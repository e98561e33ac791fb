/** Putting other memory under a tensor that keeps its identity: `set_` and the `data` property. */
import { AutogradError, DeviceError, DtypeError, InPlaceError } from '../core/errors.js';
import { storageSwap, Tensor } from '../core/tensor.js';
import { isGradEnabled } from './grad-mode.js';

function checkSame(op: string, target: Tensor, source: Tensor): void {
  if (source.dtype !== target.dtype) {
    throw new DtypeError(`${op}: expected a tensor of dtype ${target.dtype.name}, got ${source.dtype.name}. Convert it with .to(${target.dtype.name}) first.`, { op });
  }
  if (source.device !== target.device) {
    throw new DeviceError(`${op}: expected a tensor on ${target.device}, got one on ${source.device}. Move it with .to('${target.device}') first.`, { op });
  }
}

function checkRecording(target: Tensor, source: Tensor): void {
  if (!isGradEnabled()) return;
  if (target.requiresGrad) {
    throw new InPlaceError('set_: a tensor that requires a gradient cannot get other memory, its gradient would be lost. Do it inside noGrad(() => ...).', {
      op: 'set_',
      shape: target.shape,
    });
  }
  if (source.requiresGrad) throw new AutogradError('set_: the source requires a gradient, which would be lost. Pass source.detach(), or do it inside noGrad(() => ...).');
}

const members: PropertyDescriptorMap & ThisType<Tensor> = {
  set_: {
    value(source: Tensor): Tensor {
      checkSame('set_', this, source);
      checkRecording(this, source);
      storageSwap.run(this, source, true);
      return this;
    },
    writable: true,
    configurable: true,
  },
  data: {
    get(): Tensor {
      const storage = this.liveStorage('data');
      return new Tensor(this.shape, this.strides, this.storageOffset, this.dtype, this.device, storage);
    },
    set(source: Tensor) {
      checkSame('data', this, source);
      storageSwap.run(this, source, false);
    },
    configurable: true,
  },
};
Object.defineProperties(Tensor.prototype, members);

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Makes this tensor show the memory of `source`, at its shape and strides, without a copy. The object, its hooks and its
     * `.grad` stay; the version goes up. The memory then lives as long as this tensor's own would have, also if `source` belongs
     * to an inner scope. FSDP swaps sharded and gathered parameters with it.
     *
     * @throws DtypeError, DeviceError if the tensors differ; InPlaceError, AutogradError if one requires a gradient and recording is on
     * @see PyTorch `Tensor.set_` and `torch.ops.fsdp.set_`
     */
    set_(source: Tensor): this;
    /**
     * The same memory without history: changes through it are seen by nobody, version counters included. Prefer `detach()`.
     * Assigning puts other memory under this tensor, as {@link set_} does, but without any check of the graph.
     */
    data: Tensor;
  }
}
