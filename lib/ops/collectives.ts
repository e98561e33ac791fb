/**
 * Collectives as ops: they return new tensors, have gradients, and are nodes of graphs like any
 * other op. Tensors are split and joined along dim 0.
 *
 * @see PyTorch `torch.distributed._functional_collectives`
 */
import {
  aboutShape,
  type CollectiveCall,
  type CollectiveGroup,
  type CollectivePart,
  remembered,
} from '../core/collective.js';
import { dispatchOne } from '../core/dispatch.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { defineOp, type Op, type OutputMeta } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import type { ReduceOpName } from '../core/placement.js';
import { formatShape, numelOf, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { sampleTensor } from './samples.js';

const groupParams = { group: param.value<CollectiveGroup>() };
type InGroup = ParamsOf<typeof groupParams>;

const reduceParams = { ...groupParams, reduceOp: param.value<ReduceOpName>() };
type Reduces = ParamsOf<typeof reduceParams>;

/**
 * The number of rows of each rank, in the order of the group. `dim`: that of the rows, 0 by
 * default. Along another one all ranks have equally many, see {@link communicatesAlong}.
 */
const rowsParam = { rows: param.value<readonly number[]>(), dim: param.optional<number>() };
const gatherParams = { ...groupParams, ...rowsParam };
type Gathers = ParamsOf<typeof gatherParams>;
const reduceScatterParams = { ...reduceParams, ...rowsParam };
type ReduceScatters = ParamsOf<typeof reduceScatterParams>;

const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);
const rowSize = (t: Tensor): number => numelOf(t.sizes.slice(1));
const elements = (rows: readonly number[], size: number): number[] =>
  rows.map((count) => count * size);
const withRows = (t: Tensor, rows: number, dim = 0): Shape => t.sizes.with(dim, rows);
const metaOf = (t: Tensor, shape: Shape): readonly OutputMeta[] => [
  { shape, strides: null, dtype: t.dtype, device: t.device },
];

/** A group of one, for samples. */
const solo: CollectiveGroup = {
  name: 'solo',
  size: 1,
  rank: 0,
  run: (_, { input, output }: CollectiveCall) => {
    output?.copy_((input as Tensor).view(output.sizes));
  },
};

function checkRows(
  op: string,
  t: Tensor,
  rows: readonly number[],
  group: CollectiveGroup,
  total: number,
  dim = 0,
): void {
  if (rows.length !== group.size)
    throw new ArgumentError(`${op}: expected rows of ${group.size} ranks, got ${rows.length}`, {
      op,
      rows,
    });
  if (t.sizes.length === 0)
    throw new ShapeError(`${op}: a tensor without dims has no rows. Use unsqueeze(0).`, {
      op,
      shape: t.sizes,
    });
  if (t.sizes[dim] !== total)
    throw new ShapeError(`${op}: expected ${total} rows, got shape ${formatShape(t.sizes)}`, {
      op,
      shape: t.sizes,
      rows,
    });
}

/** @throws ArgumentError for a reduction that has no gradient */
function checkLinear(op: string, reduceOp: ReduceOpName): void {
  if (reduceOp !== 'sum' && reduceOp !== 'avg')
    throw new ArgumentError(`${op}: only 'sum' and 'avg' have a gradient, not '${reduceOp}'`, {
      op,
      reduceOp,
    });
}

const isEven = (rows: readonly number[]): boolean => {
  for (const count of rows) if (count !== rows[0]) return false;
  return true;
};

const SIZES_ADVICE =
  'Where parts differ along the gathered dim, give functional.allGatherTensor the sizes of all ' +
  'ranks, { sizes }; along other dims they are the same.';

/**
 * The description of an all-gather of equal shards, by the shape of this rank's shard, which the
 * program passed.
 */
const localShard = remembered(
  (count, rows) => `(${count} of them its own, ${rows} along the gathered dim)\n${SIZES_ADVICE}`,
);

/** Blocks of a tensor that one call gathers or reduces, at most. */
const MOST_BLOCKS = 16;

/**
 * Whether one call gathers or scatters rows along a dim without transposing it to the front: the
 * ranks have equally many, and the dims before it few elements, each with a block of its own.
 */
export function communicatesAlong(t: Tensor, dim: number, rows: readonly number[]): boolean {
  const blocks = numelOf(t.sizes.slice(0, dim));
  return dim > 0 && isEven(rows) && t.numel() > 0 && blocks <= MOST_BLOCKS;
}

/** The blocks of a dense tensor, one for each element of the dims before `dim`. */
function blocksOf(t: Tensor, dim: number): Tensor[] {
  const blocks = t.view([numelOf(t.sizes.slice(0, dim)), -1]);
  return Array.from({ length: blocks.sizes[0] as number }, (_, i) => blocks.select(0, i));
}

