/**
 * Command words as native/README.md describes them: recorded from real ops, damaged, and submitted
 * again.
 */
import { dispatch } from '../../lib/core/dispatch.js';
import { allOps, type Sample } from '../../lib/core/op.js';
import {
  float32,
  int32,
  linspace,
  nn,
  ones,
  optim,
  rand,
  randint,
  randn,
  ShardwiseError,
} from '../../lib/index.js';
import { allComposites } from '../../lib/ops/composite.js';
import { foreachCopy_, splitWithSizesCopy } from '../../lib/ops/foreach-copy.js';
import { fusedPointwiseOp } from '../../lib/ops/fused-pointwise.js';
import { foreachAdd_, foreachMul_ } from '../../lib/ops/optimizer-steps.js';
import { addon } from '../../lib/runtime.js';
import type { Rng } from './rng.js';

const HEADER_WORDS = 7;
export const IMMEDIATE = -1;
export const ALLOCATE = -2;
export const INDEX_VIEW = -3;
const ITEM_BYTES = [4, 8, 2, 2, 8, 4, 2, 1, 1, 1];

/** One operand; `value` is the offset of a storage, the bytes to allocate, or a number. */
export interface Operand {
  kind: number;
  value: number;
  dtype: number;
  sizes: number[];
  strides: number[];
}

/** A command by its fields. */
export interface Command {
  kernel: number;
  stream: number;
  inputs: number;
  outputs: number;
  flags: number;
  cost: number;
  operands: Operand[];
  params: number[];
}

export function decode(words: ArrayLike<number>): Command {
  const word = (at: number): number => words[at] as number;
  const command = {
    kernel: word(0),
    stream: word(1),
    inputs: word(2),
    outputs: word(3),
    flags: word(5),
    cost: word(6),
    operands: [] as Operand[],
    params: [] as number[],
  };
  let at = HEADER_WORDS;
  for (let i = 0; i < command.inputs + command.outputs; i++) {
    const operand: Operand = {
      kind: word(at),
      value: word(at + 1),
      dtype: word(at + 2),
      sizes: [],
      strides: [],
    };
    at += 3;
    if (operand.kind !== IMMEDIATE) {
      const ndim = word(at++);
      for (let d = 0; d < ndim; d++) operand.sizes.push(word(at + d));
      for (let d = 0; d < ndim; d++) operand.strides.push(word(at + ndim + d));
      at += 2 * ndim;
    }
    command.operands.push(operand);
  }
  for (let i = 0; i < word(4); i++) command.params.push(word(at + i));
  return command;
}

export function encode(command: Command): number[] {
  const { kernel, stream, inputs, outputs, flags, cost, operands, params } = command;
  const layout = ({ kind, sizes, strides }: Operand): number[] =>
    kind === IMMEDIATE ? [] : [sizes.length, ...sizes, ...strides];
  return [
    kernel,
    stream,
    inputs,
    outputs,
    params.length,
    flags,
    cost,
    ...operands.flatMap((o) => [o.kind, o.value, o.dtype, ...layout(o)]),
    ...params,
  ];
}

/** Bytes of storage that an operand covers. */
export function bytesOf({ value, dtype, sizes, strides }: Operand): number {
  if (sizes.includes(0)) return 64;
  const last = sizes.reduce((end, size, d) => end + (size - 1) * (strides[d] as number), value);
  return (last + 1) * (ITEM_BYTES[dtype] ?? 8);
}

/** Records some commands for every kernel. */
export function recordCommands(): Command[] {
  const recorded: Command[] = [];
  const words = new Float64Array(addon.words);
  const submit = addon.submit;
  const counts = new Map<number, number>();
  addon.submit = (count) => {
    const seen = counts.get(words[0] as number) ?? 0;
    counts.set(words[0] as number, seen + 1);
    if (seen < 6 && count < 500) recorded.push(decode(words.slice(0, count)));
    return submit(count);
  };
  try {
    for (const op of allOps())
      for (const { inputs, params } of op.samples() as Sample<object>[])
        dispatch(op, inputs, params);
    for (const { fn, samples } of allComposites()) for (const args of samples()) fn(...args);
    useOpsWithoutSamples();
  } catch (error) {
    if (!(error instanceof ShardwiseError)) throw error;
  } finally {
    addon.submit = submit;
  }
  return recorded;
}

/**
 * Calls ops by name that have no samples, because they have no operands or overwrite them, and that
 * no composition calls. `test/native/addon.test.ts` fails for a kernel without a command.
 */
