/** Gather and scatter: collectives in which one rank has a list with a tensor for each rank. */
import { callSite } from '../../core/call-site.js';
import { type CollectiveCall, remembered } from '../../core/collective.js';
import { ArgumentError } from '../../core/errors.js';
import type { Tensor } from '../../core/tensor.js';
import { memberOf } from './new-group.js';
import {
  type AsyncOption,
  type CollectiveOptions,
  checkAlike,
  checkList,
  checkWritable,
  collectiveOptions,
  dense,
  denseOutput,
  equalCounts,
  joined,
  perform,
  placeOf,
  spread,
  type WorkIf,
} from './operands.js';
import type { ProcessGroup } from './process-group.js';

// For errors about sizes, which name the total over all ranks although no rank gave that number.
const aboutGather = remembered(
  (count) =>
    `(${count} of them its own)\nAll ranks give gather as much: allGather takes different ` +
    'sizes, and so do isend and irecv, in a batch of batchIsendIrecv.',
);
const aboutScatter = remembered(
  (count) =>
    `(${count} for each rank)\nAll ranks get as much from scatter: allToAll takes different ` +
    'sizes, and so do isend and irecv, in a batch of batchIsendIrecv.',
);

/** Options of {@link gather}. */
export interface GatherOptions extends CollectiveOptions {
  /** Where the values go; on rank `dst` only. */
  gatherList?: readonly Tensor[];
  /** A rank of the world; 0 by default. */
  dst?: number;
}

/**
 * Copies the tensors of all ranks to rank `dst`, which gets that of rank `r` in `gatherList[r]`.
 *
 * @returns a {@link Work} if `asyncOp` is true
 * @throws ArgumentError for a list on another rank than `dst`, or without one on `dst`
 * @see PyTorch `torch.distributed.gather`
 */
export function gather<A extends boolean = false>(
  tensor: Tensor,
  options: GatherOptions & AsyncOption<A> = {},
): WorkIf<A> {
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
  const counts = equalCounts(input.numel() * group.size, group.size);
  const whole = list === null ? null : input.newEmpty([input.numel() * group.size]);
  const after = whole === null ? undefined : () => spread(whole, list as readonly Tensor[]);
  const call: CollectiveCall = {
    kind: 'gather',
    input,
    output: whole,
    root,
    counts,
    about: aboutGather(input.numel()),
  };
  return perform('gather', callSite(gather), group, call, options, list ?? [], after);
}

/** Options of {@link scatter}. */
export interface ScatterOptions extends CollectiveOptions {
  /** What the ranks get; on rank `src` only. */
  scatterList?: readonly Tensor[];
  /** A rank of the world; 0 by default. */
  src?: number;
}

/**
 * Sends `scatterList[r]` of rank `src` to rank `r`, which gets it in `tensor`.
 *
 * @returns a {@link Work} if `asyncOp` is true
 * @throws ArgumentError for a list on another rank than `src`, or without one on `src`
 * @see PyTorch `torch.distributed.scatter`
 */
export function scatter<A extends boolean = false>(
  tensor: Tensor,
  options: ScatterOptions & AsyncOption<A> = {},
): WorkIf<A> {
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
  const counts = equalCounts(memory.numel() * group.size, group.size);
  const call: CollectiveCall = {
    kind: 'scatter',
    input,
    output: memory,
    root,
    counts,
    about: aboutScatter(memory.numel()),
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
      `${name}: ${what} belongs to the root only, rank ${group.ranks[root]}; this is rank ` +
        `${group.ranks[group.rank]}`,
      { op: name },
    );
  return null;
}
