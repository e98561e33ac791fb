/**
 * Collectives in place. A call gives the work to the device and returns: what reads a result is in
 * order behind it. Every member of the group calls the same ones in the same order; a difference
 * becomes an error on all of them.
 *
 * @see PyTorch `torch.distributed`
 */
import { callSite } from '../../core/call-site.js';
import { aboutShape, type CollectiveCall, remembered } from '../../core/collective.js';
import { ArgumentError, ShapeError } from '../../core/errors.js';
import { checkIntegers, checkOneOf, optionsOf, shown } from '../../core/options.js';
import { type ReduceOpName, reduceOpNames } from '../../core/placement.js';
import type { Tensor } from '../../core/tensor.js';
import { memberOf } from './new-group.js';
import {
  type Async,
  apartFrom,
  type CollectiveOptions,
  checkAlike,
  checkList,
  checkNumel,
  checkSame,
  checkWritable,
  collectiveOptions,
  dense,
  denseOutput,
  joined,
  type MaybeAsync,
  perform,
  placeOf,
  type Sync,
  spread,
} from './operands.js';
import type { ProcessGroup } from './process-group.js';
import type { Work } from './work.js';

/** Reductions by PyTorch's names. */
export const ReduceOp = Object.freeze({
  SUM: 'sum',
  AVG: 'avg',
  PRODUCT: 'product',
  MIN: 'min',
  MAX: 'max',
} as const);

/** For collectives that reduce. */
export interface ReduceOptions extends CollectiveOptions {
  /** 'sum' if left out. */
  op?: ReduceOpName;
}

type Options = ReduceOptions & MaybeAsync;

function reduceOptions(name: string, options: Options): Options {
  const { op } = collectiveOptions(name, options, 'op group asyncOp');
  if (op !== undefined) checkOneOf(name, 'op', op, reduceOpNames);
  return options;
}

const sizes = (list: readonly Tensor[]): number[] => list.map((t) => t.numel());
const equalParts = (numel: number, ranks: number): number[] =>
  Array.from({ length: ranks }, () => numel / ranks);

/**
 * Reduces `tensor` over all ranks; every rank gets the result in it. Any shape, the same on all
 * ranks; any dtype.
 *
 * @throws ArgumentError, DistributedError. What ranks do differently is a CollectiveError when the
 * value is read
 * @see PyTorch `torch.distributed.all_reduce`
 */
export function allReduce(tensor: Tensor, options: ReduceOptions & Async): Work;
export function allReduce(tensor: Tensor, options?: ReduceOptions & Sync): void;
export function allReduce(tensor: Tensor, options: ReduceOptions & MaybeAsync): Work | undefined;
export function allReduce(tensor: Tensor, options: Options = {}): Work | undefined {
  const { op = 'sum', group: given } = reduceOptions('allReduce', options);
  const group = memberOf('allReduce', given);
  const [memory, after] = denseOutput('allReduce', 'the tensor', tensor, group);
  return perform(
    'allReduce',
    callSite(allReduce),
    group,
    {
      kind: 'allReduce',
      input: memory,
      output: memory,
      reduceOp: op,
      about: aboutShape(tensor.shape),
    },
    options,
    [tensor],
    after,
  );
}

/**
 * Reduces `tensor` over all ranks; rank `dst` gets the result in it. On the others it keeps its
 * values.
 *
 * @param dst - a rank of the world
 * @see PyTorch `torch.distributed.reduce`
 */
export function reduce(tensor: Tensor, dst: number, options: ReduceOptions & Async): Work;
export function reduce(tensor: Tensor, dst: number, options?: ReduceOptions & Sync): void;
export function reduce(
  tensor: Tensor,
  dst: number,
  options: ReduceOptions & MaybeAsync,
): Work | undefined;
export function reduce(tensor: Tensor, dst: number, options: Options = {}): Work | undefined {
  const { op = 'sum', group: given } = reduceOptions('reduce', options);
  const group = memberOf('reduce', given);
  const [memory, after] = denseOutput('reduce', 'the tensor', tensor, group);
  return perform(
    'reduce',
    callSite(reduce),
    group,
    {
      kind: 'reduce',
      input: memory,
      output: memory,
      reduceOp: op,
      root: placeOf('reduce', 'dst', dst, group),
      about: aboutShape(tensor.shape),
    },
    options,
    [tensor],
    after,
  );
}

