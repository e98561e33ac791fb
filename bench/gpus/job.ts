/** What one row trains, as train.ts and peer_train.py both read it. */
import type { BackendName } from '../../lib/compile/backends.js';
import { amp, float32, nn, type Tensor } from '../../lib/index.js';
import type { Phases } from './phases.js';

export interface ModelSize {
  readonly kind: 'gpt' | 'llama';
  readonly vocabulary: number;
  readonly width: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly hidden: number;
  readonly layers: number;
  readonly context: number;
  /** Whether the head of a Llama is the table of its tokens. */
  readonly tied?: boolean;
}

/** How a side trains: its settings that change time and memory, but no result. */
export interface Mode {
  readonly name: string;
  /** Whether whole parameters are freed after forward. */
  readonly reshard: boolean;
  /** Layers that are gathered ahead in forward and backward; 0 leaves it to the library. */
  readonly prefetch: number;
  /**
   * Whether it is compiled: by PyTorch each layer and the loss, by ours the whole model, or each
   * layer of a fully sharded one.
   */
  readonly compile: boolean | 'layers';
  /** The backend of `compile` for ours: `'inductor'` by default. */
  readonly backend?: BackendName;
  /** Whether ours frees memory by scopes, or leaves it to the garbage collector. */
  readonly scopes: boolean;
  /** Which attention PyTorch takes first. */
  readonly attention: 'default' | 'cudnn';
}

export interface Job {
  readonly name: string;
  readonly model: ModelSize;
  /** Ranks that have batches of their own. */
  readonly dataRanks: number;
  /** Ranks that share each layer. */
  readonly tensorRanks: number;
  /** `ddp` keeps whole parameters on each rank; on one rank it is the plain model. */
  readonly parallel: 'fsdp' | 'ddp';
  /** Sequences for each rank of data. */
  readonly batch: number;
  /** Whether each layer is computed again in backward. */
  readonly checkpoint: boolean;
  readonly lr: number;
  readonly warm: number;
  readonly steps: number;
  readonly device: 'cpu' | 'cuda';
  readonly dtype: 'bfloat16' | 'float32';
  /** The folder for the trace of a step, or null. */
  readonly trace: string | null;
  readonly modes: readonly Mode[];
}

/** What a side prints for each mode, one JSON object a line. */
export interface Trained extends Phases {
  readonly name: string;
  readonly mode: string;
  /** Why the mode failed; then there are no figures. */
  readonly error?: string;
  /** Median time of a step that the host waits for. */
  readonly stepMs: number;
  /** Time of a step where the host runs ahead. */
  readonly aheadMs: number;
  /** Median time until the call of a step returns. */
  readonly hostMs: number;
  readonly tokensPerSecond: number;
  readonly peakGiB: number;
  readonly reservedGiB: number;
  /** The file with the trace of a step of rank 0, or null. */
  readonly trace: string | null;
  /** The loss of each step, the first ones that warm up included. */
  readonly losses: readonly number[];
  /** Seconds until the model is there, and of the first step. */
  readonly startSeconds: number;
  readonly firstStepSeconds: number;
}

/**
 * The mean in float32 of the losses of all rows. A mean in the dtype of bfloat16 logits would have
 * three digits, too few to compare; on GPUs, mixed precision gives it in float32 by itself.
 */
export function lossOfRows(logits: Tensor, target: Tensor): Tensor {
  if (logits.isCuda && amp.isAutocastEnabled('cuda'))
    return nn.functional.crossEntropy(logits.flatten(0, 1), target.flatten());
  return nn.functional
    .crossEntropy(logits.flatten(0, 1), target.flatten(), { reduction: 'none' })
    .to(float32)
    .mean();
}
