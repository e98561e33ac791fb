/** The entry `shardwise/train`: progress, curves and metrics of training programs. */
import '../runtime.js';
import { declareExports } from '../core/library-exports.js';
import * as entry from './index.js';

export { type LossCurveOptions, lossCurve, sparkline } from './curves.js';
export { type ExposedCommunicationOptions, exposedCommunication } from './exposed-communication.js';
export { peakFlops, type TransformerFlopsOptions, transformerFlops } from './flops.js';
export {
  type MetricsWriter,
  type StepMetrics,
  type StepValues,
  TRAIN_STEP_CHANNEL,
  TrainMetrics,
  type TrainMetricsOptions,
} from './metrics.js';
export { JsonlWriter, SummaryWriter, type SummaryWriterOptions } from './metrics-files.js';
export { type Progress, type ProgressOptions, type ProgressRange, progress } from './progress.js';

declareExports(entry);
