/** Counts the reads that JavaScript waits in. */
import { valueAccess } from '../../lib/ops/construct.js';

/** How often `fn` waits for values of tensors. */
export function countReads(fn: () => unknown): number {
  const access = valueAccess();
  const { readElement, readSync } = access;
  let reads = 0;
  Object.assign(access, {
    readElement: (t: Parameters<typeof readElement>[0]) => {
      reads++;
      return readElement(t);
    },
    readSync: (...operands: Parameters<typeof readSync>) => {
      reads++;
      readSync(...operands);
    },
  });
  try {
    fn();
  } finally {
    Object.assign(access, { readElement, readSync });
  }
  return reads;
}
