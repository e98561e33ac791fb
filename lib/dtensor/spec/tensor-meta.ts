/** The metadata of the whole tensor: shape, strides and dtype. */
import { DType } from '../../core/dtype.js';
import { type Interned, interned } from '../../core/interned-class.js';
import { checkIntegers, unexpected } from '../../core/options.js';
import { checkSizes, formatShape, type Shape } from '../../core/shape.js';

/**
 * The metadata of the whole tensor, equal on all ranks: an object with these fields, or
 * `TensorMeta(shape, stride, dtype)`.
 */
export interface TensorMeta {
  /** The size of each dim. */
  readonly shape: Shape;
  /** In elements. */
  readonly strides: Shape;
  /** The dtype. */
  readonly dtype: DType;
}

/** For each tensor dim, the mesh dims that shard it, outermost first. */
export type ShardOrder = readonly (readonly number[])[];

/** Immutable metadata. @internal */
export class FrozenMeta implements TensorMeta {
  readonly shape: Shape;
  readonly strides: Shape;
  readonly dtype: DType;
  readonly #key: string;

  constructor(shape: Shape, strides: Shape, dtype: DType) {
    this.shape = frozen(shape);
    this.strides = frozen(strides);
    this.dtype = dtype;
    this.#key = metaKey(this);
    Object.freeze(this);
  }

  /** @internal equal for equal metadata; a part of the key of a spec */
  get key(): string {
    return this.#key;
  }

  /** The strides, by PyTorch's name. */
  get stride(): Shape {
    return this.strides;
  }

  /** `TensorMeta(float32[16, 10], strides [10, 1])` */
  toString(): string {
    return (
      `TensorMeta(${this.dtype.name}${formatShape(this.shape)}, strides ` +
      `${formatShape(this.strides)})`
    );
  }

  /** @internal */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }
}

/** @internal see {@link FrozenMeta.key} */
export function metaKey({ shape, strides, dtype }: TensorMeta): string {
  return `${dtype.code}|${shape.join()}|${strides.join()}`;
}

/**
 * The metadata of the whole tensor for {@link DTensorSpec}: `TensorMeta([16, 10], [10, 1],
 * float32)`, with or without `new`. It is immutable and has `shape`, `stride` (also as `strides`)
 * and `dtype`.
 *
 * @param stride - in elements, one for each dim
 * @throws ArgumentError unless the arguments are a shape, strides of as many dims, and a dtype
 * @see PyTorch `torch.distributed.tensor._dtensor_spec.TensorMeta`
 */
export const TensorMeta: Interned<[shape: Shape, stride: Shape, dtype: DType], FrozenMeta> =
  interned(
    'TensorMeta',
    (shape: Shape, stride: Shape, dtype: DType) => {
      checkMetaFields(
        'TensorMeta',
        { shape, strides: stride, dtype },
        { strides: 'stride', dtype: 'dtype' },
      );
      return new FrozenMeta(shape, stride, dtype);
    },
    FrozenMeta.prototype,
  );

/**
 * @param names - the names of the fields in errors
 * @throws ArgumentError unless the fields are the metadata of a tensor
 * @internal
 */
export function checkMetaFields(
  op: string,
  { shape, strides, dtype }: TensorMeta,
  names: { readonly strides: string; readonly dtype: string },
): void {
  checkSizes(shape, op);
  if (!(dtype instanceof DType))
    throw unexpected(op, names.dtype, 'a dtype such as float32', dtype);
  checkIntegers(op, names.strides, strides);
  if (strides.length !== shape.length || strides.some((stride) => stride < 0)) {
    throw unexpected(op, names.strides, `${shape.length} strides, one for each dim`, strides);
  }
}

/** The array itself if it is frozen, else a frozen copy. @internal */
export function frozen<T>(values: readonly T[]): readonly T[] {
  return Object.isFrozen(values) ? values : Object.freeze(values.slice());
}
