/**
 * In-place collectives that reduce, broadcast or gather tensors on all ranks. A call enqueues the
 * work on the device and returns; later ops on the result are ordered behind it. Every member of
 * the group calls the same collectives in the same order; a mismatch is an error on all of them.
 *
 * @see PyTorch `torch.distributed`
 */
import { callSite } from '../../core/call-site.js';
import { aboutShape } from '../../core/collective.js';
import { checkOneOf, optionsOf } from '../../core/options.js';
import { type ReduceOpName, reduceOpNames } from '../../core/placement.js';
import type { Tensor } from '../../core/tensor.js';
import { reportUse } from '../../core/unrepeatable.js';
import { memberOf } from './new-group.js';
import {
  type AsyncOption,
  apartFrom,
  type CollectiveOptions,
  checkList,
  checkNumel,
  checkSame,
  checkWritable,
  collectiveOptions,
  dense,
  denseOutput,
  equalCounts,
  joined,
  perform,
  placeOf,
  sizesOf,
  spread,
  type WaitOptions,
  type WorkIf,
  waitLimit,
} from './operands.js';

/**
 * Public functions that start a collective, by the names in errors, traces and faults. @internal
 */
export const collectiveNames = [
  'allReduce',
  'reduce',
  'broadcast',
  'allGather',
  'allGatherIntoTensor',
  'allGatherIntoTensorCoalesced',
  'gather',
  'scatter',
  'reduceScatter',
  'reduceScatterTensor',
  'reduceScatterTensorCoalesced',
  'allToAll',
  'allToAllSingle',
  'barrier',
  'send',
  'recv',
  'isend',
  'irecv',
  'allGatherObject',
  'gatherObject',
  'broadcastObjectList',
  'scatterObjectList',
  'distributeTensor',
  'DTensor.fromLocal',
] as const;

/** Reductions by PyTorch's names. */
export const ReduceOp = Object.freeze({
  SUM: 'sum',
  AVG: 'avg',
  PRODUCT: 'product',
  MIN: 'min',
  MAX: 'max',
} as const);

/** Options of collectives that reduce. */
export interface ReduceOptions extends CollectiveOptions {
  /** The reduction; 'sum' by default. */
  op?: ReduceOpName;
}

/** Checks the options of collectives that reduce, and returns them. @internal */
export function reduceOptions<O extends ReduceOptions>(name: string, options: O): O {
  const { op } = collectiveOptions(name, options, 'op group asyncOp');
  if (op !== undefined) checkOneOf(name, 'op', op, reduceOpNames);
  return options;
}

/**
 * Reduces `tensor` over all ranks; every rank gets the result in it. Any shape, the same on all
 * ranks; any dtype.
 *
 * @returns a {@link Work} if `asyncOp` is true
 * @throws ArgumentError, DistributedError. A mismatch between ranks is a CollectiveError when the
 * value is read
 * @see PyTorch `torch.distributed.all_reduce`
 * @example
 * const t = ones([2]);
 * allReduce(t);
 * await t.read(); // [2, 2]
 */
export function allReduce<A extends boolean = false>(
  tensor: Tensor,
  options: ReduceOptions & AsyncOption<A> = {},
): WorkIf<A> {
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
      about: aboutShape(tensor.sizes),
    },
    options,
    [tensor],
    after,
  );
}

/**
 * Reduces `tensor` over all ranks; rank `dst` gets the result in it. The tensors of the other ranks
 * do not change.
 *
 * @param dst - a rank of the world
 * @returns a {@link Work} if `asyncOp` is true
 * @see PyTorch `torch.distributed.reduce`
 */
export function reduce<A extends boolean = false>(
  tensor: Tensor,
  dst: number,
  options: ReduceOptions & AsyncOption<A> = {},
): WorkIf<A> {
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
      about: aboutShape(tensor.sizes),
    },
    options,
    [tensor],
    after,
  );
}

/**
 * Copies the values of `tensor` on rank `src` to all ranks.
 *
 * @param src - a rank of the world
 * @returns a {@link Work} if `asyncOp` is true
 * @see PyTorch `torch.distributed.broadcast`
 */
