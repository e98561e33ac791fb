/**
 * The interfaces that entries of the op table run with. `lower` writes a kernel command, which
 * lib/native/command.ts encodes; `move` allocates and copies through lib/eager.
 */
import type { Device } from './device.js';
import type { DType } from './dtype.js';
import type { OutputMeta } from './op.js';
import type { Shape } from './shape.js';
import type { Storage } from './storage.js';
import type { Tensor } from './tensor.js';

export interface CommandWriter {
  /** A tensor operand as it is; a wrapped number becomes an immediate. */
  tensor(t: Tensor): void;
  /** A tensor's storage at other sizes and strides (in elements), from the tensor's own offset. */
  view(t: Tensor, sizes: Shape, strides: Shape): void;
  /**
   * A tensor whose elements are one run of memory, as `count` elements; a wrapped number becomes an
   * immediate.
   */
  flat(t: Tensor, count: number): void;
  /** A number in place of a tensor; 0 stands for an absent optional operand. */
  immediate(value: number, dtype: DType): void;
  /**
   * Sizes and strides without data: maps coordinates to the global element index, for random
   * numbers.
   */
  indexView(start: number, sizes: Shape, strides: Shape): void;
  /** An output as it is; inputs are written before outputs. */
  output(t: Tensor): void;
  /** An output at other sizes and strides, `offset` elements (0) after its own. */
  outputView(t: Tensor, sizes: Shape, strides: Shape, offset?: number): void;
  /** An output whose elements are one run of memory. */
  flatOutput(t: Tensor, count: number): void;
  /** An optional output that is not wanted. */
  absentOutput(): void;
  /**
   * An estimate of the work in simple element operations; decides whether a small command runs
   * inline.
   */
  cost(operations: number): void;
  /** A kernel parameter, in the order of the op's `kernelParams`. */
  param(value: number): void;
}

/**
 * What writers of commands have in common: they count the parts of a command, and write a tensor as
 * a view of its own layout.
 */
export abstract class CountingWriter implements CommandWriter {
  protected inputs = 0;
  protected outputs = 0;
  protected params = 0;
  protected estimate = 0;

  /** Called before each command. */
  protected startCounts(): void {
    this.inputs = 0;
    this.outputs = 0;
    this.params = 0;
    this.estimate = 0;
  }

  tensor(t: Tensor): void {
    this.view(t, t.sizes, t.strides);
  }

  view(t: Tensor, sizes: Shape, strides: Shape): void {
    if (t.storage === null) {
      this.immediate(t.scalarValue, t.dtype);
      return;
    }
    this.inputs++;
    this.memory(t, t.storage);
    this.layout(sizes, strides);
  }

  output(t: Tensor): void {
    this.outputView(t, t.sizes, t.strides);
  }

  cost(operations: number): void {
    this.estimate = operations;
  }

  /** Writes where the memory of a tensor is, `offset` elements (0) after its own, and its dtype. */
  protected abstract memory(t: Tensor, storage: Storage, offset?: number): void;
  protected abstract layout(sizes: Shape, strides: Shape): void;

  abstract flat(t: Tensor, count: number): void;
  abstract immediate(value: number, dtype: DType): void;
  abstract indexView(start: number, sizes: Shape, strides: Shape): void;
  abstract outputView(t: Tensor, sizes: Shape, strides: Shape, offset?: number): void;
  abstract flatOutput(t: Tensor, count: number): void;
  abstract absentOutput(): void;
  abstract param(value: number): void;
}

/** The functions with which an op without a kernel allocates and copies. */
export interface MemoryAccess {
  /**
   * A tensor whose values are undefined.
   *
   * @param op - name of the op that allocates, for memory snapshots
   * @param pinned - in pinned host memory
   */
  allocate(op: string, meta: OutputMeta, pinned?: boolean): Tensor;
  /**
   * Copies and converts the elements of one tensor into another of the same shape on the same
   * device.
   */
  copy(from: Tensor, to: Tensor): void;
  /**
   * Copies the bytes of one tensor into another of the same layout, in order with the streams of
   * both.
   */
  copyBytes(from: Tensor, to: Tensor): void;
  /**
   * @throws DeviceError if the devices belong to different ranks, between which copies are not
   * allowed
   */
  checkReach(from: Device, to: Device): void;
  /** @throws ShapeError, DtypeError, InPlaceError unless a result can be written into the tensor */
  checkInto(op: string, into: Tensor, meta: OutputMeta): void;
}
