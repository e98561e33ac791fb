// Written by `npm run generate` from scripts/absent-names. Do not edit.
import { absent } from '../absent.js';

const a0 = 'is not there: its name ends with an underscore, as nn.init.normal_';
const a1 = 'is not there yet: compute the values, and copy_ them';

/** Not there. @deprecated @hidden */
export const uniform = absent('nn.init.uniform', a0);
/** Not there. @deprecated @hidden */
export const normal = absent('nn.init.normal', a0);
/** Not there. @deprecated @hidden */
export const constant = absent('nn.init.constant', a0);
/** Not there. @deprecated @hidden */
export const eye = absent('nn.init.eye', a0);
/** Not there. @deprecated @hidden */
export const orthogonal = absent('nn.init.orthogonal', a0);
/** Not there. @deprecated @hidden */
export const xavierUniform = absent('nn.init.xavierUniform', a0);
/** Not there. @deprecated @hidden */
export const xavierNormal = absent('nn.init.xavierNormal', a0);
/** Not there. @deprecated @hidden */
export const kaimingUniform = absent('nn.init.kaimingUniform', a0);
/** Not there. @deprecated @hidden */
export const kaimingNormal = absent('nn.init.kaimingNormal', a0);
/** Not there. @deprecated @hidden */
export const dirac_ = absent('nn.init.dirac_', a1);
/** Not there. @deprecated @hidden */
export const sparse_ = absent('nn.init.sparse_', a1);
