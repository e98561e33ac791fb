/** Moves waits for collectives to where their results are needed. */

import { sinkWaits } from '../compile/passes/collectives/sink-waits.js';
import { commFusionWithConcat } from './comm-fusion.js';
import { graphOptimizationPass, type PassTarget } from './pass-contract.js';

/**
 * Moves each wait, with the views of what it returns, to just before the first node that uses them,
 * so that nodes in between run while the ranks communicate.
 *
 * @see PyTorch `torch.distributed._spmd.graph_optimization.schedule_comm_wait`
 */
export const scheduleCommWait: (module: PassTarget) => void = graphOptimizationPass({
  prerequisites: [commFusionWithConcat],
})(function scheduleCommWait({ graph }: PassTarget): void {
  sinkWaits(graph);
});
