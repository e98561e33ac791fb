/** Reads the safetensors files that make.py writes, without the library under test. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { it } from 'mocha';

/** One tensor of a file: little-endian elements in row-major order. */
export interface Entry {
  dtype: string;
  shape: number[];
  bytes: Uint8Array;
}

export interface Fixture<Case> {
  name: string;
  cases: Case[];
  /** PyTorch's version, the seed, the day of making. */
  origin: string;
  entry(key: string): Entry;
}

const dtypes: Record<string, string> = {
  F64: 'float64',
  F32: 'float32',
  F16: 'float16',
  BF16: 'bfloat16',
  I64: 'int64',
  I32: 'int32',
  I16: 'int16',
  I8: 'int8',
  U8: 'uint8',
  BOOL: 'bool',
};

type Header = Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }>;
type Metadata = { cases: string; torch: string; seed: string; made: string };

const folder = join(fileURLToPath(new URL('.', import.meta.url)), 'fixtures');

/** @throws Error if the file is missing, with the command that makes it */
export function readFixture<Case>(name: string): Fixture<Case> {
  const path = join(folder, `${name}.safetensors`);
  let file: Buffer;
  try {
    file = readFileSync(path);
  } catch (cause) {
    throw new Error(
      `${path} cannot be read. On a machine with PyTorch run: python3 test/golden/make.py ` +
        '--out test/golden/fixtures',
      { cause },
    );
  }
  const start = 8 + Number(file.readBigUInt64LE(0));
  const { __metadata__: metadata, ...header } = JSON.parse(
    file.toString('utf8', 8, start),
  ) as Header & { __metadata__: Metadata };
  return {
    name,
    cases: JSON.parse(metadata.cases) as Case[],
    origin: `PyTorch ${metadata.torch}, seed ${metadata.seed}, made ${metadata.made}`,
    entry(key) {
      const found = (header as Header)[key];
      if (!found) throw new Error(`${path} has no tensor "${key}"`);
      const [first, last] = found.data_offsets;
      // Copied, so that the memory is aligned for every typed array.
      return {
        dtype: dtypes[found.dtype] as string,
        shape: found.shape,
        bytes: Uint8Array.from(file.subarray(start + first, start + last)),
      };
    },
  };
}

/** Defines the tests of a fixture, or one failing test if it cannot be read. */
export function withFixture<Case>(name: string, define: (fixture: Fixture<Case>) => void): void {
  let fixture: Fixture<Case>;
  try {
    fixture = readFixture<Case>(name);
  } catch (error) {
    it('has a fixture', () => {
      throw error;
    });
    return;
  }
  define(fixture);
}