/**
 * Gives the values of `tensor` on rank `src` to all.
 *
 * @param src - a rank of the world
 * @see PyTorch `torch.distributed.broadcast`
 */
export function broadcast(tensor: Tensor, src: number, options: CollectiveOptions & Async): Work;
export function broadcast(tensor: Tensor, src: number, options?: CollectiveOptions & Sync): void;
export function broadcast(
  tensor: Tensor,
  src: number,
  options: CollectiveOptions & MaybeAsync,
): Work | undefined;
export function broadcast(tensor: Tensor, src: number, options: Options = {}): Work | undefined {
  const { group: given } = collectiveOptions('broadcast', options);
  const group = memberOf('broadcast', given);
  const [memory, after] = denseOutput('broadcast', 'the tensor', tensor, group);
  return perform(
    'broadcast',
    callSite(broadcast),
    group,
    {
      kind: 'broadcast',
      input: memory,
      output: memory,
      root: placeOf('broadcast', 'src', src, group),
      about: aboutShape(tensor.shape),
    },
    options,
    [tensor],
    after,
  );
}

/**
 * Gives every rank the tensors of all: `tensors[r]` gets that of rank `r`. Their sizes may differ
 * from rank to rank, and may be 0.
 *
 * @see PyTorch `torch.distributed.all_gather`
 */
export function allGather(
  tensors: readonly Tensor[],
  tensor: Tensor,
  options: CollectiveOptions & Async,
): Work;
export function allGather(
  tensors: readonly Tensor[],
  tensor: Tensor,
  options?: CollectiveOptions & Sync,
): void;
export function allGather(
  tensors: readonly Tensor[],
  tensor: Tensor,
  options: CollectiveOptions & MaybeAsync,
): Work | undefined;
export function allGather(
  tensors: readonly Tensor[],
  tensor: Tensor,
  options: Options = {},
): Work | undefined {
  const { group: given } = collectiveOptions('allGather', options);
  const group = memberOf('allGather', given);
  checkList('allGather', 'tensors', tensors, group);
  const input = dense('allGather', 'the tensor', tensor, group);
  checkNumel(
    'allGather',
    "this rank's tensor",
    input,
    (tensors[group.place] as Tensor).numel(),
    'as its place in the list',
  );
  for (const t of tensors) {
    checkSame('allGather', 'tensors', t, tensor);
    checkWritable('allGather', 'tensors', t);
  }
  const counts = sizes(tensors);
  const whole = input.newEmpty([counts.reduce((a, b) => a + b, 0)]);
  return perform(
    'allGather',
    callSite(allGather),
    group,
    { kind: 'allGather', input, output: whole, counts },
    options,
    tensors,
    () => spread(whole, tensors),
  );
}

/**
 * The inputs of all ranks one behind the other, in `output`. All inputs have the same size.
 *
 * @throws ShapeError unless `output` has as many elements as all inputs together
 * @see PyTorch `torch.distributed.all_gather_into_tensor`
 */
export function allGatherIntoTensor(
  output: Tensor,
  input: Tensor,
  options: CollectiveOptions & Async,
): Work;
export function allGatherIntoTensor(
  output: Tensor,
  input: Tensor,
  options?: CollectiveOptions & Sync,
): void;
export function allGatherIntoTensor(
  output: Tensor,
  input: Tensor,
  options: CollectiveOptions & MaybeAsync,
): Work | undefined;
export function allGatherIntoTensor(
  output: Tensor,
  input: Tensor,
  options: Options = {},
): Work | undefined {
  const name = 'allGatherIntoTensor';
  const group = memberOf(name, collectiveOptions(name, options).group);
  const from = dense(name, 'the input', input, group);
  const [memory, after] = denseOutput(name, 'the output', output, group);
  checkSame(name, 'an output', output, input);
  checkNumel(name, 'an output', output, from.numel() * group.size, `${group.size} times the input`);
  const own =
    from.storage === memory.storage &&
    from.storageOffset === memory.storageOffset + group.place * from.numel(); // its place already
  return perform(
    name,
    callSite(allGatherIntoTensor),
    group,
    {
      kind: 'allGather',
      input: own ? from : apartFrom(memory, from),
      output: memory,
      counts: equalParts(memory.numel(), group.size),
    },
    options,
    [output],
    after,
  );
}

