/** Merges dims that all operands traverse together, so that kernels see as few dims as possible. */

import type { Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/** What the layout of an operand is read from. */
export type LaidOut = Pick<Tensor, 'sizes' | 'strides' | 'storage'>;

export interface Collapsed {
  sizes: number[];
  /** One list for each input, then the output's. */
  strides: number[][];
}

/**
 * Broadcasts the inputs to the output's shape, sorts dims by the output's strides (largest first),
 * and merges neighbours wherever every operand's strides allow it.
 */
export function collapseOperands(inputs: readonly LaidOut[], output: LaidOut): Collapsed {
  const { sizes: shape } = output;
  const count = inputs.length + 1;
  const sizes: number[] = [];
  const strides: number[][] = [];
  for (let k = 0; k < count; k++) strides.push([]);
  const order = dimsByStride(shape, output.strides);
  for (let i = 0; i < order.length; i++) {
    const dim = order[i] as number;
    const size = shape[dim] as number;
    const last = sizes.length - 1;
    let joins = last >= 0;
    for (let k = 0; k < count && joins; k++)
      joins = (strides[k] as number[])[last] === strideAt(inputs[k] ?? output, dim, shape) * size;
    if (joins) sizes[last] = (sizes[last] as number) * size;
    else sizes.push(size);
    for (let k = 0; k < count; k++)
      (strides[k] as number[])[joins ? last : last + 1] = strideAt(inputs[k] ?? output, dim, shape);
  }
  return { sizes, strides };
}

/**
 * Stride of an operand along a dim of the broadcast shape: 0 where it is stretched, and for a plain
 * number.
 */
function strideAt(t: LaidOut, dim: number, target: Shape): number {
  const at = dim - (target.length - t.sizes.length);
  return t.storage !== null && at >= 0 && t.sizes[at] === target[dim]
    ? (t.strides[at] as number)
    : 0;
}

/** Dims of more than one element, the largest stride first. */
function dimsByStride(shape: Shape, strides: Shape): number[] {
  const order: number[] = [];
  for (let dim = 0; dim < shape.length; dim++) {
    if (shape[dim] === 1) continue;
    let at = order.length;
    while (at > 0 && (strides[order[at - 1] as number] as number) < (strides[dim] as number)) {
      order[at] = order[at - 1] as number;
      at--;
    }
    order[at] = dim;
  }
  return order;
}
