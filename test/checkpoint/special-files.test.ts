/**
 * Paths that name no regular file, and files that change while they are read, give an error at once
 * and block no thread.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  CheckpointError,
  loadSafetensors,
  ones,
  SafetensorsFile,
  saveSafetensors,
} from '../../lib/index.js';

const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-special-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string): string => path.join(folder, name);
const refused = (message: RegExp) => (error: unknown) =>
  error instanceof CheckpointError && message.test(error.message);

describe('loading a checkpoint', () => {
  it('refuses a FIFO at once, and blocks no thread of the process', async () => {
    execFileSync('mkfifo', [at('fifo')]);
    symlinkSync('fifo', at('link'));
    const loads = Array.from({ length: 8 }, (_, i) =>
      assert.rejects(
        loadSafetensors(at(i % 2 === 0 ? 'fifo' : 'link')),
        refused(/it is a FIFO, not a regular file/),
      ),
    );
    await Promise.all(loads);
    await saveSafetensors(at('m.safetensors'), { w: ones([3]) });
    await assert.rejects(
      saveSafetensors(at('fifo'), { w: ones([3]) }),
      refused(/it is a FIFO, not a regular file/),
    );
  });

  it('refuses directories, sockets and devices', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(at('socket'), resolve));
    try {
      await assert.rejects(
        loadSafetensors(folder),
        refused(/it is a directory, not a regular file/),
      );
      await assert.rejects(
        loadSafetensors(at('socket')),
        refused(/it is a socket, not a regular file/),
      );
      for (const device of ['/dev/zero', '/dev/null', '/dev/full', '/dev/tty'])
        await assert.rejects(
          loadSafetensors(device),
          refused(/it is a device, not a regular file/),
        );
    } finally {
      server.close();
    }
  });

  it('refuses files of the kernel, whose sizes are wrong', async () => {
    for (const name of [
      '/proc/self/maps',
      '/proc/self/mem',
      '/proc/cpuinfo',
      '/sys/kernel/mm/transparent_hugepage/enabled',
    ]) {
      await assert.rejects(loadSafetensors(name), CheckpointError, name);
    }
  });

  it('follows links to files', async () => {
    await saveSafetensors(at('real.safetensors'), { w: ones([3]) });
    symlinkSync('real.safetensors', at('linked.safetensors'));
    assert.deepEqual((await loadSafetensors(at('linked.safetensors')))['w']?.tolist(), [1, 1, 1]);
  });

  it('reports a file that shrinks while it is read', async () => {
    await saveSafetensors(at('m.safetensors'), { a: ones([3]), b: ones([1000]) });
    const opened = await SafetensorsFile.open(at('m.safetensors'));
    truncateSync(at('m.safetensors'), readFileSync(at('m.safetensors')).length - 100);
    assert.deepEqual((await opened.get('a')).tolist(), [1, 1, 1]);
    await assert.rejects(opened.get('b'), refused(/the file ends at byte \d+, expected 100 more/));
    await opened.close();
    writeFileSync(at('m.safetensors'), '');
    await assert.rejects(loadSafetensors(at('m.safetensors')), refused(/it has 0 bytes/));
  });

  it('continues with the file that it opened if another file takes its name', async () => {
    await saveSafetensors(at('m.safetensors'), { a: ones([3]) });
    const opened = await SafetensorsFile.open(at('m.safetensors'));
    await saveSafetensors(at('m.safetensors'), { a: ones([5]) });
    assert.deepEqual((await opened.get('a')).tolist(), [1, 1, 1]);
    await opened.close();
  });
});