/**
 * Reduces lists element by element over all ranks; rank `r` gets element `r`. The elements may
 * differ in size, and be empty.
 *
 * @see PyTorch `torch.distributed.reduce_scatter`
 */
export function reduceScatter(
  output: Tensor,
  inputs: readonly Tensor[],
  options: ReduceOptions & Async,
): Work;
export function reduceScatter(
  output: Tensor,
  inputs: readonly Tensor[],
  options?: ReduceOptions & Sync,
): void;
export function reduceScatter(
  output: Tensor,
  inputs: readonly Tensor[],
  options: ReduceOptions & MaybeAsync,
): Work | undefined;
export function reduceScatter(
  output: Tensor,
  inputs: readonly Tensor[],
  options: Options = {},
): Work | undefined {
  const { op = 'sum', group: given } = reduceOptions('reduceScatter', options);
  const group = memberOf('reduceScatter', given);
  checkList('reduceScatter', 'inputs', inputs, group);
  const [memory, after] = denseOutput('reduceScatter', 'the output', output, group);
  checkNumel(
    'reduceScatter',
    'an output',
    output,
    (inputs[group.place] as Tensor).numel(),
    'as the input for this rank',
  );
  const input = joined('reduceScatter', 'inputs', inputs, group);
  checkSame('reduceScatter', 'an output', output, input);
  return perform(
    'reduceScatter',
    callSite(reduceScatter),
    group,
    { kind: 'reduceScatter', input, output: memory, reduceOp: op, counts: sizes(inputs) },
    options,
    [output],
    after,
  );
}

/**
 * Reduces `input` over all ranks and gives rank `r` its `r`-th part, all of one size.
 *
 * @throws ShapeError unless `input` has the elements of `output` times the number of ranks
 * @see PyTorch `torch.distributed.reduce_scatter_tensor`
 */
export function reduceScatterTensor(
  output: Tensor,
  input: Tensor,
  options: ReduceOptions & Async,
): Work;
export function reduceScatterTensor(
  output: Tensor,
  input: Tensor,
  options?: ReduceOptions & Sync,
): void;
export function reduceScatterTensor(
  output: Tensor,
  input: Tensor,
  options: ReduceOptions & MaybeAsync,
): Work | undefined;
export function reduceScatterTensor(
  output: Tensor,
  input: Tensor,
  options: Options = {},
): Work | undefined {
  const name = 'reduceScatterTensor';
  const { op = 'sum', group: given } = reduceOptions(name, options);
  const group = memberOf(name, given);
  const from = dense(name, 'the input', input, group);
  const [memory, after] = denseOutput(name, 'the output', output, group);
  checkSame(name, 'an output', output, input);
  checkNumel(name, 'an input', from, output.numel() * group.size, `${group.size} times the output`);
  return perform(
    name,
    callSite(reduceScatterTensor),
    group,
    {
      kind: 'reduceScatter',
      input: apartFrom(memory, from),
      output: memory,
      reduceOp: op,
      counts: equalParts(from.numel(), group.size),
    },
    options,
    [output],
    after,
  );
}

/**
 * Gives `inputs[r]` to rank `r`; `outputs[r]` gets what rank `r` gives to this one. Sizes may
 * differ, and be 0.
 *
 * @see PyTorch `torch.distributed.all_to_all`
 */
export function allToAll(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options: CollectiveOptions & Async,
): Work;
export function allToAll(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options?: CollectiveOptions & Sync,
): void;
export function allToAll(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options: CollectiveOptions & MaybeAsync,
): Work | undefined;
export function allToAll(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options: Options = {},
): Work | undefined {
  const group = memberOf('allToAll', collectiveOptions('allToAll', options).group);
  checkList('allToAll', 'inputs', inputs, group);
  checkList('allToAll', 'outputs', outputs, group);
  const input = joined('allToAll', 'inputs', inputs, group);
  for (const t of outputs) {
    checkSame('allToAll', 'outputs', t, input);
    checkWritable('allToAll', 'outputs', t);
  }
  const counts = sizes(outputs);
  const whole = input.newEmpty([counts.reduce((a, b) => a + b, 0)]);
  return perform(
    'allToAll',
    callSite(allToAll),
    group,
    { kind: 'allToAll', input, output: whole, counts, sendCounts: sizes(inputs) },
    options,
    outputs,
    () => spread(whole, outputs),
  );
}