export function broadcast<A extends boolean = false>(
  tensor: Tensor,
  src: number,
  options: CollectiveOptions & AsyncOption<A> = {},
): WorkIf<A> {
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
      about: aboutShape(tensor.sizes),
    },
    options,
    [tensor],
    after,
  );
}

/**
 * Copies the tensors of all ranks to every rank: `tensors[r]` gets that of rank `r`. Sizes may
 * differ from rank to rank, and be 0.
 *
 * @returns a {@link Work} if `asyncOp` is true
 * @see PyTorch `torch.distributed.all_gather`
 */
export function allGather<A extends boolean = false>(
  tensors: readonly Tensor[],
  tensor: Tensor,
  options: CollectiveOptions & AsyncOption<A> = {},
): WorkIf<A> {
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
  const counts = sizesOf(tensors);
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
 * Concatenates the inputs of all ranks into `output`. All inputs have the same size.
 *
 * @returns a {@link Work} if `asyncOp` is true
 * @throws ShapeError unless `output` has as many elements as all inputs together
 * @see PyTorch `torch.distributed.all_gather_into_tensor`
 */
export function allGatherIntoTensor<A extends boolean = false>(
  output: Tensor,
  input: Tensor,
  options: CollectiveOptions & AsyncOption<A> = {},
): WorkIf<A> {
  const name = 'allGatherIntoTensor';
  const group = memberOf(name, collectiveOptions(name, options).group);
  const from = dense(name, 'the input', input, group);
  const [memory, after] = denseOutput(name, 'the output', output, group);
  checkSame(name, 'an output', output, input);
  checkNumel(name, 'an output', output, from.numel() * group.size, `${group.size} times the input`);
  const isInPlace =
    from.storage === memory.storage &&
    from.storageOffset === memory.storageOffset + group.place * from.numel();
  return perform(
    name,
    callSite(allGatherIntoTensor),
    group,
    {
      kind: 'allGather',
      input: isInPlace ? from : apartFrom(memory, from),
      output: memory,
      counts: equalCounts(memory.numel(), group.size),
    },
    options,
    [output],
    after,
  );
}

/**
 * Reduces lists of tensors element by element over all ranks; rank `r` gets element `r`. The
 * elements may differ in size, and be empty.
 *
 * @returns a {@link Work} if `asyncOp` is true
 * @see PyTorch `torch.distributed.reduce_scatter`
 */
export function reduceScatter<A extends boolean = false>(
  output: Tensor,
  inputs: readonly Tensor[],
  options: ReduceOptions & AsyncOption<A> = {},
): WorkIf<A> {
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
    { kind: 'reduceScatter', input, output: memory, reduceOp: op, counts: sizesOf(inputs) },
    options,
    [output],
    after,
  );
}

/**
 * Reduces `input` over all ranks and gives rank `r` its `r`-th shard; all shards have one size.
 *
 * @returns a {@link Work} if `asyncOp` is true
 * @throws ShapeError unless `input` has the elements of `output` times the number of ranks
 * @see PyTorch `torch.distributed.reduce_scatter_tensor`
 */
export function reduceScatterTensor<A extends boolean = false>(
  output: Tensor,
  input: Tensor,
  options: ReduceOptions & AsyncOption<A> = {},
): WorkIf<A> {
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
      counts: equalCounts(from.numel(), group.size),
    },
    options,
    [output],
    after,
  );
}

/**
 * Resolves when all ranks have called it and their devices have finished earlier work. With `{
 * timeoutMs: Infinity }` it waits until they come, or until one dies or leaves.
 *
 * @see PyTorch `torch.distributed.barrier`
 *
 * @example
 * await barrier();
 */
export async function barrier(options: WaitOptions = {}): Promise<void> {
  const group = memberOf('barrier', optionsOf('barrier', options, 'group timeoutMs').group);
  const device = group.barrierDevice;
  const where = callSite(barrier);
  const limit = waitLimit('barrier', options);
  reportUse('barrier');
  if (device.type !== 'cpu') await group.hostsArrive('barrier', limit, where);
  const call = { kind: 'barrier', input: null, output: null, device } as const;
  group.run('barrier', device.type === 'cpu' ? { ...call, ...limit } : call, where);
  const { turns } = group.runtime;
  await (turns === null ? group.finished(device) : turns.wait('barrier', group.finished(device)));
}
