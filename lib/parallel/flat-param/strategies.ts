/** Options of `FullyShardedDataParallel`: strategies, dtypes, offload and prefetch. */
import { checkFlag, checkOneOf, optionsOf, unexpected } from '../../core/options.js';
import { type DType, type DTypeLike, empty } from '../../index.js';

/**
 * What the ranks divide. `FULL_SHARD`: parameters, gradients and the state of the optimizer; whole
 * parameters are freed after forward and after backward. `SHARD_GRAD_OP`: the same, but whole
 * parameters stay between forward and backward. `NO_SHARD`: nothing; gradients are averaged.
 * `HYBRID_SHARD` and `_HYBRID_SHARD_ZERO2`: as the first two over the second dim of a mesh, and
 * replicas over the first.
 *
 * @see PyTorch `torch.distributed.fsdp.ShardingStrategy`
 */
export const ShardingStrategy = Object.freeze({
  FULL_SHARD: 'FULL_SHARD',
  SHARD_GRAD_OP: 'SHARD_GRAD_OP',
  NO_SHARD: 'NO_SHARD',
  HYBRID_SHARD: 'HYBRID_SHARD',
  _HYBRID_SHARD_ZERO2: '_HYBRID_SHARD_ZERO2',
} as const);

/** A value of {@link ShardingStrategy}. */
export type ShardingStrategyName = (typeof ShardingStrategy)[keyof typeof ShardingStrategy];

/**
 * The strategy of one flat parameter, with the values of {@link ShardingStrategy}.
 *
 * @see PyTorch `torch.distributed.fsdp._flat_param.HandleShardingStrategy`
 */
export const HandleShardingStrategy = ShardingStrategy;

/** @throws ArgumentError unless it is a value of {@link ShardingStrategy} */
export function checkStrategy(op: string, value: unknown): asserts value is ShardingStrategyName {
  checkOneOf(op, 'shardingStrategy', value, Object.values(ShardingStrategy));
}

/** Whether a strategy shards over one dim of a mesh and replicates over another. */
export function isHybrid(strategy: ShardingStrategyName): boolean {
  return strategy === 'HYBRID_SHARD' || strategy === '_HYBRID_SHARD_ZERO2';
}

/** Whether whole parameters are freed between forward and backward. */
export function reshardsAfterForward(strategy: ShardingStrategyName): boolean {
  return strategy === 'FULL_SHARD' || strategy === 'HYBRID_SHARD';
}

/**
 * When the parameters of the module before are gathered in backward: before or after the gradients
 * of a module are computed.
 *
 * @see PyTorch `torch.distributed.fsdp.BackwardPrefetch`
 */
export const BackwardPrefetch = Object.freeze({
  BACKWARD_PRE: 'BACKWARD_PRE',
  BACKWARD_POST: 'BACKWARD_POST',
} as const);

/** A value of {@link BackwardPrefetch}. */
export type BackwardPrefetchName = (typeof BackwardPrefetch)[keyof typeof BackwardPrefetch];

/** A dtype option, or null. @throws ArgumentError for a dtype that is not floating */
export function floatingDtype(
  op: string,
  name: string,
  given: DTypeLike | null | undefined,
): DType | null {
  if (given === null || given === undefined) return null;
  const { dtype } = empty([0], { dtype: given });
  if (dtype.isFloatingPoint) return dtype;
  throw unexpected(op, name, 'a floating point dtype', dtype.name);
}

/** Options of {@link MixedPrecision}. */
export interface MixedPrecisionSettings {
  /** The dtype of whole parameters, of compute and of gradients; that of the shards if null. */
  paramDtype?: DTypeLike | null;
  /** The dtype in which gradients are reduced; `paramDtype` if null. */
  reduceDtype?: DTypeLike | null;
  /** Floating buffers are converted to it before the first forward, unless it is null. */
  bufferDtype?: DTypeLike | null;
  /**
   * Whether gradients stay in `paramDtype` for the optimizer. False by default: they get the dtype
   * of shards when they have been reduced.
   */
  keepLowPrecisionGrads?: boolean;
  /** Whether floating arguments of every wrapped module are cast to `paramDtype`. */
  castForwardInputs?: boolean;
  /** Whether those of the outermost module are. True by default. */
  castRootForwardInputs?: boolean;
}

/**
 * The dtypes of compute and of reductions. Shards keep their own dtype, for the optimizer.
 *
 * @see PyTorch `torch.distributed.fsdp.MixedPrecision`
 * @example
 * new MixedPrecision({ paramDtype: bfloat16, reduceDtype: float32 })
 */
export class MixedPrecision {
  /** The dtype of whole parameters, of compute and of gradients; that of the shards if null. */
  readonly paramDtype: DType | null;
  /** The dtype in which gradients are reduced; `paramDtype` if null. */
  readonly reduceDtype: DType | null;
  /** The dtype of floating buffers; null leaves them. */
  readonly bufferDtype: DType | null;
  /** Whether gradients stay in `paramDtype`. */
  readonly keepLowPrecisionGrads: boolean;
  /** Whether floating arguments of every wrapped module are cast. */
  readonly castForwardInputs: boolean;
  /** Whether floating arguments of the outermost wrapped module are cast. */
  readonly castRootForwardInputs: boolean;

  /** @throws ArgumentError for a dtype that is not floating */
  constructor(options: MixedPrecisionSettings = {}) {
    const op = 'MixedPrecision';
    const {
      paramDtype,
      reduceDtype,
      bufferDtype,
      keepLowPrecisionGrads = false,
      castForwardInputs = false,
      castRootForwardInputs = true,
    } = optionsOf(
      op,
      options,
      'paramDtype reduceDtype bufferDtype keepLowPrecisionGrads castForwardInputs ' +
        'castRootForwardInputs',
    );
    checkFlag(op, 'keepLowPrecisionGrads', keepLowPrecisionGrads);
    checkFlag(op, 'castForwardInputs', castForwardInputs);
    checkFlag(op, 'castRootForwardInputs', castRootForwardInputs);
    this.paramDtype = floatingDtype(op, 'paramDtype', paramDtype);
    this.reduceDtype = floatingDtype(op, 'reduceDtype', reduceDtype);
    this.bufferDtype = floatingDtype(op, 'bufferDtype', bufferDtype);
    this.keepLowPrecisionGrads = keepLowPrecisionGrads;
    this.castForwardInputs = castForwardInputs;
    this.castRootForwardInputs = castRootForwardInputs;
  }
}

/**
 * Where shards lie.
 *
 * @see PyTorch `torch.distributed.fsdp.CPUOffload`
 */
export class CPUOffload {
  /** Whether shards, their gradients and the optimizer are on the CPU. */
  readonly offloadParams: boolean;

  constructor(options: { offloadParams?: boolean } = {}) {
    const { offloadParams = false } = optionsOf('CPUOffload', options, 'offloadParams');
    checkFlag('CPUOffload', 'offloadParams', offloadParams);
    this.offloadParams = offloadParams;
  }
}
