/** Where parameters lie in a flat parameter, with padding, and which of them a shard holds. */
import type { Shape } from '../../index.js';

/** Bytes to which parameters are aligned. */
const ALIGNMENT_BYTES = 16;

/** The elements of {@link ALIGNMENT_BYTES} in a dtype of `itemsize` bytes. */
export function alignedNumel(itemsize: number): number {
  return ALIGNMENT_BYTES / itemsize;
}

/** A range of a flat parameter. */
export interface FlatRange {
  readonly start: number;
  readonly numel: number;
}

/** Where parameters lie, in elements. */
export interface FlatLayout {
  /** A range for each parameter, in order. */
  readonly parameters: readonly FlatRange[];
  readonly padding: readonly FlatRange[];
  readonly numel: number;
}

/**
 * Lays parameters out one after the other. With `alignment`, each starts at a multiple of it, and
 * the whole is a multiple of `ranks`; without, there is no padding.
 */
export function layOut(
  numels: readonly number[],
  alignment: number | null,
  ranks: number,
): FlatLayout {
  const parameters: FlatRange[] = [];
  const padding: FlatRange[] = [];
  let total = 0;
  const padTo = (multiple: number): void => {
    const numel = (multiple - (total % multiple)) % multiple;
    if (numel > 0) padding.push({ start: total, numel });
    total += numel;
  };
  for (const numel of numels) {
    if (alignment !== null) padTo(alignment);
    parameters.push({ start: total, numel });
    total += numel;
  }
  if (alignment !== null) padTo(ranks);
  return { parameters, padding, numel: total };
}

/**
 * The part of a parameter that a shard holds. All but `inShard` are null if it holds none.
 *
 * @see PyTorch `torch.distributed.fsdp._flat_param._ShardParamInfo`
 */
export interface ShardParamInfo {
  /** Whether it holds any. */
  readonly inShard: boolean;
  /** The start in the shard. */
  readonly offsetInShard: number | null;
  /** The number of elements. */
  readonly numelInShard: number | null;
  /** The first element of the parameter. */
  readonly intraParamStartIdx: number | null;
  /** The last element of the parameter, inclusive. */
  readonly intraParamEndIdx: number | null;
}

const NOT_IN_SHARD: ShardParamInfo = Object.freeze({
  inShard: false,
  offsetInShard: null,
  numelInShard: null,
  intraParamStartIdx: null,
  intraParamEndIdx: null,
});

/** The part of each parameter in the elements from `start` to `end`, inclusive. */
export function shardParamInfos(
  { parameters }: FlatLayout,
  start: number,
  end: number,
): ShardParamInfo[] {
  return parameters.map((range) => {
    const last = range.start + range.numel - 1;
    const [from, to] = [Math.max(start, range.start), Math.min(end, last)];
    if (from > to) return NOT_IN_SHARD;
    return {
      inShard: true,
      offsetInShard: from - start,
      numelInShard: to - from + 1,
      intraParamStartIdx: from - range.start,
      intraParamEndIdx: to - range.start,
    };
  });
}

/**
 * The parameters that a shard holds, in order: names, shapes and numbers of elements of the whole
 * parameters, and the first and last element in the shard, inclusive. Padding is left out.
 *
 * @see PyTorch `torch.distributed.fsdp._flat_param.FlatParamShardMetadata`
 */
export class FlatParamShardMetadata {
  /** Dotted paths from the module. */
  readonly paramNames: readonly string[];
  /** The shapes of the whole parameters. */
  readonly paramShapes: readonly Shape[];
  /** Their numbers of elements. */
  readonly paramNumels: readonly number[];
  /** The first and last element that the shard holds. */
  readonly paramOffsets: readonly (readonly [first: number, last: number])[];

  constructor(fields: {
    paramNames: readonly string[];
    paramShapes: readonly Shape[];
    paramNumels: readonly number[];
    paramOffsets: readonly (readonly [first: number, last: number])[];
  }) {
    this.paramNames = fields.paramNames;
    this.paramShapes = fields.paramShapes;
    this.paramNumels = fields.paramNumels;
    this.paramOffsets = fields.paramOffsets;
  }
}
