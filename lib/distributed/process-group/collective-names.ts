/**
 * What collectives are called by: the functions of programs that make one, and so what faults,
 * traces and errors name.
 */

/** @internal */
export const collectiveNames = [
  'allReduce',
  'reduce',
  'broadcast',
  'allGather',
  'allGatherIntoTensor',
  'gather',
  'scatter',
  'reduceScatter',
  'reduceScatterTensor',
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
