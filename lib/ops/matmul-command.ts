/**
 * Writes a matrix product as a command, with its operands as batches of matrices that have one
 * stride each.
 */

import type { CommandWriter } from '../core/command.js';
import { ShapeError } from '../core/errors.js';
import { broadcastStrides, numelOf, type Shape } from '../core/shape.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';

const last = (shape: Shape, back: number): number => shape[shape.length - back] as number;

/** Two matrices: a batch of one. @internal */
export function lowerMatrices(
  command: CommandWriter,
  a: Tensor,
  b: Tensor,
  c: Tensor,
  out: Tensor,
): void {
  const [m, n] = out.sizes as [number, number];
  const k = a.sizes[1] as number;
  command.view(a, [1, m, k], [0, a.strides[0] as number, a.strides[1] as number]);
  command.view(b, [1, k, n], [0, b.strides[0] as number, b.strides[1] as number]);
  if (c.storage === null) command.tensor(c);
  else
    command.view(
      c,
      [1, m, n],
      [
        0,
        ...(c.sizes.length === 2 && c.sizes[0] === m && c.sizes[1] === n
          ? c.strides
          : broadcastStrides(c.sizes, c.strides, out.sizes)),
      ],
    );
  command.outputView(out, [1, m, n], [0, out.strides[0] as number, out.strides[1] as number]);
  command.cost((m * n * k) / 8);
}

/**
 * The stride that walks the first `count` dims as one, such as the rows of all matrices of a batch;
 * null if there is none.
 */
function strideOfRows(shape: Shape, strides: Shape, count: number): number | null {
  if (numelOf(shape) === 0) return 1; // whatever the strides say
  let stride: number | null = null;
  let expected = 0;
  for (let i = count - 1; i >= 0; i--) {
    if (shape[i] === 1) continue;
    const own = strides[i] as number;
    if (stride === null) stride = own;
    else if (own !== expected) return null;
    expected = own * (shape[i] as number);
  }
  return stride ?? 0;
}

/** Whether the first `count` dims can be walked with one stride. @internal */
export function walksAsOne(t: Tensor, count: number): boolean {
  return strideOfRows(t.sizes, t.strides, count) !== null;
}

/** The tensor, or a row-major copy, so that its rows have one stride. @internal */
export const withOneStride = (t: Tensor): Tensor =>
  walksAsOne(t, t.sizes.length - 1) ? t : t.contiguous();

/**
 * The rows of all matrices times one matrix: a batch of one. False, and nothing written, if rows
 * cannot be walked with one stride. @internal
 */
export function lowerRows(
  command: CommandWriter,
  a: Tensor,
  b: Tensor,
  c: Tensor,
  out: Tensor,
): boolean {
  const leading = out.sizes.length - 1;
  const addendStrides = c.storage === null ? null : broadcastStrides(c.sizes, c.strides, out.sizes);
  const rows = strideOfRows(a.sizes, a.strides, leading);
  const addendRows = addendStrides === null ? 0 : strideOfRows(out.sizes, addendStrides, leading);
  const outRows = strideOfRows(out.sizes, out.strides, leading);
  if (rows === null || addendRows === null || outRows === null) return false;
  const m = numelOf(out.sizes.slice(0, -1));
  const [k, n] = b.sizes as [number, number];
  command.view(a, [1, m, k], [0, rows, last(a.strides, 1)]);
  command.view(b, [1, k, n], [0, b.strides[0] as number, b.strides[1] as number]);
  if (addendStrides === null) command.tensor(c);
  else command.view(c, [1, m, n], [0, addendRows, last(addendStrides, 1)]);
  command.outputView(out, [1, m, n], [0, outRows, last(out.strides, 1)]);
  command.cost((m * n * k) / 8);
  return true;
}

/** The rows of `a` by those of `b`, transposed: [m, k] and [m, n] to [k, n]. @internal */
export function lowerRowsProduct(command: CommandWriter, a: Tensor, b: Tensor, out: Tensor): void {
  const leading = a.sizes.length - 1;
  const m = numelOf(a.sizes.slice(0, -1));
  const [k, n] = out.sizes as [number, number];
  const rows = (t: Tensor): number =>
    required('rowsProduct', strideOfRows(t.sizes, t.strides, leading), t.strides);
  command.view(a, [1, k, m], [0, last(a.strides, 1), rows(a)]);
  command.view(b, [1, m, n], [0, rows(b), last(b.strides, 1)]);
  command.tensor(wrapNumber(0, a.dtype, a.device));
  command.outputView(out, [1, k, n], [0, out.strides[0] as number, out.strides[1] as number]);
  command.cost((m * n * k) / 8);
}

/** Callers copy operands that have no such stride. */
function required(op: string, stride: number | null, strides: Shape): number {
  if (stride === null)
    throw new ShapeError(
      `${op}: expected leading dims that one stride walks, got strides ` +
        `[${strides.join(', ')}]; copy by contiguous() first`,
      { op, given: strides },
    );
  return stride;
}

/** Batches of matrices, whose batch dims are merged. @internal */
export function lowerBatch(
  command: CommandWriter,
  a: Tensor,
  b: Tensor,
  c: Tensor,
  out: Tensor,
): void {
  const batch = out.sizes.slice(0, -2);
  const size = numelOf(batch);
  const [m, k, n] = [last(out.sizes, 2), last(a.sizes, 1), last(out.sizes, 1)];
  const strided = (t: Tensor, rows: number, columns: number): number[] => {
    const shape = [...batch, rows, columns];
    const strides = broadcastStrides(t.sizes, t.strides, shape);
    return [
      required('matmul', strideOfRows(shape, strides, batch.length), strides),
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
