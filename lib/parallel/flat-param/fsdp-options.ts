/** Options of `FullyShardedDataParallel`. */
import { checkFlag, checkFunction, optionsOf, unexpected } from '../../core/options.js';
import type { DeviceMesh, ProcessGroup } from '../../distributed/index.js';
import { nn } from '../../index.js';
import {
  BackwardPrefetch,
  type BackwardPrefetchName,
  CPUOffload,
  checkStrategy,
  MixedPrecision,
  type ShardingStrategyName,
} from './strategies.js';

const OP = 'FullyShardedDataParallel';

/** Options of `FullyShardedDataParallel`. */
export interface FSDPOptions {
  /** The ranks; all of the world by default. */
  processGroup?: ProcessGroup | null;
  /** What the ranks divide; `FULL_SHARD` by default. */
  shardingStrategy?: ShardingStrategyName;
  /** Where shards lie. */
  cpuOffload?: CPUOffload | null;
  /** Says of each module below, with its path, whether to wrap it with the same options first. */
  autoWrapPolicy?: ((module: nn.AnyModule, path: string) => boolean) | null;
  /** When parameters are gathered for backward; null: when they are needed. */
  backwardPrefetch?: BackwardPrefetchName | null;
  /** The dtypes of compute and of reductions. */
  mixedPrecision?: MixedPrecision | null;
  /** Parameters, and modules with all parameters below, to leave as they are. */
  ignoredStates?: readonly (nn.Parameter | nn.AnyModule)[];
  /** Whether the parameters and buffers of the first rank go to all ranks. */
  syncModuleStates?: boolean;
  /** Whether the next module, in the order of the step before, is gathered during forward. */
  forwardPrefetch?: boolean;
  /**
   * Whether at most two modules have whole parameters in memory while the host runs ahead of a GPU:
   * gathers then wait, on the GPU, for the compute that uses the memory of earlier ones. True by
   * default. Without the limit they take other memory. The CPU has the limit in any case.
   */
  limitAllGathers?: boolean;
  /** Whether optimizers keep the original parameters, which may be frozen one by one. */
  useOrigParams?: boolean;
  /** In place of `processGroup`: of one dim, or for hybrid sharding of two (replicate, shard). */
  deviceMesh?: DeviceMesh | null;
}

const OPTIONS =
  'processGroup shardingStrategy cpuOffload autoWrapPolicy backwardPrefetch mixedPrecision ' +
  'ignoredStates syncModuleStates forwardPrefetch limitAllGathers useOrigParams deviceMesh';

/** The options with their defaults. */
export type Settings = Required<FSDPOptions>;

/** @throws ArgumentError for an option of another kind */
export function settingsOf(options: FSDPOptions): Settings {
  const {
    processGroup = null,
    shardingStrategy = 'FULL_SHARD',
    cpuOffload = null,
    autoWrapPolicy = null,
    backwardPrefetch = BackwardPrefetch.BACKWARD_PRE,
    mixedPrecision = null,
    ignoredStates = [],
    syncModuleStates = false,
    forwardPrefetch = false,
    limitAllGathers = true,
    useOrigParams = false,
    deviceMesh = null,
  } = optionsOf(OP, options, OPTIONS);
  checkStrategy(OP, shardingStrategy);
  if (cpuOffload !== null && !(cpuOffload instanceof CPUOffload))
    throw unexpected(OP, 'cpuOffload', 'a CPUOffload or null', cpuOffload);
  if (mixedPrecision !== null && !(mixedPrecision instanceof MixedPrecision))
    throw unexpected(OP, 'mixedPrecision', 'a MixedPrecision or null', mixedPrecision);
  if (autoWrapPolicy !== null) checkFunction(OP, 'autoWrapPolicy', autoWrapPolicy);
  if (backwardPrefetch !== null && !Object.hasOwn(BackwardPrefetch, backwardPrefetch))
    throw unexpected(
      OP,
      'backwardPrefetch',
      "'BACKWARD_PRE', 'BACKWARD_POST' or null",
      backwardPrefetch,
    );
  if (
    !Array.isArray(ignoredStates) ||
    !ignoredStates.every((each) => each instanceof nn.Parameter || each instanceof nn.Module)
  )
    throw unexpected(OP, 'ignoredStates', 'a list of parameters and modules', ignoredStates);
  const flags = { syncModuleStates, forwardPrefetch, limitAllGathers, useOrigParams };
  for (const [name, flag] of Object.entries(flags)) checkFlag(OP, name, flag);
  return {
    processGroup,
    shardingStrategy,
    cpuOffload,
    autoWrapPolicy,
    backwardPrefetch,
    mixedPrecision,
    ignoredStates,
    ...flags,
    deviceMesh,
  };
}
