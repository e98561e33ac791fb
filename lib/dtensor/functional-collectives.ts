/**
 * Collectives that return new tensors and have gradients. Results are AsyncCollectiveTensors, which need no wait: what reads them is in order
 * behind the collective, on the device.
 *
 * @see PyTorch `torch.distributed._functional_collectives`
 */
import { ShapeError } from '../core/errors.js';
import { checkOneOf, shown } from '../core/options.js';
import { type ReduceOpName, reduceOpNames } from '../core/placement.js';
import { formatShape, wrapDim } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { placeOf } from '../mesh/collective-operands.js';
import { DeviceMesh } from '../mesh/device-mesh.js';
import { memberOf } from '../mesh/groups.js';
import type { ProcessGroup } from '../mesh/process-group.js';
import { allGatherRows, allReduceTensor, allToAllRows, broadcastTensor, reduceScatterRows } from '../ops/collectives.js';
import { asynchronous, waitTensor } from './async-collective-tensor.js';
import { alongRows } from './redistribute-local.js';

/** The ranks that take part: a group, or a mesh of one dimension; all of them if left out. */
export type CollectiveRanks = ProcessGroup | DeviceMesh;

function groupOf(op: string, ranks: CollectiveRanks | undefined): ProcessGroup {
  return memberOf(op, ranks instanceof DeviceMesh ? ranks.getGroup() : ranks);
}

const equal = (rows: number, ranks: number): number[] => Array.from({ length: ranks }, () => rows);

/** The reduction of the inputs of all ranks. Shapes: any, the same on all ranks. Gradient: of `'sum'` and `'avg'`. */
function allReduce(input: Tensor, reduceOp: ReduceOpName, group?: CollectiveRanks): Tensor {
  checkOneOf('functional.allReduce', 'reduceOp', reduceOp, reduceOpNames);
  return asynchronous(allReduceTensor(input, reduceOp, groupOf('functional.allReduce', group)));
}

/** The inputs of all ranks, which have one shape, one behind the other along `gatherDim`. Gradient: the sum of all ranks' for this part. */
function allGatherTensor(input: Tensor, gatherDim: number, group?: CollectiveRanks): Tensor {
  const ranks = groupOf('functional.allGatherTensor', group);
  const dim = wrapDim(gatherDim, input.dim(), 'functional.allGatherTensor');
  return asynchronous(alongRows(input, dim, (rows) => allGatherRows(rows, equal(rows.size(0), ranks.size), ranks)));
}

/** This rank's part, of equal ones along `scatterDim`, of the reduction of all inputs. @throws ShapeError for a size that does not divide */
function reduceScatterTensor(input: Tensor, reduceOp: ReduceOpName, scatterDim: number, group?: CollectiveRanks): Tensor {
  const op = 'functional.reduceScatterTensor';
  checkOneOf(op, 'reduceOp', reduceOp, reduceOpNames);
  const ranks = groupOf(op, group);
  const dim = wrapDim(scatterDim, input.dim(), op);
  const size = input.size(dim);
  if (size % ranks.size !== 0)
    throw new ShapeError(`${op}: ${size} of ${formatShape(input.shape)} along dim ${dim} cannot be cut into ${ranks.size} equal parts`, { op, shape: input.shape });
  return asynchronous(alongRows(input, dim, (rows) => reduceScatterRows(rows, reduceOp, equal(size / ranks.size, ranks.size), ranks)));
}

/** Gives each rank the next of this one's rows, and has what comes, in the order of ranks; in equal parts where sizes are null. */
function allToAllSingle(input: Tensor, outputSplitSizes: readonly number[] | null, inputSplitSizes: readonly number[] | null, group?: CollectiveRanks): Tensor {
  const op = 'functional.allToAllSingle';
  const ranks = groupOf(op, group);
  const rows = input.size(0);
  if ((inputSplitSizes === null || outputSplitSizes === null) && rows % ranks.size !== 0) {
    throw new ShapeError(`${op}: ${rows} rows cannot be cut into ${ranks.size} equal parts. Give the sizes, not ${shown(inputSplitSizes)} and ${shown(outputSplitSizes)}.`, {
      op,
      shape: input.shape,
    });
  }
  const even = equal(rows / ranks.size, ranks.size);
  return asynchronous(allToAllRows(input, inputSplitSizes ?? even, outputSplitSizes ?? even, ranks));
}

/** The input of rank `src` of the world, on every rank. */
function broadcast(input: Tensor, src: number, group?: CollectiveRanks): Tensor {
  const ranks = groupOf('functional.broadcast', group);
  return asynchronous(broadcastTensor(input, placeOf('functional.broadcast', 'src', src, ranks), ranks));
}

/** Collectives that return new tensors, by PyTorch's names. */
export const functional = Object.freeze({ allReduce, allGatherTensor, reduceScatterTensor, allToAllSingle, broadcast, waitTensor });
