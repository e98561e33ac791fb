/**
 * A process or worker thread that saves `<file> <first> <elements> <chunk bytes>` repeatedly, each
 * time the next number, and reports each completed save.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { full, saveSafetensors } from '../../lib/index.js';

const [file, first, elements, chunkBytes] = (
  parentPort === null ? process.argv.slice(2) : workerData
) as [string, ...string[]];
const report = (saved: number): void => {
  if (parentPort === null) process.send?.(saved);
  else parentPort.postMessage(saved);
};
for (let value = Number(first); ; value++) {
  report(value - 1);
  const w = full([Number(elements)], value);
  await saveSafetensors(file, { w }, { chunkBytes: Number(chunkBytes) });
  w.dispose();
}
