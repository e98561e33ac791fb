/**
 * The common part of ops along one dim: their parameter, their lowering, and 0-d tensors, which
 * count as vectors of one element.
 */

import type { CommandWriter } from '../core/command.js';
import { type ParamsOf, param } from '../core/op-params.js';
import type { Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';

/** The parameter of an op along one dim. @internal */
export const oneDimParams = { dim: param.value<number>() };
export type OneDim = ParamsOf<typeof oneDimParams>;

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
  if (t.sizes.length === 0) write(t, [1], [1]);
  else write(t, dimLast(t.sizes, dim), dimLast(t.strides, dim));
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

/** A view with one dim of a tensor without dims; another tensor itself. @internal */
export function oneDim(t: Tensor): Tensor {
  return t.sizes.length === 0 ? t.reshape([1]) : t;
}

/**
 * Applies `change` to a tensor of at most one dim as a vector, and returns the result in the
 * tensor's own shape. An in-place change writes into the tensor. @internal
 */
export function asVector(
  input: Tensor,
  into: Tensor | null,
  change: (vector: Tensor, into: Tensor | null) => Tensor,
): Tensor {
  const vector = oneDim(input);
  const changed = change(vector, into === null ? null : vector);
  return into ?? reshapeIfNeeded(changed, input.sizes);
}
