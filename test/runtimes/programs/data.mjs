// Batches of worker threads.
import assert from 'node:assert/strict';
import { DataLoader, importDataset } from 'shardwise/data';

const dataset = await importDataset(new URL('./squares.mjs', import.meta.url).href);
const loader = new DataLoader(dataset, { batchSize: 3, numWorkers: 2 });
const batches = [];
for await (const batch of loader) batches.push(batch.tolist());
assert.deepEqual(batches, [[0, 1, 4], [9, 16, 25], [36]]);
