/**
 * Collectives that return new tensors and have gradients. The results are AsyncCollectiveTensors,
 * which need no wait: ops that read them run after the collective, in stream order.
 *
 * @see PyTorch `torch.distributed._functional_collectives`
 */
import { asynchronous } from '../core/asynchronous.js';
import { ShapeError } from '../core/errors.js';
import { checkIntegers, checkOneOf, optionsOf, shown } from '../core/options.js';
import { type ReduceOpName, reduceOpNames } from '../core/placement.js';
import { formatShape, wrapDim } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { DeviceMesh } from '../distributed/device-mesh/create-mesh.js';
import { memberOf } from '../distributed/process-group/new-group.js';
import { placeOf } from '../distributed/process-group/operands.js';
import type { ProcessGroup } from '../distributed/process-group/process-group.js';
import { allReduceTensor, allToAllRows, broadcastTensor } from '../ops/collectives.js';
import { waitTensor } from './async-collective-tensor.js';
import { gatherAlong, reduceScatterAlong } from './redistribute/run.js';

/** The ranks that take part: a group, or a mesh of one dimension; all ranks if left out. */
export type CollectiveRanks = ProcessGroup | DeviceMesh;

function groupOf(op: string, ranks: CollectiveRanks | undefined): ProcessGroup {
  return memberOf(op, ranks instanceof DeviceMesh ? ranks.getGroup() : ranks);
}

const equal = (rows: number, ranks: number): number[] => Array.from({ length: ranks }, () => rows);

/**
 * The reduction of the inputs of all ranks. Shapes: any, equal on all ranks. Gradient: for `'sum'`
 * and `'avg'`.
 */
function allReduce(input: Tensor, reduceOp: ReduceOpName, group?: CollectiveRanks): Tensor {
  checkOneOf('functional.allReduce', 'reduceOp', reduceOp, reduceOpNames);
  return asynchronous(allReduceTensor(input, reduceOp, groupOf('functional.allReduce', group)));
}

/** Options of {@link functional | functional.allGatherTensor}. */
export interface GatherTensorOptions {
  /**
   * The size of each rank's input along the gathered dim, in the order of the group; 0 is possible.
   * By default all have the size of this rank's input.
   */
  sizes?: readonly number[];
}

/**
 * Concatenates the inputs of all ranks along `gatherDim`. Shapes: equal on all ranks, except along
 * `gatherDim` if `sizes` are given; ranks do not exchange sizes, so the call waits for no rank. Any
 * dtype. Gradient: the sum of the gradients of all ranks for this rank's input.
 *
 * @throws ArgumentError, DistributedError, IndexError; ShapeError unless `sizes` has one size for
 * each rank and this rank's own is right. A mismatch between ranks is a CollectiveError when the
 * value is read
 * @see PyTorch `torch.distributed._functional_collectives.all_gather_tensor`, which takes inputs of
 * equal size only
 */
function allGatherTensor(
  input: Tensor,
  gatherDim: number,
  group?: CollectiveRanks,
  options: GatherTensorOptions = {},
): Tensor {
  const op = 'functional.allGatherTensor';
  const { sizes: given } = optionsOf(op, options, 'sizes');
  const ranks = groupOf(op, group);
  const dim = wrapDim(gatherDim, input.dim(), op);
  const sizes =
    given === undefined
      ? equal(input.size(dim), ranks.size)
      : checkedSizes(op, given, input, dim, ranks);
  return asynchronous(gatherAlong(input, dim, sizes, ranks));
}

/** A copy of the sizes, because backward reads them later. */
function checkedSizes(
  op: string,
  sizes: readonly number[],
  input: Tensor,
  dim: number,
  { size, place, name }: ProcessGroup,
): readonly number[] {
  checkIntegers(op, 'sizes', sizes);
  if (sizes.length !== size || sizes.some((each) => each < 0))
    throw new ShapeError(
      `${op}: expected sizes to be ${size} sizes, one for each rank of group "${name}", got ` +
        `${shown(sizes)}`,
      { op, given: sizes, ranks: size },
    );
  if (sizes[place] === input.size(dim)) return [...sizes];
  const message =
    `${op}: expected the input to have size ${sizes[place]} along dim ${dim}, which is ` +
    `sizes[${place}], got shape ${formatShape(input.sizes)}`;
  throw new ShapeError(message, { op, shape: input.sizes, expected: sizes[place] });
}

/**
 * Reduces the inputs of all ranks and returns this rank's chunk, of equal ones along `scatterDim`.
 *
 * @throws ShapeError for a size that the ranks do not divide
 */
function reduceScatterTensor(
  input: Tensor,
  reduceOp: ReduceOpName,
  scatterDim: number,
  group?: CollectiveRanks,
): Tensor {
  const op = 'functional.reduceScatterTensor';
  checkOneOf(op, 'reduceOp', reduceOp, reduceOpNames);
  const ranks = groupOf(op, group);
  const dim = wrapDim(scatterDim, input.dim(), op);
  const size = input.size(dim);
  if (size % ranks.size !== 0)
    throw new ShapeError(
      `${op}: expected a size along dim ${dim} that ${ranks.size} ranks divide, got ${size} ` +
        `of ${formatShape(input.sizes)}`,
      { op, shape: input.sizes },
    );
  const sizes = equal(size / ranks.size, ranks.size);
  return asynchronous(reduceScatterAlong(input, reduceOp, dim, sizes, ranks));
}

/**
 * Sends consecutive rows of the input to each rank, and concatenates the received rows in rank
 * order. Chunks are equal where sizes are null.
 */
function allToAllSingle(
  input: Tensor,
  outputSplitSizes: readonly number[] | null,
  inputSplitSizes: readonly number[] | null,
  group?: CollectiveRanks,
): Tensor {
  const op = 'functional.allToAllSingle';
  const ranks = groupOf(op, group);
  const rows = input.size(0);
  if ((inputSplitSizes === null || outputSplitSizes === null) && rows % ranks.size !== 0) {
    throw new ShapeError(
      `${op}: expected a number of rows that ${ranks.size} ranks divide, got ${rows}. Pass ` +
        `both lists of split sizes, not ${shown(inputSplitSizes)} and ` +
        `${shown(outputSplitSizes)}.`,
      {
        op,
        shape: input.sizes,
      },
    );
  }
  const even = equal(rows / ranks.size, ranks.size);
  return asynchronous(
    allToAllRows(input, inputSplitSizes ?? even, outputSplitSizes ?? even, ranks),
  );
}

/**
 * The input of global rank `src`, on every rank. Gradient: on `src` the sum of the gradients of all
 * ranks, elsewhere 0.
 */
function broadcast(input: Tensor, src: number, group?: CollectiveRanks): Tensor {
  const ranks = groupOf('functional.broadcast', group);
  return asynchronous(
    broadcastTensor(input, placeOf('functional.broadcast', 'src', src, ranks), ranks),
  );
}

/** Collectives that return new tensors, with PyTorch's names. */
export const functional = Object.freeze({
  allReduce,
  allGatherTensor,
  reduceScatterTensor,
  allToAllSingle,
  broadcast,
  waitTensor,
});
