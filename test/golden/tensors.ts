/** Converts the bytes of a fixture to tensors, and tensors to plain numbers. */
import * as sw from '../../lib/index.js';
import type { Entry } from './read-fixture.js';

export type Tensor = sw.Tensor;
export type DeviceName = 'cpu' | 'cuda';

/** Elements in row-major order; int64 as bigint. */
export type Values = ArrayLike<number> | BigInt64Array;

/** Values, and the metadata that must agree. */
export interface Snapshot {
  dtype: string;
  shape: readonly number[];
  values: Values;
}

const byName = sw as unknown as Record<string, sw.DType>;

/** The library's dtype constant of a name. */
export function dtypeOf(name: string): sw.DType {
  const dtype = byName[name];
  if (!dtype) throw new Error(`the library exports no dtype "${name}"`);
  return dtype;
}

function float16Value(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

/** float16 and bfloat16 widen to float32, which is exact. */
function typedArrayOf({ dtype, bytes }: Entry) {
  const { buffer } = bytes;
  switch (dtype) {
    case 'float64':
      return new Float64Array(buffer);
    case 'float32':
      return new Float32Array(buffer);
    case 'float16':
      return Float32Array.from(new Uint16Array(buffer), float16Value);
    case 'bfloat16': {
      const wide = Uint32Array.from(new Uint16Array(buffer), (bits) => bits << 16);
      return new Float32Array(wide.buffer);
    }
    case 'int64':
      return new BigInt64Array(buffer);
    case 'int32':
      return new Int32Array(buffer);
    case 'int16':
      return new Int16Array(buffer);
    case 'int8':
      return new Int8Array(buffer);
    case 'uint8':
    case 'bool':
      return new Uint8Array(buffer);
    default:
      throw new Error(`no typed array for ${dtype}`);
  }
}

/** A fixture's tensor as plain numbers. */
export function expected(entry: Entry): Snapshot {
  return { dtype: entry.dtype, shape: entry.shape, values: typedArrayOf(entry) };
}

/** A fixture's tensor on a device: a leaf that owns its memory. */
export function makeTensor(entry: Entry, device: DeviceName): Tensor {
  const data = typedArrayOf(entry);
  const half = entry.dtype === 'float16' || entry.dtype === 'bfloat16';
  const stored = sw.tensor(data, { dtype: dtypeOf(half ? 'float32' : entry.dtype), device });
  return (half ? stored.to(dtypeOf(entry.dtype)) : stored).reshape(entry.shape);
}

/** Reads a tensor of the library. Blocks. */
export function snapshot(tensor: Tensor): Snapshot {
  const dtype = tensor.dtype.name;
  const plain = tensor.detach();
  const readable =
    dtype === 'float16' || dtype === 'bfloat16'
      ? plain.to(sw.float32)
      : dtype === 'bool'
        ? plain.to(sw.uint8)
        : plain;
  return { dtype, shape: [...tensor.shape], values: readable.toTypedArray() as Values };
}
