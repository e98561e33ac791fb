/**
 * What ranks agree on while one after the other runs out of inputs. Before its collectives, each
 * rank publishes which they are; ranks that have ended take part in those. Ranks that train never
 * read the codes: reading would block them, and `local` ranks cannot block.
 */
import { allGatherIntoTensor, type ProcessGroup, withPurpose } from '../../distributed/index.js';
import { int32, noGrad, type Tensor, tensor, zeros } from '../../index.js';

/** What the next collectives of a rank are. */
export const ROUND = { ended: 0, buffers: 1, gradients: 2 } as const;
export type Round = (typeof ROUND)[keyof typeof ROUND];

const PURPOSE =
  'of what each rank does next, in join() of DistributedDataParallel. All ranks must call ' +
  'join(), and those that have inputs run as many backward passes for a forward pass.';

export class JoinRounds {
  private readonly group: ProcessGroup;
  /** A tensor on the device of the model. */
  private readonly like: Tensor;
  private readonly dividesByActive: boolean;
  /** The factor of averages over all ranks that gives those over the ranks with inputs. */
  private factor: Tensor | null = null;

  constructor(group: ProcessGroup, like: Tensor, dividesByActive: boolean) {
    this.group = group;
    this.like = like;
    this.dividesByActive = dividesByActive;
  }

  /** The codes of all ranks. */
  private gather(code: number): Tensor {
    const { group, like } = this;
    return noGrad(() => {
      const codes = zeros([group.size], { dtype: int32, device: like.device });
      const own = tensor([code], { dtype: int32, device: like.device });
      withPurpose(PURPOSE, () => allGatherIntoTensor(codes, own, { group }));
      return codes;
    });
  }

  /** Publishes that backward reduces gradients next. */
  publishGradients(): void {
    const codes = this.gather(ROUND.gradients);
    if (this.dividesByActive)
      this.factor = noGrad(() =>
        codes.ne(0).sum().to(this.like.dtype).reciprocal().mul(this.group.size),
      );
  }

  /**
   * Publishes that buffers are copied next. Returns whether this rank has those that all get: the
   * first rank with inputs has them.
   */
  publishBuffers(): Tensor {
    return noGrad(() => {
      const active = this.gather(ROUND.buffers).ne(0);
      return active.cumsum(0).eq(1).logicalAnd(active).select(0, this.group.rank);
    });
  }

  /** What {@link publishBuffers} gives a rank that has no inputs any more. */
  notSource(): Tensor {
    return tensor(false, { device: this.like.device });
  }

  /** Divides an average over all ranks by the number of ranks with inputs instead, if asked for. */
  rescale(average: Tensor): void {
    if (this.factor !== null) average.mul_(this.factor);
  }

  /** Publishes a number and resolves to those of all ranks. */
  async exchange(code: number): Promise<number[]> {
    return [...((await this.gather(code).read()) as Int32Array)];
  }
}
