/** What the choice of strategies reads of a call of an op. */
import type { AnyOp } from '../../core/op.js';
import { contiguousStrides } from '../../core/shape.js';
import type { Strategy } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import type { DTensorSpec, TensorMeta } from '../spec/spec.js';

/** A strategy of any op. */
export type AnyStrategy = Strategy<object>;

/** One call, with what is known of the whole tensors. */
export interface OpCall {
  readonly op: AnyOp;
  /** Metadata only; numbers are wrapped. */
  readonly inputs: readonly Tensor[];
  /** Of each input; null for numbers. */
  readonly specs: readonly (DTensorSpec | null)[];
  readonly params: object;
  /** Of the tensor that the result is written into. */
  readonly into: DTensorSpec | null;
  /** The one that all specs share is that of this one. */
  readonly mesh: DTensorSpec['mesh'];
  readonly outputMetas: readonly TensorMeta[];
  /** Inputs that the op overwrites: they stay as they are. */
  readonly overwritten: readonly number[];
}

/** What the whole outputs of an op are, by its shape rule on the whole inputs. */
export function outputMetasOf(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
): readonly TensorMeta[] {
  if (op.view !== null) {
    const input = inputs[0] as Tensor;
    const { shape, strides } = op.view(input, params);
    return [{ shape, strides, dtype: input.dtype }];
  }
  return op.meta(inputs, params).map(({ shape, strides, dtype }) => ({
    shape,
    strides: strides ?? contiguousStrides(shape),
    dtype,
  }));
}
