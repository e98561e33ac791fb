/**
 * The shards of a group's parameters in one flat tensor, so that one collective moves them without
 * copies before it.
 */
import { type Device, type DType, noGrad, type Tensor, zeros } from '../../index.js';
import { localOf, type ShardedParameter } from './sharded-parameter.js';

/** Where the parameters of a group lie, in elements. */
export interface Layout {
  /** The start of each parameter in a rank's flat shard. */
  readonly inShard: readonly number[];
  /**
   * The start of each parameter in the unsharded buffer: aligned, for kernels that load 16 bytes.
   */
  readonly inWhole: readonly number[];
  readonly shardNumel: number;
  readonly wholeNumel: number;
}

/** 128 bytes of two-byte elements. */
const ALIGNMENT = 64;

export function layoutOf(parameters: readonly ShardedParameter[], ranks: number): Layout {
  const inShard: number[] = [];
  const inWhole: number[] = [];
  let [shardNumel, wholeNumel] = [0, 0];
  for (const { paddedNumel } of parameters) {
    inShard.push(shardNumel);
    inWhole.push(wholeNumel);
    shardNumel += paddedNumel;
    wholeNumel += Math.ceil((paddedNumel * ranks) / ALIGNMENT) * ALIGNMENT;
  }
  return { inShard, inWhole, shardNumel, wholeNumel };
}

/** The path of the parameter that lies at an offset. */
export function pathAt(
  parameters: readonly ShardedParameter[],
  starts: readonly number[],
  offset: number,
): string {
  const i = starts.findLastIndex((start) => start <= offset);
  return (parameters[i] as ShardedParameter).pathAt(offset - (starts[i] as number));
}

/** The flat shard of a group. Its parameters are views of it. */
export class FlatShard {
  readonly tensor: Tensor;
  private readonly parameters: readonly ShardedParameter[];

  /** Copies the shards of the parameters together, and makes the parameters views of the copy. */
  constructor(
    parameters: readonly ShardedParameter[],
    layout: Layout,
    shardOf: (parameter: ShardedParameter) => Tensor,
    options: { dtype: DType; device: Device; pinMemory: boolean },
    explain: (path: string) => string,
  ) {
    this.parameters = parameters;
    const { pinMemory, ...where } = options;
    this.tensor = noGrad(() => {
      const flat = zeros([layout.shardNumel], where);
      return pinMemory ? flat.pinMemory() : flat;
    });
    this.tensor
      .untypedStorage()
      .explainErrors((offset) => explain(pathAt(parameters, layout.inShard, offset)));
    noGrad(() => {
      for (const [i, parameter] of parameters.entries()) {
        const sharded = parameter.distributed(this.tensor, layout.inShard[i] as number);
        localOf(sharded).copy_(shardOf(parameter));
        parameter.parameter.grad = null;
        parameter.parameter.data = sharded;
      }
    });
  }

  /**
   * Whether the parameters are still views of it: `module.to` and loading may replace their memory.
   */
  isCurrent(): boolean {
    const storage = this.tensor.untypedStorage();
    return this.parameters.every(({ parameter }) => parameter.untypedStorage() === storage);
  }
}
