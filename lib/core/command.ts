/** What an op's `lower` writes a kernel command with. The encoder is lib/native/command.ts. */
import type { DType } from './dtype.js';
import type { Shape } from './shape.js';
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
  /** An output at other sizes and strides. */
  outputView(t: Tensor, sizes: Shape, strides: Shape): void;
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
