/** How many files and sockets this process may have open. */
import { readFileSync } from 'node:fs';

/** What most systems allow where nothing else is set. */
const USUAL_LIMIT = 1_024;

/** By Linux; elsewhere what is usual. */
export function descriptorLimit(): number {
  try {
    const [, limit] =
      /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return limit === undefined ? USUAL_LIMIT : Number(limit);
  } catch {
    return USUAL_LIMIT;
  }
}

const CODES: readonly (string | undefined)[] = ['EMFILE', 'ENFILE'];

/** Whether an operation failed because there are no descriptors left. */
export const isOutOfDescriptors = (error: unknown): boolean =>
  CODES.includes((error as NodeJS.ErrnoException | null)?.code);
