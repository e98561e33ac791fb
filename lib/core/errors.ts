/** Error classes of the library: a stable `code`, and the offending values as data in `details`. */
import { showUserFrames } from './user-stack.js';

const inspectSymbol = Symbol.for('nodejs.util.inspect.custom');

/** Base class of every error that Shardwise throws on purpose. */
export class ShardwiseError extends Error {
  /** Stable across releases; match on this, not on the text. */
  readonly code: string;
  /**
   * The values that the message quotes. Not enumerable, so that an uncaught error prints only its
   * message.
   */
  declare readonly details: Readonly<Record<string, unknown>>;
  /** The name of the innermost module whose forward threw it, as in `namedModules`. */
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

  /** The error as plain data, for logs. */
  toJSON(): {
    name: string;
    code: string;
    message: string;
    details: Readonly<Record<string, unknown>>;
  } {
    const { name, code, message, details } = this;
    return { name, code, message, details };
  }

  /** Appends the details to a message, in one line. @internal */
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

/** Thrown for shapes that do not fit an operation. */
export class ShapeError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_SHAPE', message, details);
  }
}

/** Thrown for an element type that an operation does not take. */
export class DtypeError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_DTYPE', message, details);
  }
}

/** Thrown for tensors on different devices, and for a device that does not exist. */
export class DeviceError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_DEVICE', message, details, options);
  }
}

/** Thrown for a dimension or an index that is out of range. */
export class IndexError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_INDEX', message, details, options);
  }
}

/** Thrown for an argument of a wrong kind or value. */
export class ArgumentError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_ARGUMENT', message, details);
  }
}

/**
 * Thrown for a name of PyTorch, NumPy or TensorFlow.js that is not there; the message has what to
 * use instead.
 *
 * @see Python `AttributeError`
 */
export class AttributeError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_ATTRIBUTE', message, details);
  }
}

/**
 * Thrown when a tensor is used whose memory was freed by `dispose`, by its scope, or by
 * `resize_(0)`.
 */
export class FreedError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_FREED', message, details, options);
  }
}

/** Thrown when automatic differentiation is used wrongly. */
export class AutogradError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_AUTOGRAD', message, details);
  }
}

/**
 * Thrown when a value that backward needs was overwritten, and for an in-place operation where none
 * is allowed.
 */
export class InPlaceError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>) {
    super('ERR_IN_PLACE', message, details);
  }
}

/**
 * A group of live storages of the same size, and of the same shape, dtype and op if those were
 * recorded.
 */
export interface MemoryHolder {
  /** Bytes of all storages of the group. */
  readonly bytes: number;
  /** The number of storages. */
  readonly count: number;
  /** Bytes of each storage. */
  readonly bytesEach: number;
  /** The op that allocated them; null if it was not recorded. */
  readonly op: string | null;
  /** Element type of the tensor that they were allocated for; null if it was not recorded. */
  readonly dtype: string | null;
  /** Sizes of the tensor that they were allocated for; null if they were not recorded. */
  readonly shape: readonly number[] | null;
  /**
   * The source of the memory: the device's allocator, pinned host memory, or an ArrayBuffer passed
   * to `fromBlob`.
   */
  readonly memory: 'allocator' | 'pinned' | 'arrayBuffer';
}

/**
 * Thrown when the device has no memory left, after caches were freed and garbage was collected.
 * `details` has the numbers of the message: `requestedBytes`, `allocatedBytes`, `reservedBytes`,
 * `freeBytes`, `totalBytes`, and the `device`.
 */
export class OutOfMemoryError extends ShardwiseError {
  /**
   * The largest groups of live storages of this thread when memory ran out, largest first; at most
   * ten.
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

/** Thrown after a kernel failed asynchronously; the message names the operation that caused it. */
export class KernelError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_KERNEL', message, details, options);
  }
}

/**
 * Thrown when the addon or a backend cannot be loaded; the message lists the files tried and how to
 * repair it.
 */
export class BackendLoadError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_BACKEND_LOAD', message, details, options);
  }
}

/** Thrown for a checkpoint file that is damaged, hostile, or does not match the module. */
export class CheckpointError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_CHECKPOINT', message, details, options);
  }
}

/** Thrown for a sample that cannot be loaded or put into a batch, and for a worker that has ended. */
export class DataError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_DATA', message, details, options);
  }
}

/** Thrown for code that tracing cannot record, and for a graph that is not well formed. */
export class CompileError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_COMPILE', message, details, options);
  }
}

/** Thrown when methods of a gradient scaler are called out of order between two updates. */
export class AmpError extends ShardwiseError {
  constructor(message: string, details: Record<string, unknown> = {}) {
    super('ERR_AMP', message, details);
  }
}

/** Thrown when a store cannot be reached, refuses a client, or has an unexpected value. */
export class StoreError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_STORE', message, details, options);
  }
}

/** Thrown when a wait for other ranks exceeds its timeout. */
export class TimeoutError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_TIMEOUT', message, details, options);
  }
}

/**
 * Thrown when ranks, groups or meshes are used before they exist, or by a rank that is not a
 * member.
 */
export class DistributedError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_DISTRIBUTED', message, details, options);
  }
}

/** Describes the collective that failed. Ranks are global ranks, as in the message. */
export interface CollectiveDetails extends Readonly<Record<string, unknown>> {
  /** The function that the program called. */
  readonly op: string;
  /** The name of the group. */
  readonly group: string;
  /**
   * The number of the collective in its group, from 1; 0 for messages between two ranks and if it
   * is not known.
   */
  readonly sequence: number;
  /**
   * The ranks that caused it: they made another call, died, did not join in time, or aborted the
   * group.
   */
  readonly ranks: readonly number[];
  /**
   * The call of each of these ranks, or its last call if it did not make this one, with the call
   * site.
   */
  readonly calls: readonly { readonly rank: number; readonly op: string; readonly where: string }[];
  /** The file with the last collectives of this process, if one was written. */
  readonly flightRecord?: string;
}

/**
 * Thrown when a collective failed: ranks made different calls, or one died, did not join in time,
 * or aborted the group.
 */
export class CollectiveError extends ShardwiseError {
  declare readonly details: Readonly<Record<string, unknown>> & Partial<CollectiveDetails>;

  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_COLLECTIVE', message, details, options);
  }
}

/**
 * Thrown for placements that do not fit a tensor or its mesh, or that an operation does not
 * support.
 */
export class ShardingError extends ShardwiseError {
  constructor(message: string, details?: Record<string, unknown>, options?: ErrorOptions) {
    super('ERR_SHARDING', message, details, options);
  }
}
