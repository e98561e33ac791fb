// Batches of worker threads, whose dataset is this module.
import assert from 'node:assert/strict';
import { isMainThread } from 'node:worker_threads';
import { DataLoader, importDataset } from 'shardwise/data';

export default { length: 7, get: (index) => index * index };

if (isMainThread) {
  const dataset = await importDataset(import.meta.url);
  const loader = new DataLoader(dataset, { batchSize: 3, numWorkers: 2 });
  const batches = [];
  for await (const batch of loader) batches.push(batch.tolist());
  assert.deepEqual(batches, [[0, 1, 4], [9, 16, 25], [36]]);
}
