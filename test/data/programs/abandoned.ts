/** Takes a batch of two worker threads, and goes on to its end without the others. */
import { DataLoader, importDataset } from '../../../lib/data/index.js';

const dataset = await importDataset<number>(new URL('../datasets/numbers.mjs', import.meta.url));
const batches = new DataLoader(dataset, { numWorkers: 2 })[Symbol.asyncIterator]();
const { value } = await batches.next();
console.log(JSON.stringify(value?.tolist()));
