/** The mesh over which a strategy shards and replicates. */
import { unexpected } from '../../core/options.js';
import {
  DeviceMesh,
  getProcessGroupRanks,
  type ProcessGroup,
  worldGroup,
} from '../../distributed/index.js';
import { ArgumentError } from '../../index.js';
import { ShardMesh } from '../fully-shard/shard-mesh.js';
import { isHybrid, type ShardingStrategyName } from './strategies.js';

const OP = 'FullyShardedDataParallel';

/** Worlds for which the change of the strategy was reported. */
const reported = new WeakSet<ProcessGroup>();

/** Where a strategy shards. */
export interface StrategyMesh {
  /** `NO_SHARD` where there is one rank. */
  readonly strategy: ShardingStrategyName;
  readonly shards: ShardMesh;
  /** The ranks among which the flat parameter is divided; with `NO_SHARD` those of the replicas. */
  readonly group: ProcessGroup;
}

/**
 * @param deviceMesh - of one dim, or for hybrid sharding of two, of which the first replicates
 * @throws ArgumentError for a mesh that does not fit the strategy
 */
export function meshOf(
  strategy: ShardingStrategyName,
  deviceMesh: DeviceMesh | null,
  processGroup: ProcessGroup | null,
  deviceType: 'cpu' | 'cuda',
): StrategyMesh {
  if (deviceMesh !== null && !(deviceMesh instanceof DeviceMesh))
    throw unexpected(OP, 'deviceMesh', 'a DeviceMesh', deviceMesh);
  const dims = isHybrid(strategy) ? 2 : 1;
  if ((deviceMesh?.ndim ?? 1) !== dims || (deviceMesh !== null && processGroup !== null))
    throw new ArgumentError(
      `${OP}: ${strategy} takes a deviceMesh of ${dims === 1 ? 'one dim' : 'two dims'}` +
        `${dims === 1 ? ' or a processGroup' : ', of which the first replicates'}, got ` +
        `${deviceMesh ?? 'no mesh'}${processGroup === null ? '' : ' and a processGroup'}`,
      { op: OP, strategy },
    );
  if (isHybrid(strategy)) {
    const shards = new ShardMesh(OP, deviceMesh as DeviceMesh);
    return { strategy, shards, group: shards.group };
  }
  const group = deviceMesh?.getGroup(0) ?? processGroup ?? worldGroup();
  const ranks = getProcessGroupRanks(group);
  if (strategy !== 'NO_SHARD' && ranks.length > 1) {
    const mesh = deviceMesh ?? DeviceMesh.fromGroup(group, deviceType);
    return { strategy, shards: new ShardMesh(OP, mesh), group };
  }
  if (strategy !== 'NO_SHARD') reportChange(strategy);
  const columns = ranks.map((rank) => [rank]);
  return {
    strategy: 'NO_SHARD',
    shards: new ShardMesh(OP, new DeviceMesh(deviceType, columns)),
    group,
  };
}

function reportChange(strategy: ShardingStrategyName): void {
  const world = worldGroup();
  if (reported.has(world)) return;
  reported.add(world);
  process.emitWarning(
    `${OP}: with one rank there is nothing to divide, so it uses NO_SHARD in place of ${strategy}.`,
    'FSDPWarning',
  );
}