/** As {@link into} for rows along a dim behind others: a part of the call for each block. */
function intoBlocks(
  name: string,
  { group }: InGroup,
  input: Tensor,
  shape: Shape,
  dim: number,
  call: Pick<CollectiveCall, 'kind' | 'reduceOp'>,
): Tensor[] {
  const output = input.newEmpty(shape);
  const given = blocksOf(input.contiguous(), dim);
  const parts = blocksOf(output, dim).map((block, i) => ({
    input: given[i] as Tensor,
    output: block,
  }));
  const each = Math.min(input.numel(), output.numel());
  group.run(name, {
    ...call,
    ...(parts[0] as CollectivePart),
    counts: Array.from({ length: group.size }, () => each),
    parts,
    about:
      `in each of ${parts.length} blocks (${input.sizes[dim]} along the dim of the ranks)` +
      (call.kind === 'allGather' ? `\n${SIZES_ADVICE}` : ''),
  });
  return [output];
}

/** Makes the input dense, allocates the output and runs the collective. */
function into(
  name: string,
  { group }: InGroup,
  input: Tensor,
  shape: Shape,
  call: Omit<CollectiveCall, 'input' | 'output'>,
): Tensor[] {
  const output = input.newEmpty(shape);
  group.run(name, { ...call, input: input.isContiguous() ? input : input.contiguous(), output });
  return [output];
}

const allReduceOp: Op<Reduces> = defineOp({
  name: 'allReduce',
  inputs: ['x'],
  outputs: ['y'],
  params: reduceParams,
  doc: 'The reduction of the inputs of all ranks, on every rank.',
  traits: ['collective'],
  kernel: null,
  meta: ([x]) => metaOf(x, x.sizes),
  compute: ([input], params) =>
    into('allReduce', params, input, input.sizes, {
      kind: 'allReduce',
      reduceOp: params.reduceOp,
      about: aboutShape(input.sizes),
    }),
  vjp: (ctx, g) => {
    const { group, reduceOp } = ctx.params;
    checkLinear('allReduce', reduceOp);
    return [dispatchOne(allReduceOp, [g], { group, reduceOp })];
  },
  samples: () => [
    { inputs: [sampleTensor([3, 4])], params: { group: solo, reduceOp: 'sum' as const } },
  ],
});

const allGatherOp: Op<Gathers> = defineOp({
  name: 'allGather',
  inputs: ['x'],
  outputs: ['y'],
  params: gatherParams,
  doc: 'The rows of all ranks one below the other, on every rank.',
  traits: ['collective'],
  kernel: null,
  meta: ([x], { group, rows, dim }) => {
    checkRows('allGather', x, rows, group, rows[group.rank] as number, dim);
    return metaOf(x, withRows(x, sum(rows), dim));
  },
  compute: ([input], params) => {
    const { rows, dim } = params;
    if (dim !== undefined) {
      const shape = withRows(input, sum(rows), dim);
      return intoBlocks('allGather', params, input, shape, dim, { kind: 'allGather' });
    }
    const about = isEven(rows) ? localShard(input.numel(), input.sizes[0]) : '';
    return into('allGather', params, input, withRows(input, sum(rows)), {
      kind: 'allGather',
      counts: elements(rows, rowSize(input)),
      about,
    });
  },
  vjp: (ctx, g) => [dispatchOne(reduceScatterOp, [g], { ...ctx.params, reduceOp: 'sum' })],
  samples: () => [{ inputs: [sampleTensor([3, 4])], params: { group: solo, rows: [3] } }],
});

const reduceScatterOp: Op<ReduceScatters> = defineOp({
  name: 'reduceScatter',
  inputs: ['x'],
  outputs: ['y'],
  params: reduceScatterParams,
  doc: 'Of the reduction of the inputs of all ranks, the rows that are this rank’s.',
  traits: ['collective'],
  kernel: null,
  meta: ([x], { group, rows, dim }) => {
    checkRows('reduceScatter', x, rows, group, sum(rows), dim);
    return metaOf(x, withRows(x, rows[group.rank] as number, dim));
  },
  compute: ([input], params) => {
    const { group, rows, reduceOp, dim } = params;
    if (dim !== undefined) {
      const shape = withRows(input, rows[group.rank] as number, dim);
      const call = { kind: 'reduceScatter', reduceOp } as const;
      return intoBlocks('reduceScatter', params, input, shape, dim, call);
    }
    return into('reduceScatter', params, input, withRows(input, rows[group.rank] as number), {
      kind: 'reduceScatter',
      reduceOp,
      counts: elements(rows, rowSize(input)),
    });
  },
  vjp: (ctx, g) => {
    const { reduceOp, group } = ctx.params;
    checkLinear('reduceScatter', reduceOp);
    const { reduceOp: _, ...gathers } = ctx.params;
    const gathered = dispatchOne(allGatherOp, [g], gathers);
    return [reduceOp === 'sum' ? gathered : gathered.div(group.size)];
  },
  samples: () => [
    {
      inputs: [sampleTensor([3, 4])],
      params: { group: solo, rows: [3], reduceOp: 'sum' as const },
    },
  ],
});

