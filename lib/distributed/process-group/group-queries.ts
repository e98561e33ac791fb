/** What a group is: which ranks of the world are at its places, and what moves its tensors. */
import { checkNumber } from '../../core/options.js';
import type { BackendText } from '../engines/engine.js';
import { backendText } from '../engines/select.js';
import { checkGroup, memberOf } from './new-group.js';
import { placeOf } from './operands.js';
import type { ProcessGroup } from './process-group.js';
import { contextOf } from './rank-context.js';

/**
 * What moves the tensors of a group, the world's without one: `'shm'`, or `'cpu:shm,cuda:nccl'`
 * where devices differ in it. It is what the program has named, else what was chosen: for ranks of
 * one machine `'shm'`, also in a world that spans several; asking may then open the CUDA driver.
 *
 * @throws ArgumentError for what is no group, DistributedError without a process group, for a group
 * that has ended, and for a rank that is no member
 * @see PyTorch `torch.distributed.get_backend`, which says `'undefined'` where the program has
 * named none
 */
export function getBackend(group?: ProcessGroup): BackendText {
  return backendText(memberOf('getBackend', group).backends());
}

/**
 * The rank of the world at a place of the group. Ranks that are no members may ask, too.
 *
 * @param groupRank - a place in the group, as `getRank(group)` gives it
 * @throws ArgumentError for what is no group, and for a place that it has not; DistributedError
 * without a process group
 * @see PyTorch `torch.distributed.get_global_rank`
 */
export function getGlobalRank(group: ProcessGroup, groupRank: number): number {
  const { ranks } = groupOf('getGlobalRank', group);
  checkNumber('getGlobalRank', 'groupRank', groupRank, {
    from: 0,
    to: ranks.length - 1,
    whole: true,
  });
  return ranks[groupRank] as number;
}

/**
 * The place in the group of a rank of the world. Ranks that are no members may ask, too.
 *
 * @param globalRank - a rank of the world
 * @throws ArgumentError for what is no group, and for a rank that is not in it; DistributedError
 * without a process group
 * @see PyTorch `torch.distributed.get_group_rank`
 */
export function getGroupRank(group: ProcessGroup, globalRank: number): number {
  return placeOf('getGroupRank', 'globalRank', globalRank, groupOf('getGroupRank', group));
}

/**
 * The ranks of the world that a group has, in its order, the world's without one: a list of the
 * caller's own.
 *
 * @throws ArgumentError for what is no group, DistributedError without a process group
 * @see PyTorch `torch.distributed.get_process_group_ranks`
 */
export function getProcessGroupRanks(group?: ProcessGroup): number[] {
  return [
    ...(group === undefined
      ? contextOf('getProcessGroupRanks').world
      : groupOf('getProcessGroupRanks', group)
    ).ranks,
  ];
}

function groupOf(op: string, group: ProcessGroup): ProcessGroup {
  contextOf(op);
  return checkGroup(op, group);
}
