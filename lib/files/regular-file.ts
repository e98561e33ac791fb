/**
 * Opening files that may be anything: a FIFO would block a thread for ever, a device may act on
 * being opened.
 */
import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';

/** What a path names, for messages. */
export function describeKind(stats: Stats): string {
  if (stats.isDirectory()) return 'a directory';
  if (stats.isFIFO()) return 'a FIFO';
  if (stats.isSocket()) return 'a socket';
  return stats.isCharacterDevice() || stats.isBlockDevice() ? 'a device' : 'of an unknown kind';
}

/**
 * Opens a regular file for reading, never waiting. @throws the system's errors, and an Error for
 * what is no regular file
 */
export async function openRegular(path: string): Promise<{ file: FileHandle; size: number }> {
  requireRegular(await stat(path));
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  try {
    const stats = await file.stat(); // the path may name something else by now
    requireRegular(stats);
    return { file, size: stats.size };
  } catch (error) {
    await file.close();
    throw error;
  }
}

function requireRegular(stats: Stats): void {
  if (!stats.isFile()) throw new Error(`it is ${describeKind(stats)}, not a regular file`);
}