function useOpsWithoutSamples(): void {
  foreachAdd_([ones([3])], [ones([3])]);
  foreachMul_([ones([3])], 2);
  foreachCopy_([ones([3])], [ones([3])]);
  splitWithSizesCopy(ones([2, 3]), [1, 2], 1, { out: [ones([2, 1]), ones([2, 2])] });
  useFusedPointwise();
  linspace(0, 1, 5);
  randint(0, 5, [3]);
  rand([3]);
  randn([3]);
  ones([3]).bernoulli_(0.5);
  const parameter = new nn.Parameter(ones([3]));
  parameter.sum().backward();
  new optim.SGD([parameter], { lr: 0.1, momentum: 0.9 }).step();
  new optim.Adam([parameter], { amsgrad: true }).step();
  const capturable = { lr: ones([]), capturable: true };
  new optim.SGD([parameter], { momentum: 0.9, ...capturable }).step();
  new optim.Adam([parameter], { amsgrad: true, ...capturable }).step();
}

/** `-(x * y)` as int32, over a broadcast input. */
function useFusedPointwise(): void {
  const program = {
    steps: [
      {
        name: 'mul',
        kernel: addon.kernelNames.indexOf('mul'),
        computeType: 0,
        dtype: float32,
        operands: [{ value: 0 }, { value: 1 }],
        params: [],
      },
      {
        name: 'sub',
        kernel: addon.kernelNames.indexOf('sub'),
        computeType: 0,
        dtype: int32,
        operands: [{ number: 0 }, { value: 2 }],
        params: [1],
      },
    ],
    outputs: [{ value: 3, shape: [2, 3], strides: [3, 1], dtype: int32 }],
  };
  dispatch(fusedPointwiseOp, [ones([2, 3]), ones([3])], { program });
}

const sizes = [0, 1, 2, 3, 5, 7, 64, -1, 2 ** 49, 2 ** 53, 1.5, Number.NaN];
const strides = [0, 1, 2, 3, 5, 64, 2 ** 40, 2 ** 53, -1];
/** Values for any word, most of which are wrong there. */
export const anyWord = [
  0,
  1,
  -1,
  -2,
  -3,
  2,
  7,
  200,
  4096,
  2 ** 24,
  2 ** 31,
  2 ** 53,
  -(2 ** 53),
  2 ** 63,
  0.5,
  Number.NaN,
  Number.POSITIVE_INFINITY,
];

function damageOperand(rng: Rng, operand: Operand, handles: readonly number[]): void {
  const dim = rng.int(0, Math.max(0, operand.sizes.length - 1));
  switch (rng.int(0, 6)) {
    case 0:
      operand.sizes[dim] = rng.pick(sizes);
      if (operand.strides.length < operand.sizes.length) operand.strides.push(1);
      return;
    case 1:
      if (operand.strides.length > 0) operand.strides[dim] = rng.pick(strides);
      return;
    case 2:
      operand.dtype = rng.pick([0, 1, 2, 4, 5, 8, 9, 10, -1]);
      return;
    case 3:
      operand.kind =
        rng.chance(0.5) && handles.length > 0
          ? rng.pick(handles)
          : rng.pick([IMMEDIATE, ALLOCATE, INDEX_VIEW, 0, 2 ** 24 + 3, 2 ** 52]);
      return;
    case 4:
      operand.value = rng.chance(0.5) ? rng.int(0, 9) : rng.pick(anyWord);
      return;
    case 5:
      operand.sizes.push(rng.pick(sizes));
      operand.strides.push(rng.pick(strides));
      return;
    default:
      operand.sizes.pop();
      operand.strides.pop();
  }
}

/** Damages a few fields of a command. */
export function damage(
  rng: Rng,
  command: Command,
  handles: readonly number[],
  kernels: number,
): void {
  for (let n = rng.int(0, 3); n > 0; n--) {
    const { operands, params } = command;
    switch (rng.int(0, 7)) {
      case 0:
        command.kernel = rng.chance(0.8) ? rng.int(0, kernels - 1) : rng.pick(anyWord);
        break;
      case 1:
        if (params.length > 0)
          params[rng.int(0, params.length - 1)] = rng.chance(0.6)
            ? rng.int(-2, 6)
            : rng.pick(anyWord);
        break;
      case 2:
        command.cost = rng.pick([0, 1e9, -1, Number.NaN]);
        break;
      case 3:
        if (rng.chance(0.3))
          command.inputs = rng.pick([...anyWord, command.inputs + 1, command.inputs - 1]);
        else if (operands.length > 0) operands.push({ ...rng.pick(operands) });
        break;
      default:
        if (operands.length > 0) damageOperand(rng, rng.pick(operands), handles);
    }
  }
}
