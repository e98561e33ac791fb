// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent, absentNamespace } from '../absent.js';

const a0 = 'is not there: use nn.utils.clipGradNorm_';
const a1 = 'is not there yet: use nn.utils.clipGradNorm_, which computes the norm, too';
const a2 = 'is not there yet: compute the weight in forward, and give it to linear';
const a3 = "is not there: use withDevice('meta', fn), then toEmpty(device)";

/** Not there. @deprecated @hidden */
export const clipGradNorm = absent('nn.utils.clipGradNorm', a0);
/** Not there. @deprecated @hidden */
export const clipGradsWithNorm_ = absent('nn.utils.clipGradsWithNorm_', a1);
/** Not there. @deprecated @hidden */
export const weightNorm = absent('nn.utils.weightNorm', a2);
/** Not there. @deprecated @hidden */
export const removeWeightNorm = absent('nn.utils.removeWeightNorm', a2);
/** Not there. @deprecated @hidden */
export const spectralNorm = absent('nn.utils.spectralNorm', a2);
/** Not there. @deprecated @hidden */
export const removeSpectralNorm = absent('nn.utils.removeSpectralNorm', a2);
/** Not there. @deprecated @hidden */
export const parametrize = absentNamespace('nn.utils.parametrize', a2);
/** Not there. @deprecated @hidden */
export const parametrizations = absentNamespace('nn.utils.parametrizations', a2);
/** Not there. @deprecated @hidden */
export const prune = absentNamespace('nn.utils.prune', a2);
/** Not there. @deprecated @hidden */
export const stateless = absentNamespace('nn.utils.stateless', a2);
/** Not there. @deprecated @hidden */
export const skipInit = absent('nn.utils.skipInit', a3);
