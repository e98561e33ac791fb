/** The entry `shardwise/data`: loaders of batches, samplers, and files of samples. */
import '../runtime.js';
import { declareExports } from '../core/library-exports.js';
import * as entry from './index.js';

export { DataError } from '../core/errors.js';
export { defaultCollate } from './batch-tensors.js';
export type { Collated } from './collate.js';
export { DataLoader, type DataLoaderState } from './data-loader.js';
export { type Dataset, type DatasetLike, type IterableDataset, mapDataset } from './dataset.js';
export { importDataset } from './import-dataset.js';
export type { DataLoaderOptions } from './loader-options.js';
export { type NumberedLine, ndjson } from './ndjson.js';
export {
  BatchSampler,
  DistributedSampler,
  type DistributedSamplerOptions,
  RandomSampler,
  type RandomSamplerOptions,
  type Sampler,
  SequentialSampler,
  type Sized,
} from './sampler.js';
export { randomSplit, Subset, TensorDataset } from './splits.js';
export {
  type TokenWindow,
  type TokenWindows,
  type TokenWindowsOptions,
  tokenWindows,
} from './token-windows.js';

declareExports(entry);
