/**
 * Writes operands of ops along one dim: that dim goes last, and the other dims merge where strides
 * allow.
 */

import type { CommandWriter } from '../core/command.js';
import type { Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/** Strides of a tensor with `dim` moved to the end. */
function dimLast(list: Shape, dim: number): number[] {
  return [...list.filter((_, i) => i !== dim), list[dim] as number];
}

/**
 * Writes a tensor operand with `dim` last; `write` is the command's `view` or `outputView`.
 * @internal
 */
export function writeRows(
  write: (t: Tensor, sizes: Shape, strides: Shape) => void,
  t: Tensor,
  dim: number,
): void {
  if (t.shape.length === 0) write(t, [1], [1]);
  else write(t, dimLast(t.shape, dim), dimLast(t.strides, dim));
}

/** Inputs, then outputs, all with `dim` last. @internal */
export function lowerRows(
  command: CommandWriter,
  inputs: readonly Tensor[],
  outputs: readonly Tensor[],
  dim: number,
): void {
  for (const t of inputs) writeRows((x, sizes, strides) => command.view(x, sizes, strides), t, dim);
  for (const t of outputs)
    writeRows((x, sizes, strides) => command.outputView(x, sizes, strides), t, dim);
}