/** How dim 0 is cut; in equal parts if left out. */
export interface SplitOptions extends CollectiveOptions {
  /** Rows of `input` for each rank. */
  inputSplitSizes?: readonly number[];
  /** Rows of `output` from each rank. */
  outputSplitSizes?: readonly number[];
}

/**
 * Cuts `input` along dim 0 and gives each rank a part; `output` gets the parts that come, one
 * behind the other.
 *
 * @throws ShapeError for parts that do not add up to dim 0
 * @see PyTorch `torch.distributed.all_to_all_single`
 */
export function allToAllSingle(output: Tensor, input: Tensor, options: SplitOptions & Async): Work;
export function allToAllSingle(output: Tensor, input: Tensor, options?: SplitOptions & Sync): void;
export function allToAllSingle(
  output: Tensor,
  input: Tensor,
  options: SplitOptions & MaybeAsync,
): Work | undefined;
export function allToAllSingle(
  output: Tensor,
  input: Tensor,
  options: SplitOptions & MaybeAsync = {},
): Work | undefined {
  const name = 'allToAllSingle';
  const {
    inputSplitSizes,
    outputSplitSizes,
    group: given,
  } = collectiveOptions(name, options, 'inputSplitSizes outputSplitSizes group asyncOp');
  const group = memberOf(name, given);
  const from = dense(name, 'the input', input, group);
  const [memory, after] = denseOutput(name, 'the output', output, group);
  checkSame(name, 'an output', output, input);
  const call: CollectiveCall = {
    kind: 'allToAll',
    input: apartFrom(memory, from),
    output: memory,
    sendCounts: partsOf(name, 'inputSplitSizes', from, inputSplitSizes, group),
    counts: partsOf(name, 'outputSplitSizes', memory, outputSplitSizes, group),
  };
  return perform(name, callSite(allToAllSingle), group, call, options, [output], after);
}

function partsOf(
  name: string,
  what: string,
  t: Tensor,
  rows: readonly number[] | undefined,
  group: ProcessGroup,
): number[] {
  const total = t.shape[0] ?? 1;
  if (rows === undefined) {
    if (total % group.size !== 0)
      throw new ShapeError(
        `${name}: ${total} rows cannot be cut into ${group.size} equal parts. Give ${what}.`,
        { op: name, shape: t.shape, ranks: group.size },
      );
    return equalParts(t.numel(), group.size);
  }
  checkIntegers(name, what, rows);
  if (
    rows.length !== group.size ||
    rows.some((count) => count < 0) ||
    rows.reduce((a, b) => a + b, 0) !== total
  ) {
    throw new ShapeError(
      `${name}: expected ${what} to be ${group.size} sizes that add up to ${total}, got ${shown(rows)}`,
      { op: name, given: rows, shape: t.shape },
    );
  }
  return rows.map((count) => (total === 0 ? 0 : (count * t.numel()) / total));
}

/** Of gather and scatter, whose sums over all ranks are nothing that the program gave. */
const gathersOwn = remembered(
  (count) =>
    `(${count} of them its own)\nAll ranks give gather as much: allGather takes different sizes, and so do isend and irecv, in a batch of batchIsendIrecv.`,
);
const scattersEach = remembered(
  (count) =>
    `(${count} for each rank)\nAll ranks get as much from scatter: allToAll takes different sizes, and so do isend and irecv, in a batch of batchIsendIrecv.`,
);

/** Of `gather`: where the values go; on rank `dst` only. */
export interface GatherOptions extends CollectiveOptions {
  /** On the destination, a tensor for the input of each rank. */
  gatherList?: readonly Tensor[];
  /** A rank of the world; 0 if left out. */
  dst?: number;
}

/**
 * Gives the tensors of all ranks to rank `dst`, which gets that of rank `r` in `gatherList[r]`.
 *
 * @throws ArgumentError for a list where none belongs, or none where one does
 * @see PyTorch `torch.distributed.gather`
 */
