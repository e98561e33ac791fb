/** The `memory` namespace: what each device's allocator holds, for the CPU as well as for GPUs. */
import { cpu, type Device, type DeviceName, device as deviceOf } from '../core/device.js';
import { collectGarbage } from '../eager/garbage.js';
import { nativeCall, writer } from '../eager/submit.js';
import type { NativeMemoryStats } from '../native/addon.js';

/** Statistics of the caching allocator of a device, in bytes and counts. */
export function stats(which: DeviceName | Device = cpu): NativeMemoryStats {
  const { code } = deviceOf(which);
  return nativeCall(() => writer.addon.memoryStats(code), 'memory.stats');
}

/** Starts the peaks again from the present. */
export function resetPeak(which: DeviceName | Device = cpu): void {
  const { code } = deviceOf(which);
  nativeCall(() => writer.addon.resetPeakStats(code), 'memory.resetPeak');
}

/** Gives cached memory that no tensor uses back to the system. */
export function emptyCache(which: DeviceName | Device = cpu): void {
  const { code } = deviceOf(which);
  nativeCall(() => writer.addon.emptyCache(code, 0), 'memory.emptyCache');
}

/** Collects garbage now: frees tensors that nothing refers to, and gives what the heap no longer needs back to the system. */
export function collect(): void {
  collectGarbage();
  writer.addon.trimHeap();
}
