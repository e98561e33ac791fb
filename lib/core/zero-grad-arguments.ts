/** What `zeroGrad` of modules and of optimizers takes by position or by name. */
import { checkFlag } from './options.js';
import { defineArguments } from './signature.js';

/** @internal */
export const zeroGradArguments = defineArguments(
  'zeroGrad(setToNone)',
  (setToNone = true): boolean => {
    checkFlag('zeroGrad', 'setToNone', setToNone);
    return setToNone;
  },
);
