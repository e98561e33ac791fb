/**
 * Writes a matrix product as a command, with its operands as batches of matrices that have one
 * stride each.
 */

import type { CommandWriter } from '../core/command.js';
import { broadcastStrides, numelOf, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

const last = (shape: Shape, back: number): number => shape[shape.length - back] as number;

/** Two matrices: a batch of one. @internal */
export function lowerMatrices(
  command: CommandWriter,
  a: Tensor,
  b: Tensor,
  c: Tensor,
  out: Tensor,
): void {
  const [m, n] = out.shape as [number, number];
  const k = a.shape[1] as number;
  command.view(a, [1, m, k], [0, a.strides[0] as number, a.strides[1] as number]);
  command.view(b, [1, k, n], [0, b.strides[0] as number, b.strides[1] as number]);
  if (c.storage === null) command.tensor(c);
  else
    command.view(
      c,
      [1, m, n],
      [
        0,
        ...(c.shape.length === 2 && c.shape[0] === m && c.shape[1] === n
          ? c.strides
          : broadcastStrides(c.shape, c.strides, out.shape)),
      ],
    );
  command.outputView(out, [1, m, n], [0, out.strides[0] as number, out.strides[1] as number]);
  command.cost((m * n * k) / 8);
}

/** Batches of matrices, whose batch dims are merged. @internal */
export function lowerBatch(
  command: CommandWriter,
  a: Tensor,
  b: Tensor,
  c: Tensor,
  out: Tensor,
): void {
  const batch = out.shape.slice(0, -2);
  const size = numelOf(batch);
  const [m, k, n] = [last(out.shape, 2), last(a.shape, 1), last(out.shape, 1)];
  const strided = (t: Tensor, rows: number, columns: number): number[] => {
    const strides = broadcastStrides(t.shape, t.strides, [...batch, rows, columns]);
    return [
      innermost(batch, strides),
      strides[strides.length - 2] as number,
      strides[strides.length - 1] as number,
    ];
  };
  command.view(a, [size, m, k], strided(a, m, k));
  command.view(b, [size, k, n], strided(b, k, n));
  if (c.storage === null) command.tensor(c);
  else command.view(c, [size, m, n], strided(c, m, n));
  command.outputView(out, [size, m, n], strided(out, m, n));
  command.cost((size * m * n * k) / 8);
}

/** The one stride of all batch dims; operands were made regular before the dispatch. */
function innermost(batch: Shape, strides: readonly number[]): number {
  for (let i = batch.length - 1; i >= 0; i--) if (batch[i] !== 1) return strides[i] as number;
  return 0;
}
