// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent, absentNamespace } from '../absent.js';

const a0 = 'is not there: use launch(worldSize, fn)';
const a1 = "is not there: import it from 'shardwise/data'";
const a2 = "is not there: use newGroup(ranks, { backend: 'gloo' })";
const a3 = "is not there: backends are names, as 'nccl' or 'gloo'";
const a4 = 'is not there: use worldGroup() or newGroup(ranks)';
const a5 = 'is not there yet: use newGroup(ranks), or initDeviceMesh(device, shape)';
const a6 = 'is not there yet: use allGatherObject';
const a7 = 'is not there: barrier names the ranks that are missing';
const a8 = 'is not there yet: call allReduce for each tensor';
const a9 = 'is not there: use allGatherIntoTensorCoalesced';
const a10 = 'is not there: use destroyProcessGroup';
const a11 = 'is not there: fullyShard(module) shards the optimizer, too';
const a12 = 'is not there: give all ranks the same number of batches';
const a13 = 'is not there yet: use fullyShard or parallelizeModule';
const a14 = 'is not there yet: use SequenceParallel';
const a15 = 'is not there: use stateDict(), or distributedCheckpoint.save and load';
const a16 = 'is not there: programs of several ranks use collectives';

/** Not there. @deprecated @hidden */
export const spawn = absent('distributed.spawn', a0);
/** Not there. @deprecated @hidden */
export const DistributedSampler = absent('distributed.DistributedSampler', a1);
/** Not there. @deprecated @hidden */
export const ProcessGroupNCCL = absent('distributed.ProcessGroupNCCL', a2);
/** Not there. @deprecated @hidden */
export const ProcessGroupGloo = absent('distributed.ProcessGroupGloo', a2);
/** Not there. @deprecated @hidden */
export const Backend = absent('distributed.Backend', a3);
/** Not there. @deprecated @hidden */
export const group = absent('distributed.group', a4);
/** Not there. @deprecated @hidden */
export const GroupMember = absent('distributed.GroupMember', a4);
/** Not there. @deprecated @hidden */
export const newSubgroups = absent('distributed.newSubgroups', a5);
/** Not there. @deprecated @hidden */
export const newSubgroupsByEnumeration = absent('distributed.newSubgroupsByEnumeration', a5);
/** Not there. @deprecated @hidden */
export const splitGroup = absent('distributed.splitGroup', a5);
/** Not there. @deprecated @hidden */
export const sendObjectList = absent('distributed.sendObjectList', a6);
/** Not there. @deprecated @hidden */
export const recvObjectList = absent('distributed.recvObjectList', a6);
/** Not there. @deprecated @hidden */
export const monitoredBarrier = absent('distributed.monitoredBarrier', a7);
/** Not there. @deprecated @hidden */
export const allReduceCoalesced = absent('distributed.allReduceCoalesced', a8);
/** Not there. @deprecated @hidden */
export const allGatherCoalesced = absent('distributed.allGatherCoalesced', a9);
/** Not there. @deprecated @hidden */
export const abortProcessGroup = absent('distributed.abortProcessGroup', a10);
/** Not there. @deprecated @hidden */
export const ZeroRedundancyOptimizer = absent('distributed.ZeroRedundancyOptimizer', a11);
/** Not there. @deprecated @hidden */
export const Join = absent('distributed.Join', a12);
/** Not there. @deprecated @hidden */
export const Joinable = absent('distributed.Joinable', a12);
/** Not there. @deprecated @hidden */
export const PipelineStage = absent('distributed.PipelineStage', a13);
/** Not there. @deprecated @hidden */
export const ScheduleGPipe = absent('distributed.ScheduleGPipe', a13);
/** Not there. @deprecated @hidden */
export const Schedule1F1B = absent('distributed.Schedule1F1B', a13);
/** Not there. @deprecated @hidden */
export const SplitPoint = absent('distributed.SplitPoint', a13);
/** Not there. @deprecated @hidden */
export const pipeline = absent('distributed.pipeline', a13);
/** Not there. @deprecated @hidden */
export const contextParallel = absent('distributed.contextParallel', a14);
/** Not there. @deprecated @hidden */
export const getModelStateDict = absent('distributed.getModelStateDict', a15);
/** Not there. @deprecated @hidden */
export const getOptimizerStateDict = absent('distributed.getOptimizerStateDict', a15);
/** Not there. @deprecated @hidden */
export const getStateDict = absent('distributed.getStateDict', a15);
/** Not there. @deprecated @hidden */
export const setModelStateDict = absent('distributed.setModelStateDict', a15);
/** Not there. @deprecated @hidden */
export const setStateDict = absent('distributed.setStateDict', a15);
/** Not there. @deprecated @hidden */
export const StateDictType = absent('distributed.StateDictType', a15);
/** Not there. @deprecated @hidden */
export const FullStateDictConfig = absent('distributed.FullStateDictConfig', a15);
/** Not there. @deprecated @hidden */
export const rpc = absentNamespace('distributed.rpc', a16);
/** Not there. @deprecated @hidden */
export const elastic = absentNamespace('distributed.elastic', a16);
