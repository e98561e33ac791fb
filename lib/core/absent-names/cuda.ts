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

/** @deprecated Not there. @hidden */
export const setDevice = absent('cuda.setDevice', a0);
/** @deprecated Not there. @hidden */
export const device = absent('cuda.device', a0);
/** @deprecated Not there. @hidden */
export const currentDevice = absent('cuda.currentDevice', a0);
/** @deprecated Not there. @hidden */
export const getDeviceName = absent('cuda.getDeviceName', a1);
/** @deprecated Not there. @hidden */
export const getDeviceCapability = absent('cuda.getDeviceCapability', a1);
/** @deprecated Not there. @hidden */
export const isBf16Supported = absent('cuda.isBf16Supported', a1);
/** @deprecated Not there. @hidden */
export const memGetInfo = absent('cuda.memGetInfo', a1);
/** @deprecated Not there. @hidden */
export const memorySummary = absent('cuda.memorySummary', a2);
/** @deprecated Not there. @hidden */
export const manualSeed = absent('cuda.manualSeed', a3);
/** @deprecated Not there. @hidden */
export const manualSeedAll = absent('cuda.manualSeedAll', a3);
/** @deprecated Not there. @hidden */
export const seed = absent('cuda.seed', a3);
/** @deprecated Not there. @hidden */
export const getRngState = absent('cuda.getRngState', a3);
/** @deprecated Not there. @hidden */
export const setRngState = absent('cuda.setRngState', a3);
/** @deprecated Not there. @hidden */
export const getRngStateAll = absent('cuda.getRngStateAll', a3);
/** @deprecated Not there. @hidden */
export const currentStream = absent('cuda.currentStream', a4);
/** @deprecated Not there. @hidden */
export const defaultStream = absent('cuda.defaultStream', a4);
/** @deprecated Not there. @hidden */
export const CUDAGraph = absent('cuda.CUDAGraph', a5);
/** @deprecated Not there. @hidden */
export const graph = absent('cuda.graph', a5);
/** @deprecated Not there. @hidden */
export const makeGraphedCallables = absent('cuda.makeGraphedCallables', a5);
/** @deprecated Not there. @hidden */
export const amp = absentNamespace('cuda.amp', a6);
/** @deprecated Not there. @hidden */
export const ipcCollect = absent('cuda.ipcCollect', a7);
/** @deprecated Not there. @hidden */
export const setPerProcessMemoryFraction = absent('cuda.setPerProcessMemoryFraction', a7);
