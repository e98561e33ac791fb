// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent, absentNamespace } from '../absent.js';

const a0 = 'is not there yet: use optim.AdamW, optim.Adam, optim.SGD, or extend optim.Optimizer';
const a1 = 'is not there yet: average.lerp_(parameter, 0.01) under noGrad averages';

/** Not there. @deprecated @hidden */
export const Adadelta = absent('optim.Adadelta', a0);
/** Not there. @deprecated @hidden */
export const Adafactor = absent('optim.Adafactor', a0);
/** Not there. @deprecated @hidden */
export const Adagrad = absent('optim.Adagrad', a0);
/** Not there. @deprecated @hidden */
export const Adamax = absent('optim.Adamax', a0);
/** Not there. @deprecated @hidden */
export const ASGD = absent('optim.ASGD', a0);
/** Not there. @deprecated @hidden */
export const LBFGS = absent('optim.LBFGS', a0);
/** Not there. @deprecated @hidden */
export const Muon = absent('optim.Muon', a0);
/** Not there. @deprecated @hidden */
export const NAdam = absent('optim.NAdam', a0);
/** Not there. @deprecated @hidden */
export const RAdam = absent('optim.RAdam', a0);
/** Not there. @deprecated @hidden */
export const RMSprop = absent('optim.RMSprop', a0);
/** Not there. @deprecated @hidden */
export const Rprop = absent('optim.Rprop', a0);
/** Not there. @deprecated @hidden */
export const SparseAdam = absent('optim.SparseAdam', a0);
/** Not there. @deprecated @hidden */
export const swaUtils = absentNamespace('optim.swaUtils', a1);
