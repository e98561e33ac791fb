/**
 * The bytes that one rank sends and receives in a collective: of ring algorithms if all ranks take
 * part equally (no algorithm sends less), and of direct messages for gather and scatter.
 */
import type { CollectiveCall } from './collective.js';

/** Bytes of one rank. */
export interface Traffic {
  readonly sent: number;
  readonly received: number;
}

/**
 * The traffic of one rank in a call of a group of `size` ranks. @internal
 */
export function trafficOf(call: CollectiveCall, size: number, rank: number): Traffic {
  const bytesEach = (call.input ?? call.output)?.dtype.itemsize ?? 0;
  const { sent, received } = elementsOf(call, size, rank % size);
  return { sent: sent * bytesEach, received: received * bytesEach };
}

function elementsOf(call: CollectiveCall, size: number, rank: number): Traffic {
  const { kind, counts = [], sendCounts = [], root = 0 } = call;
  const count = (call.input ?? call.output)?.numel() ?? 0;
  const [next, before] = [(rank + 1) % size, (rank + size - 1) % size];
  const shard = (of: number): number => counts[of] ?? 0;
  switch (kind) {
    case 'allReduce': // a reduce-scatter and an all-gather of equal shards
      return same((2 * (size - 1) * count) / size);
    case 'allGather': // sends all but the next rank's shard, receives all but its own
      return { sent: sum(counts) - shard(next), received: sum(counts) - shard(rank) };
    case 'reduceScatter': // sends all but its own shard, receives all but the previous rank's
      return { sent: sum(counts) - shard(rank), received: sum(counts) - shard(before) };
    case 'allToAll':
      return {
        sent: sum(sendCounts) - (sendCounts[rank] ?? 0),
        received: sum(counts) - shard(rank),
      };
    case 'broadcast': // from the root along the ring
      return { sent: next === root ? 0 : count, received: rank === root ? 0 : count };
    case 'reduce': // along the ring to the root
      return { sent: rank === root ? 0 : count, received: before === root ? 0 : count };
    case 'gather':
      return rank === root
        ? { sent: 0, received: sum(counts) - shard(root) }
        : { sent: shard(rank), received: 0 };
    case 'scatter':
      return rank === root
        ? { sent: sum(counts) - shard(root), received: 0 }
        : { sent: 0, received: shard(rank) };
    case 'send':
      return { sent: count, received: 0 };
    case 'recv':
      return { sent: 0, received: count };
    case 'barrier':
      return same(0);
  }
}

const same = (count: number): Traffic => ({ sent: count, received: count });
const sum = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);
