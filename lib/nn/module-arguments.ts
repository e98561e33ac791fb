/** What methods of modules take by position or by name. */
import { checkFlag } from '../core/options.js';
import { defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';

/** @internal */
export const bufferArguments = defineArguments(
  'registerBuffer(name, tensor, persistent)',
  (name: string, tensor: Tensor | null, persistent = true) => {
    checkFlag('registerBuffer', 'persistent', persistent);
    return { name, tensor, persistent };
  },
);

/** What follows the state. @internal */
export const strictArguments = defineArguments(
  'loadStateDict(strict)',
  (strict = true): boolean => {
    checkFlag('loadStateDict', 'strict', strict);
    return strict;
  },
);
