/** Reads when streams reach points of their queues: the time of kernels, not of calls. */
import type { Device } from '../../core/device.js';
import { nativeCall, streamOf, writer } from '../../eager/submit.js';

/** A point of a stream. */
export interface StreamMark {
  readonly event: number;
  readonly device: Device;
  readonly stream: number;
}

/** A point of a device's clock by the host's. */
interface Origin {
  readonly mark: StreamMark;
  readonly at: number;
}

const TRIES = 10;

/** Marks points of streams, of any devices. @internal */
export class StreamClock {
  private readonly origins = new Map<Device, Origin>();
  private readonly events = new Set<number>();

  /**
   * Marks the present end of a stream: by default the one that runs ops of the device. The first
   * mark of a device blocks until the stream is there.
   */
  mark(device: Device, stream: number = streamOf(device)): StreamMark {
    if (!this.origins.has(device)) this.origins.set(device, this.originOf(device, stream));
    return this.record(device, stream);
  }

  /** When the stream came to the mark, by `performance.now()`. Blocks until then. */
  time({ event, device }: StreamMark): number {
    const { mark, at } = this.origins.get(device) as Origin;
    return at + this.call(() => writer.addon.eventElapsedMs(mark.event, event), device);
  }

  /** Frees a mark. */
  free({ event }: StreamMark): void {
    if (this.events.delete(event)) writer.addon.eventDestroy(event);
  }

  /** Frees all marks. */
  dispose(): void {
    for (const event of this.events) writer.addon.eventDestroy(event);
    this.events.clear();
    this.origins.clear();
  }

  /** Of several tries the one in which the host knows best when the stream was there. */
  private originOf(device: Device, stream: number): Origin {
    let best: Origin | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (let i = 0; i < TRIES; i++) {
      const before = performance.now();
      const mark = this.record(device, stream);
      this.call(() => writer.addon.eventSynchronize(mark.event), device);
      const passed = performance.now() - before;
      if (passed < least) best = { mark, at: before + passed / 2 };
      least = Math.min(least, passed);
    }
    return best as Origin;
  }

  private record(device: Device, stream: number): StreamMark {
    return this.call(() => {
      const event = writer.addon.eventCreate(device.code, true);
      this.events.add(event);
      writer.addon.eventRecord(event, stream);
      return { event, device, stream };
    }, device);
  }

  private call<T>(run: () => T, device: Device): T {
    return nativeCall(run, 'a mark of a stream', [], device);
  }
}
