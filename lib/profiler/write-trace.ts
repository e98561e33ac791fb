/** Writes a trace to a file, in one piece. */
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { ArgumentError } from '../core/errors.js';
import { shown } from '../core/options.js';
import type { ChromeTrace } from './chrome-trace.js';

/**
 * Replaces the file by the trace, compressed if its name ends with `.gz`.
 *
 * @throws ArgumentError if there is no such folder; the other errors of the system
 */
export function writeTrace(op: string, file: string, trace: ChromeTrace): void {
  const text = JSON.stringify(trace);
  const temporary = `${file}.${process.pid}.tmp`;
  try {
    writeFileSync(temporary, file.endsWith('.gz') ? gzipSync(text) : text);
    renameSync(temporary, file);
  } catch (error) {
    rmSync(temporary, { force: true });
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    throw new ArgumentError(
      `${op}: expected a file in a folder that exists, got ${shown(file)} (ENOENT): make the ` +
        'folder first',
      { op, file },
    );
  }
}
