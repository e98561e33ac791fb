/** Copies of batches to a GPU, on a stream of their own beside the work of the step before. */
import { cuda, type Device, type Tensor, tree } from '../index.js';

/** Copies batches to a device. */
export class DeviceCopies {
  private readonly device: Device;
  private readonly stream: cuda.Stream;

  constructor(device: Device) {
    this.device = device;
    this.stream = new cuda.Stream({ device });
  }

  /** Begins to copy the tensors of a batch. Ops that use a copy wait for it. */
  begin(batch: unknown): unknown {
    return cuda.stream(this.stream, () => tree.map((t: Tensor) => this.copyOf(t), batch));
  }

  /** Ends the stream; copies that have begun complete. */
  end(): void {
    this.stream.dispose();
  }

  private copyOf(t: Tensor): Tensor {
    if (t.device === this.device) return t;
    return (t.isCpu ? t.pinMemory() : t).to(this.device, { nonBlocking: true });
  }
}
