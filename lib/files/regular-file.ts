/**
 * Opens regular files only, of paths that may name anything: opening a FIFO would block a thread
 * forever, and opening a device may trigger an action.
 */
import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';

/** The kind of a file, for messages. */
export function describeKind(stats: Stats): string {
  if (stats.isDirectory()) return 'a directory';
  if (stats.isFIFO()) return 'a FIFO';
  if (stats.isSocket()) return 'a socket';
  return stats.isCharacterDevice() || stats.isBlockDevice() ? 'a device' : 'of an unknown kind';
}

/**
 * Opens a regular file for reading without blocking. @throws the system's errors, and an Error if
 * the file is not regular
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
