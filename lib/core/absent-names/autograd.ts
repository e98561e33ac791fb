// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent, absentNamespace } from '../absent.js';

const a0 = 'is not there: use autograd.setDetectAnomaly(true)';
const a1 = "is not there: import it from 'shardwise'";
const a2 = 'is not there: tensors record gradients by x.requiresGrad_()';
const a3 = 'is not there yet: autograd.grad(y, x, { createGraph: true }) differentiates twice';

/** Not there. @deprecated @hidden */
export const detectAnomaly = absent('autograd.detectAnomaly', a0);
/** Not there. @deprecated @hidden */
export const noGrad = absent('autograd.noGrad', a1);
/** Not there. @deprecated @hidden */
export const enableGrad = absent('autograd.enableGrad', a1);
/** Not there. @deprecated @hidden */
export const setGradEnabled = absent('autograd.setGradEnabled', a1);
/** Not there. @deprecated @hidden */
export const inferenceMode = absent('autograd.inferenceMode', a1);
/** Not there. @deprecated @hidden */
export const Variable = absent('autograd.Variable', a2);
/** Not there. @deprecated @hidden */
export const functional = absentNamespace('autograd.functional', a3);
/** Not there. @deprecated @hidden */
export const forwardAd = absentNamespace('autograd.forwardAd', a3);
