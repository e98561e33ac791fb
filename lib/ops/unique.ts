/**
 * The distinct values of a tensor: unique, uniqueConsecutive. Both block, because the size of the
 * result depends on values.
 */

import { int64 } from '../core/dtype.js';
import { checkFlag } from '../core/options.js';
import { defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { cat } from './join.js';
import { requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { bincountOf } from './search.js';

/** Options of {@link unique}: further results, and accepted ones. */
export interface UniqueOptions {
  /** Accepted and ignored: the values are always sorted. */
  sorted?: boolean;
  /** Also return the index of each element's value, in the shape of the input. */
  returnInverse?: boolean;
  /** Also return the count of each value. */
  returnCounts?: boolean;
}

/** Options of {@link uniqueConsecutive}: further results. */
export type UniqueConsecutiveOptions = Omit<UniqueOptions, 'sorted'>;
type WithBoth = UniqueOptions & { returnInverse: true; returnCounts: true };
type WithOne = UniqueOptions & ({ returnInverse: true } | { returnCounts: true });
/**
 * The forms of {@link unique}, with an input for the function and without for the method. The
 * options decide the number of results.
 */
interface Unique<Input extends unknown[]> {
  (...args: [...Input, options: WithBoth]): [Tensor, Tensor, Tensor];
  (...args: [...Input, options: WithOne]): [Tensor, Tensor];
  (
    ...args: [...Input, sorted: boolean, returnInverse: true, returnCounts: true]
  ): [Tensor, Tensor, Tensor];
  (
    ...args: [...Input, sorted: boolean, returnInverse: true, returnCounts?: false]
  ): [Tensor, Tensor];
  (...args: Input): Tensor;
  (
    ...args: [...Input, sorted?: boolean, returnInverse?: boolean, returnCounts?: boolean]
  ): Tensor | Tensor[];
  (...args: [...Input, options?: UniqueOptions]): Tensor | Tensor[];
}
/** The forms of {@link uniqueConsecutive}. */
interface UniqueConsecutive<Input extends unknown[]> {
  (
    ...args: [
      ...Input,
      options: UniqueConsecutiveOptions & { returnInverse: true; returnCounts: true },
    ]
  ): [Tensor, Tensor, Tensor];
  (
    ...args: [
      ...Input,
      options: UniqueConsecutiveOptions & ({ returnInverse: true } | { returnCounts: true }),
    ]
  ): [Tensor, Tensor];
  (...args: [...Input, returnInverse: true, returnCounts: true]): [Tensor, Tensor, Tensor];
  (...args: [...Input, returnInverse: true, returnCounts?: false]): [Tensor, Tensor];
  (...args: Input): Tensor;
  (...args: [...Input, returnInverse?: boolean, returnCounts?: boolean]): Tensor | Tensor[];
  (...args: [...Input, options?: UniqueConsecutiveOptions]): Tensor | Tensor[];
}

function checkFlags(op: string, flags: Record<string, boolean>): void {
  for (const [name, value] of Object.entries(flags)) checkFlag(op, name, value);
}

/**
 * The distinct values of a tensor in rising order, then (if requested) the index of each element's
 * value and the counts. No two NaNs are equal. Blocks.
 *
 * Shapes: any, flattened; `[k]`, the input's, `[k]`. Dtypes: all; values keep theirs, the others
 * are int64. Gradient: none.
 *
 * @throws ArgumentError for a value that is not a tensor
 * @see PyTorch `torch.unique`
 */
export const unique = defineComposite(
  'unique',
  defineFunction(
    'unique(input, /, sorted, returnInverse, returnCounts)',
    (
      input: Tensor,
      sorted = true,
      returnInverse = false,
      returnCounts = false,
    ): Tensor | Tensor[] => {
      requireTensor(input, 'unique');
      checkFlags('unique', { sorted, returnInverse, returnCounts });
      const { values, indices } = input.detach().reshape(-1).sort();
      const { heads, group } = runs(values);
      const inverse = reshapeIfNeeded(
        indices.newZeros(indices.sizes).scatter(0, indices, group),
        input.sizes,
      );
      return assemble(heads, returnInverse ? inverse : null, returnCounts ? group : null);
    },
  ) as unknown as Unique<[input: Tensor]>,
  {
    readsValues: true,
    samples: () => [
      [
        sampleTensor([7], { dtype: int64, low: 0, high: 4 }),
        { returnInverse: true, returnCounts: true },
      ],
    ],
  },
);

/**
 * The first value of each run of equal ones: as {@link unique} in results, shapes and dtypes,
 * without sorting. Blocks.
 *
 * @throws ArgumentError for a value that is not a tensor
 * @see PyTorch `torch.unique_consecutive`
 */
export const uniqueConsecutive = defineComposite(
  'uniqueConsecutive',
  defineFunction(
    'uniqueConsecutive(input, /, returnInverse, returnCounts)',
    (input: Tensor, returnInverse = false, returnCounts = false): Tensor | Tensor[] => {
      requireTensor(input, 'uniqueConsecutive');
      checkFlags('uniqueConsecutive', { returnInverse, returnCounts });
      const { heads, group } = runs(input.detach().reshape(-1));
      return assemble(
        heads,
        returnInverse ? reshapeIfNeeded(group, input.sizes) : null,
        returnCounts ? group : null,
      );
    },
  ) as unknown as UniqueConsecutive<[input: Tensor]>,
  {
    readsValues: true,
    samples: () => [[sampleTensor([7], { dtype: int64, low: 0, high: 3 })]],
  },
);

/** The first value of each run of equal ones, and the run of each element. */
function runs(values: Tensor): { heads: Tensor; group: Tensor } {
  if (values.numel() === 0)
    return { heads: values.clone(), group: values.newZeros([0], { dtype: int64 }) };
  const first = values.newOnes([1]).eq(1);
  const starts = cat([first, values.slice(0, 1).ne(values.slice(0, 0, -1))]);
  return { heads: values.maskedSelect(starts), group: starts.long().cumsum(0).sub(1) };
}

function assemble(heads: Tensor, inverse: Tensor | null, group: Tensor | null): Tensor | Tensor[] {
  const counts = group === null ? null : bincountOf(group, heads.numel());
  const all = [heads, inverse, counts].filter((t): t is Tensor => t !== null);
  return all.length === 1 ? heads : all;
}

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * The distinct values in order, and if requested the inverse indices and counts; the same as
     * {@link unique}. Blocks.
     */
    unique: Unique<[]>;
    /**
     * The values of runs of equal elements, and if requested the inverse indices and counts; the
     * same as {@link uniqueConsecutive}. Blocks.
     */
    uniqueConsecutive: UniqueConsecutive<[]>;
  }
}
