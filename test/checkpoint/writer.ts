/**
 * A process or worker thread that saves `<file> <value> <chunk bytes> <times>`: 20,000 times the
 * value. It reports when it starts.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { full, saveSafetensors } from '../../lib/index.js';

const [file, value, chunkBytes, times] = (
  parentPort === null ? process.argv.slice(2) : workerData
) as [string, ...string[]];
if (parentPort === null) process.send?.('ready');
else parentPort.postMessage('ready');
for (let i = 0; i < Number(times); i++)
  await saveSafetensors(
    file,
    { w: full([20_000], Number(value)) },
    { chunkBytes: Number(chunkBytes) },
  );
