/** The limit on open files and sockets of this process. */
import { readFileSync } from 'node:fs';

/** The default of most systems. */
const USUAL_LIMIT = 1_024;

/** Reads the limit on Linux; assumes the default elsewhere. */
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

/** Whether an operation failed because no descriptor is left. */
export const isOutOfDescriptors = (error: unknown): boolean =>
  CODES.includes((error as NodeJS.ErrnoException | null)?.code);
