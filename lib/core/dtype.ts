/** Element types and PyTorch's promotion rules. Codes equal those of native/include/dtype.h. */
import { DtypeError } from './errors.js';
import { shown } from './options.js';

/** The names of the dtypes. */
export type DTypeName =
  | 'float32'
  | 'float64'
  | 'float16'
  | 'bfloat16'
  | 'int64'
  | 'int32'
  | 'int16'
  | 'int8'
  | 'uint8'
  | 'bool';

/** Promotion category: a higher one wins whatever the widths. */
export const Category = { Bool: 0, Int: 1, Float: 2 } as const;
export type Category = (typeof Category)[keyof typeof Category];

/** The type in which a pointwise kernel computes; see `ComputeType` in native/include/dtype.h. */
export const ComputeType = { Float: 0, Double: 1, Int64: 2 } as const;
export type ComputeType = (typeof ComputeType)[keyof typeof ComputeType];

/** An element type. The only instances are the exported constants, so `===` compares them. */
export class DType {
  /** The name, such as `float32`. */
  readonly name: DTypeName;
  /** The number of the dtype in native code. */
  readonly code: number;
  /** Bytes of one element. */
  readonly itemsize: number;
  /** @internal */
  readonly category: Category;
  /** @internal */
  readonly computeType: ComputeType;

  /** @internal */
  constructor(
    name: DTypeName,
    code: number,
    itemsize: number,
    category: Category,
    computeType: ComputeType,
  ) {
    this.name = name;
    this.code = code;
    this.itemsize = itemsize;
    this.category = category;
    this.computeType = computeType;
  }

  /** Whether the dtype holds floating-point numbers. */
  get isFloatingPoint(): boolean {
    return this.category === Category.Float;
  }

  /** The name. */
  toString(): string {
    return this.name;
  }
}

/** 32-bit floats, the default of floating-point tensors. */
export const float32 = new DType('float32', 0, 4, Category.Float, ComputeType.Float);
/** 64-bit floats. */
export const float64 = new DType('float64', 1, 8, Category.Float, ComputeType.Double);
/** 16-bit floats of IEEE 754. */
export const float16 = new DType('float16', 2, 2, Category.Float, ComputeType.Float);
/** 16-bit floats with the exponents of float32. */
export const bfloat16 = new DType('bfloat16', 3, 2, Category.Float, ComputeType.Float);
/** Signed integers of 64 bits. */
export const int64 = new DType('int64', 4, 8, Category.Int, ComputeType.Int64);
/** Signed integers of 32 bits. */
export const int32 = new DType('int32', 5, 4, Category.Int, ComputeType.Int64);
/** Signed integers of 16 bits. */
export const int16 = new DType('int16', 6, 2, Category.Int, ComputeType.Int64);
/** Signed integers of 8 bits. */
export const int8 = new DType('int8', 7, 1, Category.Int, ComputeType.Int64);
/** Unsigned integers of 8 bits. */
export const uint8 = new DType('uint8', 8, 1, Category.Int, ComputeType.Int64);
/** True or false, one byte each. */
export const bool = new DType('bool', 9, 1, Category.Bool, ComputeType.Int64);

/** All element types, indexed by code. */
export const dtypes: readonly DType[] = [
  float32,
  float64,
  float16,
  bfloat16,
  int64,
  int32,
  int16,
  int8,
  uint8,
  bool,
];

const byName = new Map<string, DType>(dtypes.map((d) => [d.name, d]));

/** Whether it is one of the 16-bit floats, in which mixed precision computes. @internal */
export const isLowPrecision = ({ isFloatingPoint, itemsize }: DType): boolean =>
  isFloatingPoint && itemsize === 2;

/** A dtype or its name, as programs pass it. */
export type DTypeLike = DType | DTypeName;

/** The names of all dtypes. */
export const dtypeNames: readonly DTypeName[] = dtypes.map((d) => d.name);

/** Whether a value is a dtype or the name of one, for arguments that may also be devices. */
export function isDtype(value: unknown): value is DTypeLike {
  return value instanceof DType || (typeof value === 'string' && byName.has(value));
}

/** The dtype that a program passed or named. @throws DtypeError for any other value */
export function dtypeOf(value: DTypeLike, op: string, argument = 'dtype'): DType {
  if (value instanceof DType) return value;
  const named = typeof value === 'string' ? byName.get(value) : undefined;
  if (named === undefined)
    throw new DtypeError(
      `${op}: expected ${argument} to be one of ${dtypeNames.join(', ')}, got ${shown(value)}`,
      { op, argument, given: shown(value) },
    );
  return named;
}

/** Finds an element type by its name, as checkpoints and the command line spell it. */
export function dtypeByName(name: string): DType | undefined {
  return byName.get(name);
}

/**
 * The smallest type that holds both, as `torch.promote_types`.
 *
 * @see PyTorch `c10/core/ScalarType.cpp`: the promotion lattice.
 */
export function promoteTypes(first: DTypeLike, second: DTypeLike): DType {
  if (first === second && first instanceof DType) return first;
  const a = dtypeOf(first, 'promoteTypes', 'the first dtype');
  const b = dtypeOf(second, 'promoteTypes', 'the second dtype');
  if (a === b) return a;
  if (a.category !== b.category) return a.category > b.category ? a : b;
  if (a.category === Category.Float) {
    if (a.itemsize === b.itemsize) return float32; // float16 with bfloat16
    return a.itemsize > b.itemsize ? a : b;
  }
  const wide = a.itemsize >= b.itemsize ? a : b;
  // uint8 with a signed type of one byte needs two.
  if ((a === uint8 || b === uint8) && wide.itemsize === 1) return int16;
  return wide;
}

let defaultDtype = float32;

/** The type of new floating point tensors when none is given; `float32` unless changed. */
export function getDefaultDtype(): DType {
  return defaultDtype;
}

/**
 * Sets the default dtype of new floating-point tensors.
 *
 * @throws DtypeError if `dtype` is not a floating point type
 */
export function setDefaultDtype(value: DTypeLike): void {
  const dtype = dtypeOf(value, 'setDefaultDtype');
  if (!dtype.isFloatingPoint)
    throw new DtypeError(`setDefaultDtype: expected a floating point dtype, got ${dtype.name}`, {
      op: 'setDefaultDtype',
      dtype: dtype.name,
    });
  defaultDtype = dtype;
}
