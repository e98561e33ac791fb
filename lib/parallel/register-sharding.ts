/** Sharding rules of custom ops. */
import type { library } from '../index.js';

/**
 * Registers how a custom op runs on distributed tensors: the same as its method. Without a rule
 * its inputs are replicated on every rank, with a warning.
 *
 * @param rule - lists the strategies of a call along one mesh dimension
 * @throws ArgumentError if the op has a rule, or a strategy does not fit its arguments
 * @see PyTorch `torch.distributed.tensor.experimental.register_sharding`
 * @example
 * registerSharding(swish, (x) => x.shape.map((_, dim) => ({ inputs: [Shard(dim), null], outputs: [Shard(dim)] })));
 */
export function registerSharding<A extends readonly unknown[], R extends library.OpResult>(
  op: library.CustomOp<A, R>,
  rule: library.CustomShardingRule<A>,
): library.CustomOp<A, R> {
  return op.registerSharding(rule);
}
