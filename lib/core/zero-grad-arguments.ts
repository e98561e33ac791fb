/** The arguments of `zeroGrad` of modules and optimizers. */
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
