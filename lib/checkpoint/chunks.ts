/**
 * Reads and writes byte ranges of files in chunks: a call of Node takes at most 2^31 - 1 bytes and
 * may transfer less than requested.
 */
import type { FileHandle } from 'node:fs/promises';
import { CheckpointError } from '../core/errors.js';

/** Maximal bytes of one read or write. */
export const CHUNK_BYTES = 64 * 2 ** 20;

/** Converts an error of the system, such as a full disk, to a CheckpointError. */
const failed =
  (path: string, what: 'read' | 'written', at: number) =>
  (error: Error): never => {
    throw new CheckpointError(
      `${path}: cannot be ${what} at byte ${at}: ${error.message}`,
      { file: path, at },
      { cause: error },
    );
  };

/** Fills `bytes` from position `at` of a file. @throws CheckpointError if the file is too short */
export async function readFully(
  file: Pick<FileHandle, 'read'>,
  path: string,
  at: number,
  bytes: Uint8Array,
  chunkBytes = CHUNK_BYTES,
): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesRead } = await file
      .read(bytes, done, Math.min(chunkBytes, bytes.length - done), at + done)
      .catch(failed(path, 'read', at + done));
    if (bytesRead === 0)
      throw new CheckpointError(
        `${path}: the file ends at byte ${at + done}, expected ${bytes.length - done} more`,
        { file: path, at: at + done },
      );
    done += bytesRead;
  }
}

/**
 * Writes all of `bytes` at position `at` of a file. @throws CheckpointError if the system stops
 * accepting bytes
 */
export async function writeFully(
  file: Pick<FileHandle, 'write'>,
  path: string,
  at: number,
  bytes: Uint8Array,
  chunkBytes = CHUNK_BYTES,
): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await file
      .write(bytes, done, Math.min(chunkBytes, bytes.length - done), at + done)
      .catch(failed(path, 'written', at + done));
    if (bytesWritten === 0)
      throw new CheckpointError(
        `${path}: the system accepted no more bytes at byte ${at + done}, ` +
          `${bytes.length - done} are missing`,
        { file: path, at: at + done },
      );
    done += bytesWritten;
  }
}
