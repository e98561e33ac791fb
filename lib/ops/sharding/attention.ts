/** Sharding of attention: along batches, heads and queries; keys are never sharded. */
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

/** A sharded dim of the scores [batch, heads, queries, keys]. */
interface ScoreSharding {
  /** The dim of the queries, and of all that has their shape. */
  dim: number;
  mask: PlacementShorthand;
  /** The placement of keys and values. */
  keys: PlacementShorthand;
}

function shardedScoreDims(
  q: Tensor,
  k: Tensor,
  mask: Tensor,
  { causal, dropout }: Attention,
  divides: (heads: number) => boolean,
): ScoreSharding[] {
  if (dropout > 0) return []; // the mask of dropped weights depends on their global positions
  const scores = [...q.sizes.slice(0, 3), k.sizes[2] as number];
  const maskAt = (dim: number): PlacementShorthand => broadcastPlacement(mask, dim, scores);
  const [heads, keyHeads] = [q.sizes[1] as number, k.sizes[1] as number];
  const found: ScoreSharding[] = [{ dim: 0, mask: maskAt(0), keys: 0 }];
  // A group of query heads needs its key head on the same rank.
  if (heads === keyHeads || divides(keyHeads)) found.push({ dim: 1, mask: maskAt(1), keys: 1 });
  else if (keyHeads === 1) found.push({ dim: 1, mask: maskAt(1), keys: null });
  if (!causal) found.push({ dim: 2, mask: maskAt(2), keys: null });
  return found;
}

/** Whether the mesh dimension divides the heads of an operand equally. */
const dividesHeads =
  (mesh: MeshDimContext, operand: number) =>
  (heads: number): boolean =>
    mesh.divides(operand, 1, heads);

/**
 * Inputs: queries, keys, values, mask. Outputs: the result, and the log of the row sums.
 * @internal
 */
export function attentionRule<P extends Attention>(): ShardingRule<
  P,
  readonly [Tensor, Tensor, Tensor, Tensor]
> {
  return {
    strategies: ([q, k, , mask], params, mesh) =>
      shardedScoreDims(q, k, mask, params, dividesHeads(mesh, 1)).map((c) =>
        strategy([c.dim, c.keys, c.keys, c.mask], [c.dim, c.dim]),
      ),
  };
}

/**
 * Inputs: gradient, queries, keys, values, mask, result, log of the row sums. The op is linear in
 * the gradient. @internal
 */
export function attentionBackwardRule<P extends Attention>(): ShardingRule<
  P,
  readonly [Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
> {
  return {
    strategies: ([, q, k, , mask], params, mesh): Strategy<P>[] => {
      const { dtype } = q;
      const sharded = shardedScoreDims(q, k, mask, params, dividesHeads(mesh, 2)).map((c) => {
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
