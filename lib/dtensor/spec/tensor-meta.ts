/** What the whole of a distributed tensor is: its sizes, strides and element type. */
import { DType } from '../../core/dtype.js';
import { type Interned, interned } from '../../core/interned.js';
import { checkIntegers, unexpected } from '../../core/options.js';
import { checkSizes, formatShape, type Shape } from '../../core/shape.js';

/**
 * What the whole tensor is, whichever rank asks: an object of these, or what `TensorMeta(shape,
 * stride, dtype)` makes.
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

/** What a spec has, and cannot be changed. @internal */
export class WholeMeta implements TensorMeta {
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

  /** @internal the same for equal metadata: part of the key of a spec */
  get key(): string {
    return this.#key;
  }

  /** The strides, by PyTorch's name. */
  get stride(): Shape {
    return this.strides;
  }

  /** `TensorMeta(float32[16, 10], strides [10, 1])` */
  toString(): string {
    return `TensorMeta(${this.dtype.name}${formatShape(this.shape)}, strides ${formatShape(this.strides)})`;
  }

  /** @internal */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }
}

/** @internal see {@link WholeMeta.key} */
export function metaKey({ shape, strides, dtype }: TensorMeta): string {
  return `${dtype.code}|${shape.join()}|${strides.join()}`;
}

/**
 * What the whole tensor is, for {@link DTensorSpec}: `TensorMeta([16, 10], [10, 1], float32)`, with
 * or without `new`. It cannot be changed, and has `shape`, `stride` (which is also `strides`) and
 * `dtype`.
 *
 * @param stride - in elements, one for each dim
 * @throws ArgumentError for what is no shape, no strides of as many dims, no dtype
 * @see PyTorch `torch.distributed.tensor._dtensor_spec.TensorMeta`
 */
export const TensorMeta: Interned<[shape: Shape, stride: Shape, dtype: DType], WholeMeta> =
  interned(
    'TensorMeta',
    (shape: Shape, stride: Shape, dtype: DType) => {
      checkParts(
        'TensorMeta',
        { shape, strides: stride, dtype },
        { strides: 'stride', dtype: 'dtype' },
      );
      return new WholeMeta(shape, stride, dtype);
    },
    WholeMeta.prototype,
  );

/**
 * @param names - what the caller calls them @throws ArgumentError unless they are the metadata of a
 * tensor @internal
 */
export function checkParts(
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

/** @internal */
export function frozen<T>(values: readonly T[]): readonly T[] {
  return Object.isFrozen(values) ? values : Object.freeze(values.slice());
}
