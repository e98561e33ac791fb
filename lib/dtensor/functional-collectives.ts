/**
 * Collectives that return new tensors and have gradients. Results are AsyncCollectiveTensors, which
 * need no wait: what reads them is in order behind the collective, on the device.
 *
 * @see PyTorch `torch.distributed._functional_collectives`
 */
import { ShapeError } from '../core/errors.js';
import { checkIntegers, checkOneOf, optionsOf, shown } from '../core/options.js';
import { type ReduceOpName, reduceOpNames } from '../core/placement.js';
import { formatShape, wrapDim } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { DeviceMesh } from '../distributed/device-mesh/device-mesh.js';
import { memberOf } from '../distributed/process-group/new-group.js';
import { placeOf } from '../distributed/process-group/operands.js';
import type { ProcessGroup } from '../distributed/process-group/process-group.js';
import {
  allGatherRows,
  allReduceTensor,
  allToAllRows,
  broadcastTensor,
  reduceScatterRows,
} from '../ops/collectives.js';
import { asynchronous, waitTensor } from './async-collective-tensor.js';
import { alongRows } from './redistribute/run.js';

/** The ranks that take part: a group, or a mesh of one dimension; all of them if left out. */
export type CollectiveRanks = ProcessGroup | DeviceMesh;

function groupOf(op: string, ranks: CollectiveRanks | undefined): ProcessGroup {
  return memberOf(op, ranks instanceof DeviceMesh ? ranks.getGroup() : ranks);
}

const equal = (rows: number, ranks: number): number[] => Array.from({ length: ranks }, () => rows);

/**
 * The reduction of the inputs of all ranks. Shapes: any, the same on all ranks. Gradient: of
 * `'sum'` and `'avg'`.
 */
function allReduce(input: Tensor, reduceOp: ReduceOpName, group?: CollectiveRanks): Tensor {
  checkOneOf('functional.allReduce', 'reduceOp', reduceOp, reduceOpNames);
  return asynchronous(allReduceTensor(input, reduceOp, groupOf('functional.allReduce', group)));
}

/** Options of {@link functional | functional.allGatherTensor}. */
export interface GatherTensorOptions {
  /**
   * Of each rank, in the order of the group: how long its input is along the gathered dim, which
   * may be 0. All as long as this one's if left out.
   */
  sizes?: readonly number[];
}

/**
 * The inputs of all ranks one behind the other along `gatherDim`. Shapes: the same on all ranks,
 * but along `gatherDim` where `sizes` says so: no rank asks the others, so that the call waits for
 * nobody. Any dtype. Gradient: the sum of all ranks' for this part.
 *
 * @throws ArgumentError, DistributedError, IndexError; ShapeError for sizes that are not one for
 * each rank, or not this rank's own. What ranks give
 *   differently is a CollectiveError when the value is read
 * @see PyTorch `torch.distributed._functional_collectives.all_gather_tensor`, which takes equal
 * parts only
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
  return asynchronous(alongRows(input, dim, (rows) => allGatherRows(rows, sizes, ranks)));
}

/** A list of their own, which backward reads later. */
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
      `${op}: expected sizes to be ${size} sizes, one for each rank of group "${name}", got ${shown(sizes)}`,
      { op, given: sizes, ranks: size },
    );
  if (sizes[place] === input.size(dim)) return [...sizes];
  const message = `${op}: expected the input to have size ${sizes[place]} along dim ${dim}, which is sizes[${place}], got shape ${formatShape(input.shape)}`;
  throw new ShapeError(message, { op, shape: input.shape, expected: sizes[place] });
}

/**
 * This rank's part, of equal ones along `scatterDim`, of the reduction of all inputs. @throws
 * ShapeError for a size that does not divide
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
      `${op}: expected a size along dim ${dim} that ${ranks.size} ranks divide, got ${size} of ${formatShape(input.shape)}`,
      { op, shape: input.shape },
    );
  return asynchronous(
    alongRows(input, dim, (rows) =>
      reduceScatterRows(rows, reduceOp, equal(size / ranks.size, ranks.size), ranks),
    ),
  );
}

/**
 * Gives each rank the next of this one's rows, and has what comes, in the order of ranks; in equal
 * parts where sizes are null.
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
      `${op}: expected a number of rows that ${ranks.size} ranks divide, got ${rows}. Pass both lists of split sizes, not ${shown(inputSplitSizes)} and ${shown(outputSplitSizes)}.`,
      {
        op,
        shape: input.shape,
      },
    );
  }
  const even = equal(rows / ranks.size, ranks.size);
  return asynchronous(
    allToAllRows(input, inputSplitSizes ?? even, outputSplitSizes ?? even, ranks),
  );
}

/**
 * The input of rank `src` of the world, on every rank. Gradient: there the sum of all ranks'
 * gradients, 0 elsewhere.
 */
function broadcast(input: Tensor, src: number, group?: CollectiveRanks): Tensor {
  const ranks = groupOf('functional.broadcast', group);
  return asynchronous(
    broadcastTensor(input, placeOf('functional.broadcast', 'src', src, ranks), ranks),
  );
}

/** Collectives that return new tensors, by PyTorch's names. */
export const functional = Object.freeze({
  allReduce,
  allGatherTensor,
  reduceScatterTensor,
  allToAllSingle,
  broadcast,
  waitTensor,
});