const exchangeParams = {
  ...groupParams,
  /** The number of input rows for each rank, and of output rows from each rank. */
  inputRows: param.value<readonly number[]>(),
  outputRows: param.value<readonly number[]>(),
};
type Exchange = ParamsOf<typeof exchangeParams>;

const allToAllOp: Op<Exchange> = defineOp({
  name: 'allToAll',
  inputs: ['x'],
  outputs: ['y'],
  params: exchangeParams,
  doc: 'Each rank gives some of its rows to each other; what comes lies in the order of ranks.',
  traits: ['collective'],
  kernel: null,
  meta: ([x], { group, inputRows, outputRows }) => {
    checkRows('allToAll', x, inputRows, group, sum(inputRows));
    return metaOf(x, withRows(x, sum(outputRows)));
  },
  compute: ([input], params) => {
    const { inputRows, outputRows } = params;
    const size = rowSize(input);
    return into('allToAll', params, input, withRows(input, sum(outputRows)), {
      kind: 'allToAll',
      sendCounts: elements(inputRows, size),
      counts: elements(outputRows, size),
    });
  },
  vjp: (ctx, g) => {
    const { group, inputRows, outputRows } = ctx.params;
    return [dispatchOne(allToAllOp, [g], { group, inputRows: outputRows, outputRows: inputRows })];
  },
  samples: () => [
    { inputs: [sampleTensor([3, 4])], params: { group: solo, inputRows: [3], outputRows: [3] } },
  ],
});

const broadcastParams = {
  ...groupParams,
  root: param.value<number>(),
  called: param.value<string>(),
};
type Broadcasts = ParamsOf<typeof broadcastParams>;

const broadcastOp: Op<Broadcasts> = defineOp({
  name: 'broadcast',
  inputs: ['x'],
  outputs: ['y'],
  params: broadcastParams,
  doc: 'The input of one rank, on every rank.',
  traits: ['collective'],
  kernel: null,
  meta: ([x]) => metaOf(x, x.sizes),
  compute: ([input], params) =>
    into(params.called, params, input, input.sizes, {
      kind: 'broadcast',
      root: params.root,
    }),
  vjp: (ctx, g) => {
    const { group, root } = ctx.params;
    const total = dispatchOne(allReduceOp, [g], { group, reduceOp: 'sum' });
    return [group.rank === root ? total : total.zerosLike()];
  },
  samples: () => [
    { inputs: [sampleTensor([3, 4])], params: { group: solo, root: 0, called: 'broadcast' } },
  ],
});

/**
 * The reduction of the inputs of all ranks of the group, on every rank. Shapes: any, the same on
 * all ranks. Gradient: of `'sum'` and `'avg'`, the same reduction of the gradients.
 *
 * @see PyTorch `torch.distributed._functional_collectives.all_reduce`
 */
export function allReduceTensor(
  input: Tensor,
  reduceOp: ReduceOpName,
  group: CollectiveGroup,
): Tensor {
  return dispatchOne(allReduceOp, [input], { group, reduceOp });
}

/**
 * The rows of all ranks, one below the other; `rows[r]` are those of rank `r`. `dim`: that of the
 * rows, where {@link communicatesAlong} says that it may be another than 0.
 */
export function allGatherRows(
  input: Tensor,
  rows: readonly number[],
  group: CollectiveGroup,
  dim = 0,
): Tensor {
  return dispatchOne(allGatherOp, [input], { group, rows, ...alongDim(dim) });
}

/** This rank's rows of the reduction; `rows[r]` are those of rank `r`, `dim` as of a gather. */
export function reduceScatterRows(
  input: Tensor,
  reduceOp: ReduceOpName,
  rows: readonly number[],
  group: CollectiveGroup,
  dim = 0,
): Tensor {
  return dispatchOne(reduceScatterOp, [input], { group, rows, reduceOp, ...alongDim(dim) });
}

const alongDim = (dim: number): { dim?: number } => (dim === 0 ? {} : { dim });

/** Gives rank `r` the next `inputRows[r]` rows; `outputRows[r]` come from it. */
export function allToAllRows(
  input: Tensor,
  inputRows: readonly number[],
  outputRows: readonly number[],
  group: CollectiveGroup,
): Tensor {
  return dispatchOne(allToAllOp, [input], { group, inputRows, outputRows });
}

/**
 * The input of the group's rank `root`, on every rank. Gradient: the sum of all ranks' gradients on
 * the root, 0 elsewhere. `called` is the function that the program called, for errors.
 */
export function broadcastTensor(
  input: Tensor,
  root: number,
  group: CollectiveGroup,
  called = 'broadcast',
): Tensor {
  return dispatchOne(broadcastOp, [input], { group, root, called });
}
