/** Sharding rules of custom ops. */
import type { library } from '../index.js';

/** Any op of `library.customOp`. */
type AnyCustomOp = Pick<library.CustomOp<never, library.OpResult>, 'opName'> & {
  registerSharding(rule: never): unknown;
};

/**
 * Registers how a custom op runs on distributed tensors: the same as its method. Without a rule
 * its inputs are replicated on every rank, with a warning.
 *
 * @param rule - lists the strategies of a call along one mesh dimension
 * @throws ArgumentError if the op has a rule, or a strategy does not fit its arguments
 * @see PyTorch `torch.distributed.tensor.experimental.register_sharding`
 * @example
 * const swish = library.customOp('mylib::smooth', {}, (x: Tensor) => x.mul(x.sigmoid()));
 * swish.registerFake((x) => x);
 * registerSharding(swish, (x) =>
 *   x.shape.map((_, dim) => ({ inputs: [Shard(dim)], outputs: [Shard(dim)] })),
 * );
 * await launch(2, async () => {
 *   const t = distributeTensor(ones([4]), initDeviceMesh('cpu', [2]), [Shard(0)]);
 *   return (swish(t) as Tensor).toLocal().shape;
 * }); // [[2], [2]]
 */
export function registerSharding<Op extends AnyCustomOp>(
  op: Op,
  rule: Parameters<Op['registerSharding']>[0],
): Op {
  op.registerSharding(rule as never);
  return op;
}
