/** `recordStream`, for memory that code outside the library's ops uses on another stream. */
import type { Device } from '../core/device.js';
import { ArgumentError } from '../core/errors.js';
import { addMethod } from './method.js';
import { describe } from './operand.js';

/** A stream of a device, such as a `cuda.Stream`. */
export interface DeviceStream {
  readonly device: Device;
  synchronize(): void;
}

addMethod('recordStream', function (stream: DeviceStream): void {
  const id: unknown = (stream as { id?: unknown } | null)?.id;
  if (typeof id !== 'number')
    throw new ArgumentError(`recordStream: expected a cuda.Stream, got ${describe(stream)}`, {
      op: 'recordStream',
      given: stream,
    });
  this.liveStorage('recordStream').recordStream(id);
});

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Records that the stream uses this tensor's memory: after the tensor is freed, the memory is
     * not reused before the work queued on the stream is done. Needed only for code outside the
     * library, since ops record their own streams.
     *
     * @throws ArgumentError for a value that is not a stream. @throws FreedError if the tensor or
     * the stream was disposed.
     * @see PyTorch `torch.Tensor.record_stream`
     */
    recordStream(stream: DeviceStream): void;
  }
}
