/**
 * Copies between the layouts of a collective and of parameters. A collective's buffer has one row
 * for each rank, with the shards of all parameters one after the other; in the unsharded buffer each
 * parameter is contiguous.
 */
import type { Tensor } from '../../index.js';
import type { Layout } from './flat-shard.js';
import type { ShardedParameter } from './sharded-parameter.js';

/** Fills the unsharded buffer `whole` from `gathered`, which has a row for each rank. */
export function copyOut(
  gathered: Tensor,
  whole: Tensor,
  parameters: readonly ShardedParameter[],
  layout: Layout,
  ranks: number,
): void {
  const rows = gathered.view([ranks, layout.shardNumel]);
  for (const [i, { paddedNumel, paddedShape, shape, dim }] of parameters.entries()) {
    const from = rows.narrow(1, layout.inShard[i] as number, paddedNumel);
    const to = whole.narrow(0, layout.inWhole[i] as number, paddedNumel * ranks);
    if (dim === 0) to.view([ranks, paddedNumel]).copy_(from);
    else to.view(shape).copy_(joined(from.reshape([ranks, ...paddedShape]), dim, shape));
  }
}

/** The shards of all ranks in order along `dim`. */
function joined(shards: Tensor, dim: number, shape: readonly number[]): Tensor {
  return shards.movedim(0, dim).reshape(shape);
}

/** Packs gradients into `packed`: a row for each rank, rows of dim 0 padded by zeros. */
export function packGradients(
  grads: readonly Tensor[],
  parameters: readonly ShardedParameter[],
  packed: Tensor,
  ranks: number,
): void {
  let offset = 0;
  const rows = packed.view([ranks, packed.numel() / ranks]);
  for (const [i, { paddedNumel, paddedShape, shape, dim }] of parameters.entries()) {
    const to = rows.narrow(1, offset, paddedNumel);
    offset += paddedNumel;
    const grad = grads[i] as Tensor;
    if (dim !== 0) {
      const split = [
        ...shape.slice(0, dim),
        ranks,
        paddedShape[dim] as number,
        ...shape.slice(dim + 1),
      ];
      to.copy_(grad.reshape(split).movedim(dim, 0).reshape([ranks, paddedNumel]));
    } else if (shape[0] === (paddedShape[0] as number) * ranks) {
      to.copy_(grad.reshape([ranks, paddedNumel]));
    } else {
      packUneven(grad, to, ranks);
    }
  }
}

function packUneven(grad: Tensor, to: Tensor, ranks: number): void {
  const flat = grad.reshape([-1]);
  const each = to.shape[1] as number;
  for (let rank = 0; rank < ranks; rank++) {
    const row = to.select(0, rank);
    const size = Math.max(0, Math.min(each, flat.numel() - rank * each));
    if (size > 0) row.narrow(0, 0, size).copy_(flat.narrow(0, rank * each, size));
    if (size < each) row.narrow(0, size, each - size).zero_();
  }
}
