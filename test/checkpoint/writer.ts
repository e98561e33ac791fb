/**
 * A process or worker thread that saves `<file> <value> <chunk bytes> <times>`: 20,000 times the
 * value. A process waits for a message once it has begun to write: its file stays half written.
 */
import { readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { isMainThread, workerData } from 'node:worker_threads';
import { full, saveSafetensors } from '../../lib/index.js';

const [file, value, chunkBytes, times] = (isMainThread ? process.argv.slice(2) : workerData) as [
  string,
  ...string[],
];
for (let i = 0; i < Number(times); i++) {
  const saved = saveSafetensors(
    file,
    { w: full([20_000], Number(value)) },
    { chunkBytes: Number(chunkBytes) },
  );
  if (isMainThread) await stopWhileWriting();
  await saved;
}

/**
 * Blocks the event loop, and with it the save, which writes a chunk in each of its turns. A file
 * with bytes is locked; one without may not be yet, and others may remove it.
 */
async function stopWhileWriting(): Promise<void> {
  const [folder, name] = [path.dirname(file), path.basename(file)];
  const hasBytes = (other: string): boolean =>
    other.startsWith(`${name}.`) && statSync(path.join(folder, other)).size > 0;
  while (!readdirSync(folder).some(hasBytes)) await new Promise(setImmediate);
  process.send?.('writing');
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}
