/**
 * Loads all tensors of `<file>` and then the last alone, and prints the outcome. Runs with a small
 * heap.
 */
import { type CheckpointError, loadSafetensors, SafetensorsFile } from '../../lib/index.js';

const file = process.argv[2] as string;
try {
  await loadSafetensors(file);
  console.log('loaded');
} catch (error) {
  console.log(`${(error as CheckpointError).code}: ${(error as Error).message}`);
}
const opened = await SafetensorsFile.open(file);
console.log(`tensor 199999 has shape [${(await opened.get('199999')).shape}]`);
await opened.close();
