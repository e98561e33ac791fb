/** Writes a trace to a file, in one piece. */
import { randomBytes } from 'node:crypto';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { ArgumentError } from '../core/errors.js';
import { shown } from '../core/options.js';
import type { ChromeTrace } from './chrome-trace.js';

/** The system's codes for a folder that is missing or a file, and for a file that is a folder. */
const NO_SUCH_PLACE: readonly string[] = ['ENOENT', 'ENOTDIR', 'EISDIR'];

/**
 * Replaces the file by the trace, compressed if its name ends with `.gz`.
 *
 * @throws ArgumentError if there is no such folder, or the file is one; other errors of the system
 */
export function writeTrace(op: string, file: string, trace: ChromeTrace): void {
  const text = JSON.stringify(trace);
  // A new file with a name that nobody else uses, so that none of another program is lost.
  const temporary = `${file}.${randomBytes(8).toString('hex')}.tmp`;
  try {
    writeFileSync(temporary, file.endsWith('.gz') ? gzipSync(text) : text, { flag: 'wx' });
    renameSync(temporary, file);
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (code !== 'ENOTDIR') rmSync(temporary, { force: true });
    if (!NO_SUCH_PLACE.includes(code)) throw error;
    throw new ArgumentError(
      `${op}: expected a file in a folder that exists, got ${shown(file)} (${code}): make the ` +
        'folder first, and name a file in it',
      { op, file },
    );
  }
}
