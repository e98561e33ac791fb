/**
 * Reads values from tensors: item, tolist, toTypedArray (blocking); read, itemAsync (not blocking).
 * Any shape, layout, dtype and device; no gradient.
 */
import { namedAs } from '../core/caller-name.js';
import { bool } from '../core/dtype.js';
import { ArgumentError, DistributedError, ShapeError } from '../core/errors.js';
import { formatShape, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { seenHere } from '../core/user-stack.js';
import { rawArray, type TypedArray, widen } from '../core/values.js';
import { valueAccess } from './construct.js';
import { addMethod } from './method.js';

/** The most arrays that `tolist` allocates; more do not fit into the heap. */
const MOST_ARRAYS = 2 ** 25;

/**
 * A value, or nested arrays of values in the tensor's shape. int64 values that no number holds
 * exactly are bigints.
 */
export type NestedValues = number | bigint | boolean | NestedValues[];

/** The tensor in row-major order: itself, or a copy that the caller disposes of. */
function dense(t: Tensor, op: string): Tensor {
  if (t.sharding !== null) {
    const whole = t.sharding.full(op);
    const rows = dense(whole, op);
    if (rows !== whole) whole.dispose();
    return rows;
  }
  if (t.isContiguous()) return t;
  const alias = t.detach();
  const copy = alias.contiguous();
  alias.dispose();
  return copy;
}

function decode(raw: TypedArray | Uint16Array, t: Tensor): TypedArray {
  return raw instanceof Uint16Array ? widen(raw, t.dtype) : raw;
}

/**
 * Reads also a tensor without elements, which waits for the ops before it and throws if one failed.
 * A fake tensor has no values.
 */
const hasMemory = (t: Tensor): boolean => t.numel() > 0 || !t.isFake;

/**
 * The elements as a typed array, row-major; float16 and bfloat16 widened to float32, int64 as
 * BigInt64Array. Blocks.
 */
function toTypedArray(t: Tensor, op: string): TypedArray {
  const source = dense(t, op);
  const raw = rawArray(t.dtype, source.numel()); // empty on a rank outside of the tensor's mesh
  try {
    if (hasMemory(source)) valueAccess().readSync(source, raw);
  } catch (error) {
    throw namedAs(error, 'read', op);
  }
  if (source !== t) source.dispose();
  return decode(raw, t);
}

async function read(t: Tensor, op: string): Promise<TypedArray> {
  const source = dense(t, op);
  const raw = rawArray(t.dtype, source.numel());
  try {
    if (hasMemory(source)) await valueAccess().read(source, raw);
  } catch (error) {
    throw seenHere(namedAs(error, 'read', op));
  }
  if (source !== t) source.dispose();
  return decode(raw, t);
}

function checkOne(t: Tensor, op: string): void {
  if (t.numel() !== 1)
    throw new ShapeError(
      `${op}: expected a tensor of one element, got shape ${formatShape(t.sizes)}. Reduce it ` +
        'first, or use tolist().',
      { op, shape: t.sizes },
    );
}

function outside(op: string): DistributedError {
  return new DistributedError(
    `${op}: this rank is not in the mesh of the tensor, and has no value of it. Ask where ` +
      'mesh.getCoordinate() is not null; read() gives an empty array here.',
    {
      op,
    },
  );
}

/** An int64 as a number where that is exact, else as a bigint; a bool as a boolean. */
function surface(value: number | bigint, t: Tensor): number | bigint | boolean {
  if (t.dtype === bool) return Boolean(value);
  if (typeof value === 'bigint')
    return value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER)
      ? Number(value)
      : value;
  return value;
}

/**
 * @throws ArgumentError for more arrays than fit into memory, such as those of a tensor without
 * elements but with large dims
 */
function checkNesting(shape: Shape): void {
  const arrays = shape.slice(0, -1).reduce((product, size) => product * size, 1);
  if (arrays > MOST_ARRAYS)
    throw new ArgumentError(
      `tolist: a tensor of shape ${formatShape(shape)} would become ${arrays} arrays; ` +
        'use toTypedArray()',
      { op: 'tolist', shape },
    );
}

function nest(
  values: TypedArray,
  t: Tensor,
  shape: Shape,
  depth: number,
  start: number,
  step: number,
): NestedValues {
  if (depth === shape.length) return surface(values[start] as number | bigint, t);
  const size = shape[depth] as number;
  const inner = size === 0 ? 0 : step / size;
  return Array.from({ length: size }, (_, i) =>
    nest(values, t, shape, depth + 1, start + i * inner, inner),
  );
}

addMethod('toTypedArray', function () {
  return toTypedArray(this, 'toTypedArray');
});
addMethod('read', function () {
  return read(this, 'read');
});
addMethod('item', function () {
  checkOne(this, 'item');
  if (this.sharding === null) return surface(valueAccess().readElement(this), this);
  const whole = this.sharding.full('item');
  if (whole.numel() === 0) throw outside('item');
  const value = valueAccess().readElement(whole);
  whole.dispose();
  return surface(value, this);
});
addMethod('itemAsync', async function () {
  checkOne(this, 'itemAsync');
  const values = await read(this, 'itemAsync');
  if (values.length === 0) throw outside('itemAsync');
  return surface(values[0] as number | bigint, this);
});
addMethod('tolist', function () {
  checkNesting(this.sizes);
  const values = toTypedArray(this, 'tolist');
  return values.length < this.numel() ? [] : nest(values, this, this.sizes, 0, 0, values.length);
});

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * The value of a tensor of one element, of any number of dims: a boolean for bool, a bigint for
     * an int64 that no number holds exactly, else a number. Blocks until it is known.
     *
     * @throws ShapeError for any other number of elements; KernelError of an op before it;
     * FreedError if the memory was freed
     * @see PyTorch `torch.Tensor.item`
     * @example
     * tensor([1, 2]).sum().item(); // 3
     */
    item<T extends number | bigint | boolean = number>(): T;
    /**
     * The values in arrays nested as the dims, each as {@link Tensor.item} gives it; of no dims,
     * the value. Blocks until they are known.
     *
     * @throws KernelError of an op before it; FreedError if the memory was freed
     * @see PyTorch `torch.Tensor.tolist`
     * @example
     * tensor([[1, 2], [3, 4]]).add(1).tolist(); // [[2, 3], [4, 5]]
     */
    tolist(): NestedValues;
    /**
     * The elements, row-major, in an array of their own: 16-bit floats widened to Float32Array,
     * int64 as BigInt64Array, bool as Uint8Array of 0 and 1. Blocks until they are known.
     *
     * @throws KernelError of an op before it; FreedError if the memory was freed
     * @example
     * tensor([1, 2]).toTypedArray(); // [1, 2]
     * const ids = tensor([1, 2], { dtype: int64 }).toTypedArray<BigInt64Array>();
     * ids[0]; // 1
     */
    toTypedArray<A extends TypedArray = Float32Array>(): A;
    /**
     * {@link Tensor.toTypedArray} without blocking the event loop. The promise is rejected with
     * what that throws.
     *
     * @example
     * const values = await tensor([1, 2]).read();
     * values; // [1, 2]
     */
    read<A extends TypedArray = Float32Array>(): Promise<A>;
    /**
     * {@link Tensor.item} without blocking the event loop. The promise is rejected with what that
     * throws.
     *
     * @example
     * await tensor([1, 2]).sum().itemAsync(); // 3
     */
    itemAsync<T extends number | bigint | boolean = number>(): Promise<T>;
  }
}