export function gather(tensor: Tensor, options: GatherOptions & Async): Work;
export function gather(tensor: Tensor, options?: GatherOptions & Sync): void;
export function gather(tensor: Tensor, options: GatherOptions & MaybeAsync): Work | undefined;
export function gather(tensor: Tensor, options: GatherOptions & MaybeAsync = {}): Work | undefined {
  const {
    gatherList,
    dst = 0,
    group: given,
  } = collectiveOptions('gather', options, 'gatherList dst group asyncOp');
  const group = memberOf('gather', given);
  const root = placeOf('gather', 'dst', dst, group);
  const input = dense('gather', 'the tensor', tensor, group);
  const list = rootList('gather', 'gatherList', gatherList, root, group);
  if (list !== null) checkAlike('gather', 'gatherList', list, tensor);
  for (const t of list ?? []) checkWritable('gather', 'gatherList', t);
  const counts = equalParts(input.numel() * group.size, group.size);
  const whole = list === null ? null : input.newEmpty([input.numel() * group.size]);
  const after = whole === null ? undefined : () => spread(whole, list as readonly Tensor[]);
  const call: CollectiveCall = {
    kind: 'gather',
    input,
    output: whole,
    root,
    counts,
    about: gathersOwn(input.numel()),
  };
  return perform('gather', callSite(gather), group, call, options, list ?? [], after);
}

/** Of `scatter`: what is given out; on rank `src` only. */
export interface ScatterOptions extends CollectiveOptions {
  /** On the source, a tensor for each rank. */
  scatterList?: readonly Tensor[];
  /** A rank of the world; 0 if left out. */
  src?: number;
}

/**
 * Rank `src` gives `scatterList[r]` to rank `r`, which gets it in `tensor`.
 *
 * @throws ArgumentError for a list where none belongs, or none where one does
 * @see PyTorch `torch.distributed.scatter`
 */
export function scatter(tensor: Tensor, options: ScatterOptions & Async): Work;
export function scatter(tensor: Tensor, options?: ScatterOptions & Sync): void;
export function scatter(tensor: Tensor, options: ScatterOptions & MaybeAsync): Work | undefined;
export function scatter(
  tensor: Tensor,
  options: ScatterOptions & MaybeAsync = {},
): Work | undefined {
  const {
    scatterList,
    src = 0,
    group: given,
  } = collectiveOptions('scatter', options, 'scatterList src group asyncOp');
  const group = memberOf('scatter', given);
  const root = placeOf('scatter', 'src', src, group);
  const [memory, after] = denseOutput('scatter', 'the tensor', tensor, group);
  const list = rootList('scatter', 'scatterList', scatterList, root, group);
  if (list !== null) checkAlike('scatter', 'scatterList', list, tensor);
  const input = list === null ? null : joined('scatter', 'scatterList', list, group);
  const counts = equalParts(memory.numel() * group.size, group.size);
  const call: CollectiveCall = {
    kind: 'scatter',
    input,
    output: memory,
    root,
    counts,
    about: scattersEach(memory.numel()),
  };
  return perform('scatter', callSite(scatter), group, call, options, [tensor], after);
}

function rootList(
  name: string,
  what: string,
  list: readonly Tensor[] | undefined,
  root: number,
  group: ProcessGroup,
): readonly Tensor[] | null {
  if (group.place === root) {
    checkList(name, what, list as readonly Tensor[], group);
    return list as readonly Tensor[];
  }
  if (list !== undefined)
    throw new ArgumentError(
      `${name}: ${what} belongs to the root only, rank ${group.ranks[root]}; this is rank ${group.ranks[group.rank]}`,
      { op: name },
    );
  return null;
}

/**
 * Resolves when all ranks have come here, and their devices have done what they were given before.
 * @see PyTorch `torch.distributed.barrier`
 */
export async function barrier(options: CollectiveOptions = {}): Promise<void> {
  const group = memberOf('barrier', optionsOf('barrier', options, 'group').group);
  const device = group.meetingDevice;
  group.run('barrier', { kind: 'barrier', input: null, output: null, device }, callSite(barrier));
  const { turns } = group.home;
  await (turns === null ? group.finished(device) : turns.wait('barrier', group.finished(device)));
}
