/**
 * Counts the memory that a program would need, from its fake tensors. Garbage collection does not
 * matter: memory counts from the op that allocates it to the last op that reads or writes it. It
 * counts longer if it is a parameter, a buffer, optimizer state, a gradient, or saved for a
 * backward pass that has not run. So the result is a lower bound.
 */
import type { MemoryObserver, MemoryRole } from '../core/backend.js';
import type { Device } from '../core/device.js';
import { type DeviceName, device as deviceOf } from '../core/device.js';
import type { OutputMeta } from '../core/op.js';
import type { Shape } from '../core/shape.js';
import { FAKE_HANDLE, Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';

/** Bytes by role; `total` is their sum. */
export interface FakeMemoryUse {
  /** Bytes under an `nn.Parameter`. */
  readonly parameters: number;
  /** Bytes of registered buffers. */
  readonly buffers: number;
  /** Bytes of `.grad`. */
  readonly gradients: number;
  /** Bytes of optimizers' state. */
  readonly optimizerState: number;
  /** Saved for a backward pass, including inputs. */
  readonly activations: number;
  /** All others: results that the next op reads. */
  readonly temporaries: number;
  /** The sum of all roles. */
  readonly total: number;
}

/** The result of {@link FakeMemory.stats}. */
export interface FakeMemoryStats {
  /** Memory in use now, without results that no op reads any more. */
  readonly current: FakeMemoryUse;
  /** Memory in use at the peak since the last `resetPeak`. */
  readonly peak: FakeMemoryUse;
}

/** Memory at the peak of one role, op, dtype and shape. */
export interface FakeMemoryHolder {
  /** Bytes of all `count` allocations. */
  readonly bytes: number;
  /** The number of tensors. */
  readonly count: number;
  /** What the memory is for. */
  readonly role: MemoryRole | 'temporary';
  /** The op that allocated them. */
  readonly op: string;
  /** The dtype of the tensors. */
  readonly dtype: string;
  /** The shape of the tensors. */
  readonly shape: Shape;
}

/** The lifetime of an allocation, counted in ops. */
interface Allocation {
  readonly storage: FakeStorage;
  readonly bytes: number;
  readonly op: string;
  readonly dtype: string;
  readonly shape: Shape;
  readonly from: number;
  last: number;
  /** True once the storage was resized, which starts another allocation. */
  closed: boolean;
}

/** A storage without memory, whose bytes are counted. */
class FakeStorage extends Storage {
  private readonly memory: FakeMemory;
  role: MemoryRole | null = null;
  allocation!: Allocation;

  constructor(device: Device, nbytes: number, memory: FakeMemory) {
    super(device, nbytes);
    this.handle = FAKE_HANDLE;
    this.memory = memory;
  }

  /** Whether the memory is in use even if no op reads it. */
  get isHeld(): boolean {
    return (
      this.handle !== 0 &&
      (this.retains > 0 ||
        this.owner !== null ||
        (this.role !== null && this.role !== 'activation' && this.role !== 'gradient'))
    );
  }

  override release(): void {
    this.memory.use(this);
    super.release();
  }

  override markFreed(reason: string): void {
    if (this.isHeld) this.memory.use(this);
    super.markFreed(reason);
  }

  override resizeNow(nbytes: number): void {
    super.resizeNow(nbytes);
    this.memory.resized(this, nbytes);
  }
}

const useOf: Record<MemoryRole, Exclude<keyof FakeMemoryUse, 'total' | 'temporaries'>> = {
  parameter: 'parameters',
  buffer: 'buffers',
  gradient: 'gradients',
  optimizerState: 'optimizerState',
  activation: 'activations',
};

/**
 * The memory of tensors created under a {@link FakeTensorMode} on this rank: bytes of elements,
 * without rounding by allocators and without workspaces of kernels. Other tensors do not count.
 */
export class FakeMemory implements MemoryObserver {
  private allocations: Allocation[] = [];
  /** Number of ops so far. */
  private now = 0;
  private peakFrom = 0;
  private op = 'tensor';

  /** Bytes now and at the peak, of one device or of all. */
  stats(which?: DeviceName | Device): FakeMemoryStats {
    const allocations = this.of(which);
    return {
      current: sum(allocations.filter(isHeld)),
      peak: sum(aliveAt(allocations, this.peakTime(allocations))),
    };
  }

  /** The memory at the peak by role, op, dtype and shape, largest first. */
  holders(which?: DeviceName | Device): FakeMemoryHolder[] {
    const allocations = this.of(which);
    const groups = new Map<string, FakeMemoryHolder>();
    for (const { storage, bytes, op, dtype, shape } of aliveAt(
      allocations,
      this.peakTime(allocations),
    )) {
      const role = storage.role ?? 'temporary';
      const key = [role, op, dtype, shape.join()].join('|');
      const known = groups.get(key);
      groups.set(key, {
        bytes: bytes + (known?.bytes ?? 0),
        count: 1 + (known?.count ?? 0),
        role,
        op,
        dtype,
        shape,
      });
    }
    return [...groups.values()].sort((a, b) => b.bytes - a.bytes);
  }

  /** Restarts the peak from the memory in use now. */
  resetPeak(): void {
    this.peakFrom = ++this.now;
    this.allocations = this.allocations.filter(isHeld);
  }

  /** @internal the memory of a new fake tensor */
  make(meta: Pick<OutputMeta, 'shape' | 'dtype' | 'device'>, nbytes: number): Storage {
    const storage = new FakeStorage(meta.device, nbytes, this);
    this.add(storage, nbytes, { op: this.op, dtype: meta.dtype.name, shape: meta.shape });
    return storage;
  }

  /** @internal counts an op that reads and writes these tensors */
  during<T>(op: string, inputs: readonly Tensor[], into: Tensor | null, run: () => T): T {
    const outer = this.op;
    this.now++;
    for (const t of inputs) this.use(t.storage);
    if (into !== null) this.use(into.storage);
    this.op = op;
    try {
      return run();
    } finally {
      this.op = outer;
    }
  }

  /** @internal */
  use(storage: Storage | null): void {
    if (storage instanceof FakeStorage) storage.allocation.last = this.now;
  }

  /** @internal */
  resized(storage: FakeStorage, nbytes: number): void {
    const { allocation } = storage;
    allocation.closed = true;
    allocation.last = this.now++;
    this.add(storage, nbytes, allocation);
  }

  /** @internal */
  mark(storage: Storage | null, role: MemoryRole): void {
    if (!(storage instanceof FakeStorage)) return;
    if (role !== 'activation' || storage.role === null) storage.role = role;
  }

  /** @internal */
  swap(from: Storage, to: Storage): void {
    if (!(from instanceof FakeStorage)) return;
    this.use(from);
    if (to instanceof FakeStorage && from.role !== null) to.role = from.role;
    from.role = null;
  }

  private add(
    storage: FakeStorage,
    bytes: number,
    { op, dtype, shape }: Pick<Allocation, 'op' | 'dtype' | 'shape'>,
  ): void {
    storage.allocation = {
      storage,
      bytes,
      op,
      dtype,
      shape,
      from: this.now,
      last: this.now,
      closed: false,
    };
    this.allocations.push(storage.allocation);
  }

  private of(which: DeviceName | Device | undefined): readonly Allocation[] {
    if (which === undefined) return this.allocations;
    const found = deviceOf(which);
    return this.allocations.filter(({ storage }) => storage.device === found);
  }

  /** The time at which the most memory was in use. */
  private peakTime(allocations: readonly Allocation[]): number {
    const changes = new Map<number, number>();
    const change = (time: number, bytes: number): void =>
      void changes.set(time, (changes.get(time) ?? 0) + bytes);
    for (const allocation of allocations) {
      change(Math.max(allocation.from, this.peakFrom), allocation.bytes);
      if (!isHeld(allocation))
        change(Math.max(allocation.last + 1, this.peakFrom), -allocation.bytes);
    }
    let [time, bytes, most] = [this.peakFrom, 0, 0];
    for (const [at, more] of [...changes].sort(([a], [b]) => a - b)) {
      bytes += more;
      if (bytes > most) [time, most] = [at, bytes];
    }
    return time;
  }
}

const isHeld = ({ storage, closed }: Allocation): boolean => !closed && storage.isHeld;

function aliveAt(allocations: readonly Allocation[], time: number): Allocation[] {
  return allocations.filter(
    (allocation) => allocation.from <= time && (allocation.last >= time || isHeld(allocation)),
  );
}

function sum(allocations: readonly Allocation[]): FakeMemoryUse {
  const use = {
    parameters: 0,
    buffers: 0,
    gradients: 0,
    optimizerState: 0,
    activations: 0,
    temporaries: 0,
    total: 0,
  };
  for (const { storage, bytes } of allocations) {
    use[storage.role === null ? 'temporaries' : useOf[storage.role]] += bytes;
    use.total += bytes;
  }
  return use;
}
