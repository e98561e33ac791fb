/**
 * What memory a program would need, counted from fake tensors. Garbage collection says nothing
 * here: memory counts from the op that makes it to the last one that reads or writes it, and longer
 * where it is a parameter, a buffer, optimizer state, a gradient that is not dropped, or saved for
 * a backward pass that has not come. No program can do with less.
 */
import type { Device } from '../core/device.js';
import { type DeviceName, device as deviceOf } from '../core/device.js';
import { type MemoryRole, memoryRoles } from '../core/memory-roles.js';
import type { OutputMeta } from '../core/op.js';
import type { Shape } from '../core/shape.js';
import { FAKE_HANDLE, Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';

/** Bytes by what they are for; `total` is their sum. */
export interface FakeMemoryUse {
  /** Bytes under an `nn.Parameter`. */
  readonly parameters: number;
  /** Bytes of registered buffers. */
  readonly buffers: number;
  /** Bytes of `.grad`. */
  readonly gradients: number;
  /** Bytes of optimizers' state. */
  readonly optimizerState: number;
  /** Saved for a backward pass, inputs among them. */
  readonly activations: number;
  /** All else: results on their way from one op to the next. */
  readonly temporaries: number;
  /** The sum of all roles. */
  readonly total: number;
}

/** What {@link FakeMemory.stats} returns. */
export interface FakeMemoryStats {
  /** What the program holds at the moment: without results that no op has to read. */
  readonly current: FakeMemoryUse;
  /** What it held when that was most, since the last `resetPeak`. */
  readonly peak: FakeMemoryUse;
}

/** Memory of one kind at the peak. */
export interface FakeMemoryHolder {
  /** Bytes of all of them. */
  readonly bytes: number;
  /** The number of tensors. */
  readonly count: number;
  /** What the memory is for. */
  readonly role: MemoryRole | 'temporary';
  /** The op that made them. */
  readonly op: string;
  /** The dtype of the tensors. */
  readonly dtype: string;
  /** The shape of the tensors. */
  readonly shape: Shape;
}

/** From when to when a piece of memory was needed, in ops. */
interface Piece {
  readonly storage: FakeStorage;
  readonly bytes: number;
  readonly op: string;
  readonly dtype: string;
  readonly shape: Shape;
  readonly from: number;
  last: number;
  /** Of memory that was given another size: this is what it was before. */
  closed: boolean;
}

/** Memory that is not there, and that is counted. */
class FakeStorage extends Storage {
  private readonly memory: FakeMemory;
  role: MemoryRole | null = null;
  piece!: Piece;

  constructor(device: Device, nbytes: number, memory: FakeMemory) {
    super(device, nbytes);
    this.handle = FAKE_HANDLE;
    this.memory = memory;
  }

  /** Whether it stays, used or not. */
  get isHeld(): boolean {
    return (
      this.handle !== 0 &&
      (this.holds > 0 ||
        (this.role !== null && this.role !== 'activation' && this.role !== 'gradient'))
    );
  }

  override unhold(): void {
    this.memory.touch(this);
    super.unhold();
  }

  override markFreed(reason: string): void {
    if (this.isHeld) this.memory.touch(this);
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
 * The memory of what was made under a {@link FakeTensorMode}, on this rank: bytes of elements,
 * without what allocators round up and kernels work in. Tensors of other memory, real ones among
 * them, do not count.
 */
export class FakeMemory {
  private pieces: Piece[] = [];
  /** Ops so far. */
  private now = 0;
  private peakFrom = 0;
  private op = 'tensor';

  /** Bytes now and at the peak, of one device or of all of them. */
  stats(which?: DeviceName | Device): FakeMemoryStats {
    const pieces = this.of(which);
    return {
      current: sum(pieces.filter(isHeld)),
      peak: sum(aliveAt(pieces, this.peakTime(pieces))),
    };
  }

  /** Who held the memory at the peak, in groups of one role, op, dtype and shape, largest first. */
  holders(which?: DeviceName | Device): FakeMemoryHolder[] {
    const pieces = this.of(which);
    const groups = new Map<string, FakeMemoryHolder>();
    for (const { storage, bytes, op, dtype, shape } of aliveAt(pieces, this.peakTime(pieces))) {
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

  /** Starts the peak again from what is held now. */
  resetPeak(): void {
    this.peakFrom = ++this.now;
    this.pieces = this.pieces.filter(isHeld);
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
    for (const t of inputs) this.touch(t.storage);
    if (into !== null) this.touch(into.storage);
    this.op = op;
    try {
      return run();
    } finally {
      this.op = outer;
    }
  }

  /** @internal */
  touch(storage: Storage | null): void {
    if (storage instanceof FakeStorage) storage.piece.last = this.now;
  }

  /** @internal */
  resized(storage: FakeStorage, nbytes: number): void {
    const { piece } = storage;
    piece.closed = true;
    piece.last = this.now++;
    this.add(storage, nbytes, piece);
  }

  /** @internal hears of roles while `fn` runs */
  listening<T>(fn: () => T): T {
    const before = { ...memoryRoles };
    memoryRoles.use = (storage) => this.touch(storage);
    memoryRoles.mark = (storage, role) => {
      if (!(storage instanceof FakeStorage)) return;
      if (role !== 'activation' || storage.role === null) storage.role = role;
    };
    memoryRoles.swap = (from, to) => this.passRole(from, to);
    try {
      return fn();
    } finally {
      Object.assign(memoryRoles, before);
    }
  }

  private passRole(from: Storage, to: Storage): void {
    if (!(from instanceof FakeStorage)) return;
    this.touch(from);
    if (to instanceof FakeStorage && from.role !== null) to.role = from.role;
    from.role = null;
  }

  private add(
    storage: FakeStorage,
    bytes: number,
    { op, dtype, shape }: Pick<Piece, 'op' | 'dtype' | 'shape'>,
  ): void {
    storage.piece = {
      storage,
      bytes,
      op,
      dtype,
      shape,
      from: this.now,
      last: this.now,
      closed: false,
    };
    this.pieces.push(storage.piece);
  }

  private of(which: DeviceName | Device | undefined): readonly Piece[] {
    if (which === undefined) return this.pieces;
    const found = deviceOf(which);
    return this.pieces.filter(({ storage }) => storage.device === found);
  }

  /** When most was needed. */
  private peakTime(pieces: readonly Piece[]): number {
    const changes = new Map<number, number>();
    const change = (time: number, bytes: number): void =>
      void changes.set(time, (changes.get(time) ?? 0) + bytes);
    for (const piece of pieces) {
      change(Math.max(piece.from, this.peakFrom), piece.bytes);
      if (!isHeld(piece)) change(Math.max(piece.last + 1, this.peakFrom), -piece.bytes);
    }
    let [time, bytes, most] = [this.peakFrom, 0, 0];
    for (const [at, more] of [...changes].sort(([a], [b]) => a - b)) {
      bytes += more;
      if (bytes > most) [time, most] = [at, bytes];
    }
    return time;
  }
}

const isHeld = ({ storage, closed }: Piece): boolean => !closed && storage.isHeld;

function aliveAt(pieces: readonly Piece[], time: number): Piece[] {
  return pieces.filter((piece) => piece.from <= time && (piece.last >= time || isHeld(piece)));
}

function sum(pieces: readonly Piece[]): FakeMemoryUse {
  const use = {
    parameters: 0,
    buffers: 0,
    gradients: 0,
    optimizerState: 0,
    activations: 0,
    temporaries: 0,
    total: 0,
  };
  for (const { storage, bytes } of pieces) {
    use[storage.role === null ? 'temporaries' : useOf[storage.role]] += bytes;
    use.total += bytes;
  }
  return use;
}

let counting: FakeMemory | null = null;

/** Who counts the fake tensors that are made. @internal */
export function countingMemory(): FakeMemory | null {
  return counting;
}

/** @internal */
export function countWith(memory: FakeMemory | null): FakeMemory | null {
  const before = counting;
  counting = memory;
  return before;
}
