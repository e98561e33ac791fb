/** Tensors from JavaScript values: numbers, nested arrays, typed arrays, other tensors. */
import { bool, type DType, float32, getDefaultDtype, int64, promoteTypes } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { kindOf } from '../core/options.js';
import { checkSizes, formatShape, type Shape } from '../core/shape.js';
import { defineFunction } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { dtypeOfArray, encodeValues } from '../core/values.js';
import { makeFromValues } from './construct.js';
import { type NestedArray, placed, type TensorOptions } from './factories.js';
import { describe, requireDtype } from './operand.js';
import { finish } from './pinned.js';

/**
 * A tensor from a number, nested arrays, a typed array, or another tensor; always a copy, and a
 * leaf. Shapes: `[]` for a number, one dim for each level of arrays, a vector for a typed array,
 * the tensor's own. Dtypes: `dtype`, else a typed array's or tensor's own, the default floating
 * type if there are numbers, int64 for bigints, bool for booleans. Gradient: none.
 *
 * @throws ShapeError for ragged arrays; ArgumentError for elements that are not numbers, for
 * numbers that an integer dtype cannot hold, and array types without a dtype; else for bad options,
 * see {@link TensorOptions}
 * @see PyTorch `torch.tensor`
 * @example
 * tensor([[1, 2], [3, 4]]).shape; // [2, 2]
 * tensor([1, 2], { dtype: int64 }).dtype; // int64
 */
export const tensor = defineFunction(
  'tensor(data, /, *, dtype, device, requiresGrad, pinMemory)',
  (data: NestedArray | ArrayBufferView | Tensor, options: TensorOptions = {}): Tensor => {
    if (data instanceof Tensor)
      return finish(
        data
          .detach()
          .clone()
          .to({ dtype: options.dtype ?? data.dtype, device: options.device ?? data.device }),
        options,
      );
    if (ArrayBuffer.isView(data)) return fromTypedArray(data, options);
    const shape = nestedShape(data);
    const flat: (number | bigint | boolean)[] = [];
    const dtypes = new Set<DType>();
    flatten(data, shape, 0, flat, dtypes);
    const device = placed(options, 'tensor');
    const dtype =
      requireDtype(options.dtype, 'tensor') ??
      inferDtype(flat, dtypes.size > 0 ? promoted(data, dtypes) : null);
    return finish(makeFromValues(encodeValues(flat, dtype), shape, dtype, device), options);
  },
);

function fromTypedArray(data: ArrayBufferView, options: TensorOptions): Tensor {
  const own = data instanceof Float32Array ? float32 : dtypeOfArray(data);
  if (own === null)
    throw new ArgumentError(
      `tensor: ${kindOf(data)} has no matching dtype; convert it to Int32Array, ` +
        'BigInt64Array or Float32Array',
      { op: 'tensor' },
    );
  const device = placed(options, 'tensor');
  const dtype = requireDtype(options.dtype, 'tensor') ?? own;
  const values = data as Float32Array;
  const raw = dtype === own ? data : encodeValues(values, dtype);
  return finish(makeFromValues(raw, [values.length], dtype, device), options);
}

function nestedShape(data: NestedArray): number[] {
  const shape: number[] = [];
  let level: NestedArray | undefined = data;
  while (Array.isArray(level)) {
    shape.push(level.length);
    level = level[0];
  }
  checkSizes(shape, 'tensor');
  return shape;
}

/** Appends the numbers to `out`, and the dtypes of tensors among them to `dtypes`. */
function flatten(
  data: NestedArray,
  shape: Shape,
  depth: number,
  out: (number | bigint | boolean)[],
  dtypes: Set<DType>,
): void {
  if (depth === shape.length) {
    const value = data instanceof Tensor ? valueOf(data, dtypes) : data;
    if (typeof value !== 'number' && typeof value !== 'bigint' && typeof value !== 'boolean') {
      if (Array.isArray(value)) throw ragged(shape, depth, value.length);
      throw new ArgumentError(`tensor: expected numbers, got ${describe(value)}`, { op: 'tensor' });
    }
    out.push(value);
    return;
  }
  if (!Array.isArray(data) || data.length !== shape[depth])
    throw ragged(shape, depth, Array.isArray(data) ? data.length : null);
  for (const item of data) flatten(item, shape, depth + 1, out, dtypes);
}

/** Reads a tensor in a list of numbers. Blocks. */
function valueOf(t: Tensor, dtypes: Set<DType>): number | bigint | boolean {
  if (t.numel() !== 1 || t.ndim > 0)
    throw new ArgumentError(
      `tensor: among numbers expected tensors without dims, got shape ${formatShape(t.sizes)}; ` +
        'use stack() or cat()',
      { op: 'tensor', shape: t.sizes },
    );
  dtypes.add(t.dtype);
  return t.item();
}

function ragged(shape: Shape, depth: number, found: number | null): ShapeError {
  const expected = shape[depth] === undefined ? 'a number' : `an array of ${shape[depth]}`;
  const given = found === null ? 'a number' : `an array of ${found}`;
  return new ShapeError(
    `tensor: nested arrays are ragged: expected ${expected} at depth ${depth}, as in the ` +
      `first one, got ${given}`,
    { op: 'tensor', depth, expected, given },
  );
}

function leavesOf(data: NestedArray): NestedArray[] {
  return Array.isArray(data) ? data.flatMap(leavesOf) : [data];
}

/**
 * The dtype of a list of numbers and tensors: that of the numbers alone, promoted with the dtypes
 * of the tensors.
 */
function promoted(data: NestedArray, dtypes: ReadonlySet<DType>): DType {
  const numbers = leavesOf(data).filter((value) => !(value instanceof Tensor)) as (
    | number
    | bigint
    | boolean
  )[];
  const all = numbers.length > 0 ? [...dtypes, inferDtype(numbers, null)] : [...dtypes];
  return all.reduce(promoteTypes);
}

function inferDtype(
  values: readonly (number | bigint | boolean)[],
  ofTensors: DType | null,
): DType {
  if (ofTensors !== null) return ofTensors;
  if (values.length === 0) return getDefaultDtype();
  if (values.every((v) => typeof v === 'boolean')) return bool;
  if (values.some((v) => typeof v === 'number')) return getDefaultDtype();
  return int64;
}
