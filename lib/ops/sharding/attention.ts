/** Sharding of attention: batches, heads, and queries; keys are never cut. */
import type { MeshDimContext, ShardingRule, Strategy } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import {
  broadcastPlacement,
  linearReductions,
  type PlacementShorthand,
  partialStrategies,
  strategy,
} from './strategies.js';

interface Attention {
  causal: number;
  dropout: number;
}

/** One dim of the scores [batch, heads, queries, keys] to cut along. */
interface ScoreSharding {
  /** Queries, what has their shape, and the mask. */
  dim: number;
  mask: PlacementShorthand;
  /** Keys and values; null where each rank has all of them. */
  keys: PlacementShorthand;
}

function shardedScoreDims(
  q: Tensor,
  k: Tensor,
  mask: Tensor,
  { causal, dropout }: Attention,
  divides: (heads: number) => boolean,
): ScoreSharding[] {
  if (dropout > 0) return []; // which weights are dropped goes by their place in the whole
  const scores = [...q.shape.slice(0, 3), k.shape[2] as number];
  const maskAt = (dim: number): PlacementShorthand => broadcastPlacement(mask, dim, scores);
  const [heads, keyHeads] = [q.shape[1] as number, k.shape[1] as number];
  const found: ScoreSharding[] = [{ dim: 0, mask: maskAt(0), keys: 0 }];
  // A group of query heads stays with its key head.
  if (heads === keyHeads || divides(keyHeads)) found.push({ dim: 1, mask: maskAt(1), keys: 1 });
  else if (keyHeads === 1) found.push({ dim: 1, mask: maskAt(1), keys: null });
  if (!causal) found.push({ dim: 2, mask: maskAt(2), keys: null });
  return found;
}

/** Whether heads of an operand can be shared equally. */
const dividesHeads =
  (mesh: MeshDimContext, operand: number) =>
  (heads: number): boolean =>
    mesh.divides(operand, 1, heads);

/**
 * Inputs: queries, keys, values, mask; outputs: the result, and the log of the sums of its rows.
 * @internal
 */
export function attentionRule<P extends Attention>(): ShardingRule<P> {
  return {
    strategies: ([q, k, , mask], params, mesh) =>
      shardedScoreDims(q as Tensor, k as Tensor, mask as Tensor, params, dividesHeads(mesh, 1)).map(
        (c) => strategy([c.dim, c.keys, c.keys, c.mask], [c.dim, c.dim]),
      ),
  };
}

/**
 * Inputs: gradient, queries, keys, values, mask, result, log of sums; linear in the first.
 * @internal
 */
export function attentionBackwardRule<P extends Attention>(): ShardingRule<P> {
  return {
    strategies: ([, q, k, , mask], params, mesh): Strategy<P>[] => {
      const { dtype } = q as Tensor;
      const sharded = shardedScoreDims(
        q as Tensor,
        k as Tensor,
        mask as Tensor,
        params,
        dividesHeads(mesh, 2),
      ).map((c) => {
        const ofKeys = c.keys ?? 'sum';
        return strategy<P>(
          [c.dim, c.dim, c.keys, c.keys, c.mask, c.dim, c.dim],
          [c.dim, ofKeys, ofKeys],
        );
      });
      return [...sharded, ...partialStrategies<P>(7, [0], 3, linearReductions(dtype, dtype))];
    },
  };
}
