/** Commands for the raw addon, which lib/ops would never write. */
import { addon } from '../../lib/runtime.js';
import { type Command, encode, IMMEDIATE, INDEX_VIEW, type Operand } from '../fuzz/commands.js';

/** The memory shared with the addon. */
export const words = new Float64Array(addon.words);
export const stream = addon.defaultStream(0);
export const [FLOAT32, FLOAT64, INT64] = [0, 1, 4];

/** A storage of zeros. */
export function storage(bytes: number): number {
  addon.allocate(stream, bytes, false);
  const handle = words[0] as number;
  addon.write(handle, 0, new Uint8Array(bytes), stream);
  return handle;
}

/** An operand, on memory of its own or on that of another one. */
export function view(
  sizes: number[],
  {
    dtype = FLOAT32,
    strides = sizes.map((_, d) => sizes.slice(d + 1).reduce((a, b) => a * b, 1)),
    bytes = 4096,
    on = storage(bytes),
  } = {},
): Operand {
  return { kind: on, value: 0, dtype, sizes, strides };
}

/** In place of an operand that may be left out. */
export const absent: Operand = {
  kind: IMMEDIATE,
  value: 0,
  dtype: FLOAT32,
  sizes: [],
  strides: [],
};

/** What nonzero finds in 64 elements, as the operands of nonzero_rows for so many. */
export const found = (numel: number): Operand[] => [
  { kind: INDEX_VIEW, value: 0, dtype: FLOAT32, sizes: [numel], strides: [1] },
  view([2], { dtype: INT64 }),
  view([1], { dtype: INT64 }),
];

/** Runs a command, waits for it, and frees its operands. */
export function submit(
  kernel: string,
  inputs: Operand[],
  outputs: Operand[],
  params: number[] = [],
): void {
  const id = addon.kernelNames.indexOf(kernel);
  const command: Command = {
    kernel: id,
    stream,
    inputs: inputs.length,
    outputs: outputs.length,
    flags: 0,
    cost: 0,
    operands: [...inputs, ...outputs],
    params,
  };
  const list = encode(command);
  words.set(list);
  try {
    addon.submit(list.length);
    addon.synchronize(stream);
  } finally {
    for (const kind of new Set(command.operands.map((operand) => operand.kind)))
      if (kind > 0) addon.release(kind);
  }
}
