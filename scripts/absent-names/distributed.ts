/** Absent names of `shardwise/distributed`. */
import type { AbsentPlace } from './groups.js';

export const distributed: AbsentPlace = {
  file: 'distributed',
  prefix: 'distributed.',
  groups: [
    { names: 'spawn', advice: 'is not there: use launch(worldSize, fn)' },
    {
      names: 'DistributedSampler',
      advice: "is not there: import it from 'shardwise/data'",
    },
    {
      names: 'ProcessGroupNCCL ProcessGroupGloo',
      advice: "is not there: use newGroup(ranks, { backend: 'gloo' })",
    },
    { names: 'Backend', advice: "is not there: backends are names, as 'nccl' or 'gloo'" },
    { names: 'group GroupMember', advice: 'is not there: use worldGroup() or newGroup(ranks)' },
    {
      names: 'newSubgroups newSubgroupsByEnumeration splitGroup',
      advice: 'is not there yet: use newGroup(ranks), or initDeviceMesh(device, shape)',
    },
    { names: 'sendObjectList recvObjectList', advice: 'is not there yet: use allGatherObject' },
    { names: 'monitoredBarrier', advice: 'is not there: barrier names the ranks that are missing' },
    { names: 'allReduceCoalesced', advice: 'is not there yet: call allReduce for each tensor' },
    {
      names: 'allGatherCoalesced',
      advice: 'is not there: use allGatherIntoTensorCoalesced',
    },
    { names: 'abortProcessGroup', advice: 'is not there: use destroyProcessGroup' },
    {
      names: 'ZeroRedundancyOptimizer',
      advice: 'is not there: fullyShard(module) shards the optimizer, too',
    },
    {
      names: 'Join Joinable',
      advice: 'is not there: give all ranks the same number of batches',
    },
    {
      names: 'PipelineStage ScheduleGPipe Schedule1F1B SplitPoint pipeline',
      advice: 'is not there yet: use fullyShard or parallelizeModule',
    },
    { names: 'contextParallel', advice: 'is not there yet: use SequenceParallel' },
    {
      names: `getModelStateDict getOptimizerStateDict getStateDict setModelStateDict setStateDict
        StateDictType FullStateDictConfig`,
      advice: 'is not there: use stateDict(), or distributedCheckpoint.save and load',
    },
    {
      names: 'rpc elastic',
      advice: 'is not there: programs of several ranks use collectives',
      isNamespace: true,
    },
  ],
};
