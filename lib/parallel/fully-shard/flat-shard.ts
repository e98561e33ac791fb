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
  /** Parameters whose shards, one rank after the other, are the whole: gathered where they lie. */
  readonly inPlace: readonly number[];
  /** All others, whose shards are the end of the flat shard: gathered together, then copied. */
  readonly copied: readonly number[];
  /** Elements of the latter in a rank's flat shard. */
  readonly copiedNumel: number;
}

/** 128 bytes of two-byte elements. */
const ALIGNMENT = 64;

/** NCCL moves 16 bytes at a time where all addresses allow it: eight two-byte elements. */
const GATHER_ALIGNMENT = 8;

/**
 * Smaller parameters are copied together in one kernel: each gather of its own takes microseconds,
 * however small it is. 64 KiB of two-byte elements.
 */
const FEWEST_IN_PLACE = 32 * 1024;

/** Whether the shards of all ranks, one after the other, are the whole parameter. */
function isGatheredInPlace({ dim, paddedNumel }: ShardedParameter, ranks: number): boolean {
  return (
    dim === 0 && paddedNumel % GATHER_ALIGNMENT === 0 && paddedNumel * ranks >= FEWEST_IN_PLACE
  );
}

export function layoutOf(parameters: readonly ShardedParameter[], ranks: number): Layout {
  const inPlace: number[] = [];
  const copied: number[] = [];
  const inWhole: number[] = [];
  let wholeNumel = 0;
  for (const [i, parameter] of parameters.entries()) {
    (isGatheredInPlace(parameter, ranks) ? inPlace : copied).push(i);
    inWhole.push(wholeNumel);
    wholeNumel += Math.ceil((parameter.paddedNumel * ranks) / ALIGNMENT) * ALIGNMENT;
  }
  const inShard: number[] = [];
  let shardNumel = 0;
  let copiedStart = 0;
  for (const i of [...inPlace, ...copied]) {
    if (i === copied[0]) copiedStart = shardNumel;
    inShard[i] = shardNumel;
    shardNumel += (parameters[i] as ShardedParameter).paddedNumel;
  }
  const copiedNumel = copied.length === 0 ? 0 : shardNumel - copiedStart;
  return { inShard, inWhole, shardNumel, wholeNumel, inPlace, copied, copiedNumel };
}

/** The path of the parameter that lies at an offset. */
export function pathAt(
  parameters: readonly ShardedParameter[],
  starts: readonly number[],
  offset: number,
): string {
  let [i, last] = [0, 0]; // starts need not be in order
  for (const [at, start] of starts.entries())
    if (start <= offset && start >= last) [i, last] = [at, start];
  return (parameters[i] as ShardedParameter).pathAt(offset - last);
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
