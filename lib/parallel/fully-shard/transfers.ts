/**
 * Copies between the layouts of a collective and of parameters. A collective's buffer has one row
 * for each rank, with the shards of several parameters one after the other; in the unsharded buffer
 * each parameter is contiguous.
 */
import { chunkCat, splitWithSizesCopy, type Tensor } from '../../index.js';
import type { Layout } from './flat-shard.js';
import type { ShardedParameter } from './sharded-parameter.js';

/** Fills a part of the buffer of whole parameters from gathered rows, again and again. */
export class CopyOut {
  private readonly rows: Tensor;
  private readonly sizes: readonly number[];
  /** The rows of each parameter in the buffer of whole parameters. */
  private readonly targets: readonly Tensor[];
  private readonly parameters: readonly ShardedParameter[];
  private readonly ranks: number;
  private readonly isByRows: boolean;

  /** @param gathered, whole - flat tensors whose memory may come and go */
  constructor(
    parameters: readonly ShardedParameter[],
    { copied, copiedNumel, inWhole }: Layout,
    ranks: number,
    gathered: Tensor,
    whole: Tensor,
  ) {
    this.parameters = copied.map((i) => parameters[i] as ShardedParameter);
    this.ranks = ranks;
    this.rows = gathered.view([ranks, copiedNumel]);
    this.sizes = this.parameters.map(({ paddedNumel }) => paddedNumel);
    this.targets = this.parameters.map(({ paddedNumel }, i) =>
      whole
        .narrow(0, inWhole[copied[i] as number] as number, paddedNumel * ranks)
        .view([ranks, paddedNumel]),
    );
    this.isByRows = this.parameters.every(({ dim }) => dim === 0);
  }

  run(): void {
    const { rows, sizes, targets } = this;
    if (this.isByRows) splitWithSizesCopy(rows, sizes, 1, { out: targets });
    else for (const [i, shards] of rows.split(sizes, 1).entries()) this.copyOne(i, shards);
  }

  private copyOne(i: number, shards: Tensor): void {
    const { dim, shape, paddedShape } = this.parameters[i] as ShardedParameter;
    const target = this.targets[i] as Tensor;
    if (dim === 0) target.copy_(shards);
    else
      target.view(shape).copy_(
        shards
          .reshape([this.ranks, ...paddedShape])
          .movedim(0, dim)
          .reshape(shape),
      );
  }
}

/**
 * Packs gradients into `packed`: a row for each rank with its chunk of each gradient, padded by
 * zeros.
 */
export function packGradients(
  grads: readonly Tensor[],
  parameters: readonly ShardedParameter[],
  packed: Tensor,
  ranks: number,
): void {
  const byChunks = grads.map((grad, i) => {
    const { dim, shape, paddedShape } = parameters[i] as ShardedParameter;
    if (dim === 0) return grad;
    const split = shape.flatMap((size, d) =>
      d === dim ? [ranks, paddedShape[d] as number] : size,
    );
    return grad.reshape(split).movedim(dim, 0);
  });
  chunkCat(byChunks, 0, ranks, { out: packed.view([ranks, packed.numel() / ranks]) });
}
