/** Memory for gathered parameters and packed gradients, which is there only while it is in use. */
import { type Device, type DType, empty, keep, type Tensor } from '../../index.js';

/**
 * A flat tensor whose memory comes and goes, while the tensor and all views of it stay. Freed
 * memory is reusable in the order of the current stream, however far the host is ahead of the
 * device.
 */
export class RefillableBuffer {
  private readonly tensor: Tensor;
  private readonly bytes: number;

  /**
   * @param numel - of elements
   * @param whyFree - what errors say of the tensor at an offset, while the memory is not there
   */
  constructor(numel: number, dtype: DType, device: Device, whyFree?: (offset: number) => string) {
    this.tensor = keep(empty([numel], { dtype, device }));
    this.bytes = numel * dtype.itemsize;
    if (whyFree !== undefined) this.tensor.untypedStorage().explainErrors(whyFree);
    this.free();
  }

  /** Allocates the memory, of undefined values, unless it is there. Returns a flat tensor on it. */
  allocate(): Tensor {
    const storage = this.tensor.untypedStorage();
    if (storage.size() !== this.bytes) storage.resize_(this.bytes);
    return this.view();
  }

  /** A flat tensor on the memory. Its version counts no changes that are made by other views. */
  view(): Tensor {
    return this.tensor.data;
  }

  /** The flat tensor whose memory comes and goes. */
  get memory(): Tensor {
    return this.tensor;
  }

  /** Bytes in use. */
  get size(): number {
    return this.tensor.untypedStorage().size();
  }

  free(): void {
    const storage = this.tensor.untypedStorage();
    if (storage.size() !== 0) storage.resize_(0);
  }
}
