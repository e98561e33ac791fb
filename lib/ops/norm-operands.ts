/** Operands of layer and RMS norm: rows over the last dims, statistics, absent weights, checks. */

import type { CommandWriter } from '../core/command.js';
import { dispatch } from '../core/dispatch.js';
import { type DType, float32, float64 } from '../core/dtype.js';
import { DtypeError, ShapeError } from '../core/errors.js';
import type { VjpContext } from '../core/gradient-rules.js';
import type { AnyOp, OutputMeta } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { formatShape, type Shape, sameShape } from '../core/shape.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import { requireFloating } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { outerDims } from './sharding/normalization.js';

export const normParams = {
  /** The number of elements in the normalised dims. */
  width: param.value<number>(),
  eps: param.kernel(),
  /** A 16-bit dtype in which the result is wanted, too: the last output. */
  low: param.optional<DType>(),
  /** The result is wanted in 16 bits alone, as the first output. */
  alone: param.optional<boolean>(),
};
export type NormParams = ParamsOf<typeof normParams>;

/** An absent optional operand, as an immediate. */
export function optional(t: Tensor | null, like: Tensor): Tensor {
  return t ?? wrapNumber(0, like.dtype, like.device);
}

export const isAbsent = (t: Tensor): boolean => t.storage === null;
export const statisticsDtype = (dtype: DType): DType => (dtype === float64 ? float64 : float32);

/** The shape without the normalised dims, so that statistics can be sharded like the input. */
export function statisticsShape(input: Tensor, { width }: NormParams): Shape {
  return width === 0 ? [0] : input.sizes.slice(0, outerDims(input.sizes, width));
}

export function statisticsMeta(input: Tensor, params: NormParams) {
  return {
    shape: statisticsShape(input, params),
    strides: null,
    dtype: statisticsDtype(input.dtype),
    device: input.device,
  };
}

export const outputMeta = (input: Tensor) => ({
  shape: input.sizes,
  strides: null,
  dtype: input.dtype,
  device: input.device,
});

interface WithLow {
  low?: DType;
  alone?: boolean;
}

/** `results`, and the first one in the dtype `low` if it is wanted, beside it or in its place. */
function withLow<T>(
  results: readonly T[],
  { low, alone }: WithLow,
  inDtype: (result: T, dtype: DType) => T,
): readonly T[] {
  if (low === undefined) return results;
  const [first, ...others] = results as [T];
  const converted = inDtype(first, low);
  return alone === true ? [converted, ...others] : [...results, converted];
}

/** The metadata of the outputs with that of the result in the dtype `low`. */
export const metasWithLow = (
  outputs: readonly OutputMeta[],
  params: WithLow,
): readonly OutputMeta[] => withLow(outputs, params, (meta, dtype) => ({ ...meta, dtype }));

/** Writes a result as rows, or that it is absent. */
export function writeRows(command: CommandWriter, low: Tensor | undefined, width: number): void {
  if (low === undefined) {
    command.absentOutput();
    return;
  }
  const { sizes, strides } = flatten(low, width);
  command.outputView(low, sizes, strides);
}

/** The results of a decomposition with the one in the dtype `low`. */
export const resultsWithLow = (results: readonly Tensor[], params: WithLow): readonly Tensor[] =>
  withLow(results, params, (t, dtype) => t.to(dtype));

export function flatten(t: Tensor, width: number): { sizes: number[]; strides: number[] } {
  return { sizes: [width === 0 ? 0 : t.numel() / width, width], strides: [width, 1] };
}

/** Reshapes to rows. Computes their number, because -1 is ambiguous without elements. */
export function rowsOf(t: Tensor, width: number): Tensor {
  return reshapeIfNeeded(t, flatten(t, width).sizes);
}

/** The decomposition needs eps; the kernel reads the saved statistics instead. */
export const backwardParams = {
  width: param.value<number>(),
  eps: param.value<number>(),
  /** A 16-bit dtype in which the gradient of the input is wanted, too: the last output. */
  low: param.optional<DType>(),
};
export type BackwardParams = ParamsOf<typeof backwardParams>;

/**
 * Runs a backward op; also in 16 bits what the next rule converts, as that of a residual connection
 * does.
 */
export function gradientsOf(
  op: AnyOp,
  operands: readonly Tensor[],
  ctx: VjpContext<NormParams>,
): Tensor[] {
  const { width, eps } = ctx.params;
  const x = operands[1] as Tensor;
  const low = x.dtype === float32 && x.sharding === null ? ctx.lowDtype(0) : undefined;
  if (low === undefined) return dispatch(op, operands, { width, eps });
  const grads = dispatch(op, operands, { width, eps, low });
  ctx.giveLow(0, grads[0] as Tensor, grads.pop() as Tensor);
  return grads;
}

/** A weight or bias as a vector, whatever the shape of the normalised dims. */
export const asRow = (t: Tensor): Tensor => reshapeIfNeeded(t, [-1]);
export const timesWeight = (rows: Tensor, weight: Tensor): Tensor =>
  isAbsent(weight) ? rows : rows.mul(asRow(weight));

export const plus = (gx: Tensor, more: Tensor): Tensor => (isAbsent(more) ? gx : gx.add(more));

/** The gradient of x from a residual connection, which the kernel adds to that of the norm. */
export const arrived = (ctx: VjpContext<NormParams>, x: Tensor): Tensor =>
  optional(ctx.needs(0) ? ctx.takeArrived(0) : null, x);

/** The machine epsilon of the type that the kernel computes in: the default eps, as in PyTorch. */
export const epsilon = { float32: 2 ** -23, float64: 2 ** -52 };

export function checkNormalised(
  [input, ...weights]: readonly [Tensor, ...Tensor[]],
  normalizedShape: Shape,
  op: string,
): void {
  requireFloating(input, op);
  const tail = input.sizes.slice(input.sizes.length - normalizedShape.length);
  if (normalizedShape.length === 0 || !sameShape(tail, normalizedShape)) {
    throw new ShapeError(
      `${op}: the last dims of the input, ${formatShape(input.sizes)}, must be the normalised ` +
        `shape ${formatShape(normalizedShape)}`,
      {
        op,
        shape: input.sizes,
        normalizedShape,
      },
    );
  }
  for (const w of weights) {
    if (isAbsent(w)) continue;
    if (!sameShape(w.sizes, normalizedShape))
      throw new ShapeError(
        `${op}: weight and bias must have the normalised shape ` +
          `${formatShape(normalizedShape)}, got ${formatShape(w.sizes)}`,
        { op },
      );
    if (w.dtype !== input.dtype)
      throw new DtypeError(
        `${op}: weight and bias must have the input's dtype ${input.dtype.name}, ` +
          `got ${w.dtype.name}`,
        { op },
      );
  }
}
