/**
 * Shared by the gradient tests of the op table: the entries that they run, and how a sample runs in
 * float64.
 */
import '../../lib/distributed.js'; // ops of its own are in the table, too
import { dispatch } from '../../lib/core/dispatch.js';
import { type AnyOp, allOps, type Sample } from '../../lib/core/op.js';
import { float64, type Tensor } from '../../lib/index.js';

/**
 * The library's own entries; other tests of this process may have defined ops such as
 * "mylib::scaled".
 */
export function ownOps(): AnyOp[] {
  return allOps().filter((op) => !op.name.includes('::'));
}

/** Entries with a gradient rule and samples. */
export function differentiableOps(): AnyOp[] {
  return ownOps().filter((op) => op.vjp !== null && op.samples().length > 0);
}

/** The samples of an op that hold elements and a floating tensor, in float64. */
export function float64Samples(op: AnyOp): Sample<object>[] {
  const samples = (op.samples() as Sample<object>[]).map(({ inputs, params }) => ({
    inputs: inputs.map((t) =>
      t.storage !== null && t.dtype.isFloatingPoint ? t.detach().to(float64) : t,
    ),
    params,
  }));
  return samples.filter(
    ({ inputs }) =>
      inputs.some((t) => t.storage !== null && t.dtype.isFloatingPoint) &&
      inputs.every((t) => t.numel() > 0),
  );
}

/**
 * Whether a gradient can flow into this operand: a tensor (no plain number) of a floating dtype.
 */
export function isVariable(t: Tensor): boolean {
  return t.storage !== null && t.dtype.isFloatingPoint;
}

/** The outputs that have a gradient. */
export function outputsOf(op: AnyOp, inputs: readonly Tensor[], params: object): Tensor[] {
  return dispatch(op, inputs, params).filter((t) => t.requiresGrad);
}

/** The strides of the transpose. */
export function transposed(t: Tensor): Tensor {
  const reversed = t.shape.map((_, i) => t.ndim - 1 - i);
  return t.permute(reversed).contiguous().permute(reversed);
}

/** Every second element of a larger tensor, from an offset. */
export function stepped(t: Tensor): Tensor {
  if (t.ndim === 0) return t.newZeros([3]).fill_(t).select(0, 1);
  const size = t.shape[t.ndim - 1] as number;
  const wide = t.newZeros([...t.shape.slice(0, -1), 2 * size + 1]);
  const window = wide.slice(-1, 1, null, 2);
  window.copy_(t);
  return window;
}
