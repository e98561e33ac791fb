/** Merges dims that all operands walk in step, so that kernels see as few dims as possible. */
import { broadcastStrides, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

export interface Collapsed {
  sizes: number[];
  /** One list for each input, then the output's. */
  strides: number[][];
}

/**
 * Broadcasts the inputs to the output's shape, sorts dims by the output's strides (largest first), and merges neighbours
 * wherever every operand's strides allow it.
 */
export function collapseOperands(inputs: readonly Tensor[], output: Tensor): Collapsed {
  const shape = output.shape;
  const full: Shape[] = inputs.map((t) => (t.storage === null ? [] : broadcastStrides(t.shape, t.strides, shape)));
  full.push(output.strides);
  const order = shape.map((_, i) => i).filter((i) => shape[i] !== 1);
  order.sort((a, b) => (output.strides[b] as number) - (output.strides[a] as number));
  const sizes: number[] = [];
  const strides: number[][] = full.map(() => []);
  for (const dim of order) {
    const last = sizes.length - 1;
    const size = shape[dim] as number;
    const joins = last >= 0 && full.every((s, k) => s.length === 0 || strides[k]?.[last] === (s[dim] as number) * size);
    if (joins) {
      sizes[last] = (sizes[last] as number) * size;
      full.forEach((s, k) => {
        if (s.length) (strides[k] as number[])[last] = s[dim] as number;
      });
    } else {
      sizes.push(size);
      full.forEach((s, k) => {
        (strides[k] as number[]).push(s.length ? (s[dim] as number) : 0);
      });
    }
  }
  return { sizes, strides };
}
