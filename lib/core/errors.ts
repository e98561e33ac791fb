/** Error classes of the library: a stable `code`, and the offending values as data in `details`. */
import { showUserFrames } from './user-stack.js';

const inspectSymbol = Symbol.for('nodejs.util.inspect.custom');

/** Base class of every error that Shardwise throws on purpose. */
export class ShardwiseError extends Error {
  /** Stable across releases; match on this, not on the text. */
  readonly code: string;
  /**
   * The values that the message quotes. Not enumerable: an error that nobody catches prints its
   * message and not them as well.
   */
  declare readonly details: Readonly<Record<string, unknown>>;
  /** Where in a model it was thrown: the name of the innermost module, as in `namedModules`. */
  declare modulePath: string | undefined;

  constructor(
    code: string,
    message: string,
    details: Record<string, unknown> = {},
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.code = code;
    Object.defineProperty(this, 'details', {
      value: details,
      configurable: true,
      enumerable: false,
    });
    showUserFrames(this, new.target as unknown as () => unknown, code !== 'ERR_COLLECTIVE');
  }

  /** The public name of the class. */
  override get name(): string {
    return `${this.constructor.name} [${this.code}]`;
  }

  /** What logs keep of it. */
  toJSON(): {
    name: string;
    code: string;
    message: string;
    details: Readonly<Record<string, unknown>>;
  } {
    const { name, code, message, details } = this;
    return { name, code, message, details };
  }

  /** The details in one line, at the end. @internal */
  [inspectSymbol](
    _: number,
    options: object,
    inspect: (value: unknown, options: object) => string,
  ): string {
    const text = inspect(this, { ...options, customInspect: false });
    if (Object.keys(this.details).length === 0) return text;
    const details = inspect(this.details, {
      ...options,
      depth: 2,
      maxArrayLength: 8,
      breakLength: Number.POSITIVE_INFINITY,
      compact: true,
    });
    return text.replace(
      /(\s)\}$/,
      (_end, space: string) => `,${space === '\n' ? '\n  ' : ' '}details: ${details}${space}}`,
    );
  }
}

/** Shapes that do not fit an operation. */
export class ShapeError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_SHAPE', message, details);
  }
}

/** An element type that an operation does not take. */
export class DtypeError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_DTYPE', message, details);
  }
}

/** Tensors on different devices, or a device that is not there. */
export class DeviceError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_DEVICE', message, details, options);
  }
}

/** A dimension or an index that is out of range. */
export class IndexError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_INDEX', message, details, options);
  }
}

/** An argument of a wrong kind or value. */
export class ArgumentError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_ARGUMENT', message, details);
  }
}

/** Use of a tensor whose memory was freed, by `dispose`, by its scope, or by `resize_(0)`. */
export class FreedError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_FREED', message, details, options);
  }
}

/** A mistake in the use of automatic differentiation. */
export class AutogradError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_AUTOGRAD', message, details);
  }
}

/** A value that backward needs was overwritten, or an in-place operation where none is allowed. */
export class InPlaceError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_IN_PLACE', message, details);
  }
}

/**
 * Live storages of one kind, taken together: of one size, and of one shape, dtype and maker where
 * those were recorded.
 */
export interface MemoryHolder {
  /** Bytes of all of them. */
  readonly bytes: number;
  /** How many there are. */
  readonly count: number;
  /** Bytes of each. */
  readonly bytesEach: number;
  /** The op that made them; null where it was not recorded. */
  readonly op: string | null;
  /** Element type of the tensor that they were made for; null where it was not recorded. */
  readonly dtype: string | null;
  /** Sizes of the tensor that they were made for; null where they were not recorded. */
  readonly shape: readonly number[] | null;
  /**
   * Where the memory is from: the device's allocator, pinned host memory, or an ArrayBuffer that
   * `fromBlob` was given.
   */
  readonly memory: 'allocator' | 'pinned' | 'arrayBuffer';
}

/**
 * The device has no memory left, after caches were freed and garbage was collected. `details` has
 * the numbers of the message: `requestedBytes`, `allocatedBytes`, `reservedBytes`, `freeBytes`,
 * `totalBytes`, and the `device`.
 */
export class OutOfMemoryError extends ShardwiseError {
  /**
   * The groups of live storages that held most when memory ran out, largest first; at most ten,
   * those of this thread.
   */
  readonly holders: readonly MemoryHolder[];

  constructor(
    message: string,
    details?: Record<string, unknown>,
    options?: ErrorOptions,
    holders: readonly MemoryHolder[] = [],
  ) {
    super('ERR_OUT_OF_MEMORY', message, details, options);
    this.holders = holders;
  }
}

/** An asynchronous failure of a kernel; the message names the operation that caused it. */
export class KernelError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_KERNEL', message, details, options);
  }
}

/**
 * The addon or a backend could not be loaded; the message lists what was tried and how to mend it.
 */
export class BackendLoadError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_BACKEND_LOAD', message, details, options);
  }
}

/** A checkpoint file that is damaged, hostile, or does not match the module. */
export class CheckpointError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_CHECKPOINT', message, details, options);
  }
}

/** Something that tracing cannot record, or a graph that is not well formed. */
export class CompileError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_COMPILE', message, details, options);
  }
}

/** Mixed precision was used out of order: a scaler's methods between two updates. */
export class AmpError extends ShardwiseError {
  constructor(message: string, details: Record<string, unknown> = {}) {
    super('ERR_AMP', message, details);
  }
}

/** A store that cannot be reached, refuses, or holds something else than it should. */
export class StoreError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_STORE', message, details, options);
  }
}

/** Other ranks did not do in time what was waited for. */
export class TimeoutError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_TIMEOUT', message, details, options);
  }
}

/**
 * Ranks, groups or meshes used out of order: before they were set up, by a rank that has no part in
 * them.
 */
export class DistributedError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_DISTRIBUTED', message, details, options);
  }
}

/** What a collective failed in. Ranks are those of the world, as in the message. */
export interface CollectiveDetails extends Readonly<Record<string, unknown>> {
  /** What the program called. */
  readonly op: string;
  /** The name of the group. */
  readonly group: string;
  /**
   * Which of the group's collectives it is, from 1; 0 for messages between two ranks and where it
   * is not known.
   */
  readonly sequence: number;
  /**
   * Those that it is about: who called something else, is gone, did not come, or ended the group.
   */
  readonly ranks: readonly number[];
  /**
   * What is known of the ranks that the message speaks of: what they called here, or last, and
   * where.
   */
  readonly calls: readonly { readonly rank: number; readonly op: string; readonly where: string }[];
}

/**
 * A collective that failed: ranks called different things, one is gone, did not come in time, or
 * ended the group.
 */
export class CollectiveError extends ShardwiseError {
  declare readonly details: Readonly<Record<string, unknown>> & Partial<CollectiveDetails>;

  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_COLLECTIVE', message, details, options);
  }
}

/** Placements that do not fit a tensor or its mesh, or that an operation cannot keep or reach. */
export class ShardingError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_SHARDING', message, details);
  }
}
