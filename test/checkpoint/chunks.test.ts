/**
 * Byte ranges of files are read and written completely, even if a call transfers less than
 * requested.
 */
import assert from 'node:assert/strict';
import type { FileHandle } from 'node:fs/promises';
import { readFully, writeFully } from '../../lib/checkpoint/chunks.js';
import { CheckpointError } from '../../lib/index.js';

/**
 * A file of `size` bytes that transfers at most `most` per call and records the requested lengths.
 */
function slowFile(size: number, most: number) {
  const content = Uint8Array.from({ length: size }, (_, i) => i + 1);
  const asked: number[] = [];
  const move = (at: number, length: number): number => {
    asked.push(length);
    return Math.max(0, Math.min(length, most, size - at));
  };
  return {
    content,
    asked,
    read: (async (bytes: Uint8Array, offset: number, length: number, at: number) => {
      const bytesRead = move(at, length);
      bytes.set(content.subarray(at, at + bytesRead), offset);
      return { bytesRead, buffer: bytes };
    }) as unknown as FileHandle['read'],
    write: (async (bytes: Uint8Array, offset: number, length: number, at: number) => {
      const bytesWritten = move(at, length);
      content.set(bytes.subarray(offset, offset + bytesWritten), at);
      return { bytesWritten, buffer: bytes };
    }) as unknown as FileHandle['write'],
  };
}

describe('reading and writing in chunks', () => {
  it('requests at most one chunk at a time', async () => {
    const file = slowFile(10, 100);
    const bytes = new Uint8Array(8);
    await readFully(file, 'f', 2, bytes, 3);
    assert.deepEqual([...bytes], [3, 4, 5, 6, 7, 8, 9, 10]);
    await writeFully(file, 'f', 1, bytes, 3);
    assert.deepEqual([...file.content], [1, 3, 4, 5, 6, 7, 8, 9, 10, 10]);
    assert.deepEqual(file.asked, [3, 3, 2, 3, 3, 2]);
  });

  it('continues after a call that transfers less', async () => {
    const file = slowFile(10, 2);
    const bytes = new Uint8Array(5);
    await readFully(file, 'f', 0, bytes, 4);
    assert.deepEqual([...bytes], [1, 2, 3, 4, 5]);
    await writeFully(file, 'f', 5, bytes, 4);
    assert.deepEqual([...file.content], [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]);
  });

  it('refuses a file that is too short or accepts no more bytes', async () => {
    const refused = (message: RegExp) => (error: Error) =>
      error instanceof CheckpointError && message.test(error.message);
    await assert.rejects(
      readFully(slowFile(4, 9), 'f', 0, new Uint8Array(6)),
      refused(/ends at byte 4, expected 2 more/),
    );
    await assert.rejects(
      writeFully(slowFile(4, 9), 'f', 0, new Uint8Array(6)),
      refused(/accepted no more bytes at byte 4, 2 are missing/),
    );
  });
});
