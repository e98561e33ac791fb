// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent, absentNamespace } from '../absent.js';

const a0 = "is not there: use withDevice('cuda:1', fn), setDefaultDevice or getDefaultDevice";
const a1 = 'is not there: use cuda.getDeviceProperties()';
const a2 = 'is not there: use cuda.memoryStats() or memory.stats()';
const a3 = "is not there: one generator serves all devices; import it from 'shardwise'";
const a4 = 'is not there: use cuda.stream(stream, fn)';
const a5 = 'is not there: use compile, which makes one submission of a function';
const a6 = "is not there: import amp from 'shardwise'";
const a7 = 'is not there: use cuda.emptyCache';

/** Not there. @deprecated @hidden */
export const setDevice = absent('cuda.setDevice', a0);
/** Not there. @deprecated @hidden */
export const device = absent('cuda.device', a0);
/** Not there. @deprecated @hidden */
export const currentDevice = absent('cuda.currentDevice', a0);
/** Not there. @deprecated @hidden */
export const getDeviceName = absent('cuda.getDeviceName', a1);
/** Not there. @deprecated @hidden */
export const getDeviceCapability = absent('cuda.getDeviceCapability', a1);
/** Not there. @deprecated @hidden */
export const isBf16Supported = absent('cuda.isBf16Supported', a1);
/** Not there. @deprecated @hidden */
export const memGetInfo = absent('cuda.memGetInfo', a1);
/** Not there. @deprecated @hidden */
export const memorySummary = absent('cuda.memorySummary', a2);
/** Not there. @deprecated @hidden */
export const manualSeed = absent('cuda.manualSeed', a3);
/** Not there. @deprecated @hidden */
export const manualSeedAll = absent('cuda.manualSeedAll', a3);
/** Not there. @deprecated @hidden */
export const seed = absent('cuda.seed', a3);
/** Not there. @deprecated @hidden */
export const getRngState = absent('cuda.getRngState', a3);
/** Not there. @deprecated @hidden */
export const setRngState = absent('cuda.setRngState', a3);
/** Not there. @deprecated @hidden */
export const getRngStateAll = absent('cuda.getRngStateAll', a3);
/** Not there. @deprecated @hidden */
export const currentStream = absent('cuda.currentStream', a4);
/** Not there. @deprecated @hidden */
export const defaultStream = absent('cuda.defaultStream', a4);
/** Not there. @deprecated @hidden */
export const CUDAGraph = absent('cuda.CUDAGraph', a5);
/** Not there. @deprecated @hidden */
export const graph = absent('cuda.graph', a5);
/** Not there. @deprecated @hidden */
export const makeGraphedCallables = absent('cuda.makeGraphedCallables', a5);
/** Not there. @deprecated @hidden */
export const amp = absentNamespace('cuda.amp', a6);
/** Not there. @deprecated @hidden */
export const ipcCollect = absent('cuda.ipcCollect', a7);
/** Not there. @deprecated @hidden */
export const setPerProcessMemoryFraction = absent('cuda.setPerProcessMemoryFraction', a7);
