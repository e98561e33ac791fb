/**
 * How a mesh dimension holds a tensor: cut along a dim, in copies, or as terms of a reduction that
 * is still to be done. Interned, so `===` compares them.
 *
 * @see PyTorch `torch.distributed.tensor.placement_types`
 */
import { type Interned, interned } from './interned.js';
import { checkNumber, checkOneOf } from './options.js';

/** How values of several ranks become one. */
export type ReduceOpName = 'sum' | 'avg' | 'product' | 'min' | 'max';

export const reduceOpNames: readonly ReduceOpName[] = ['sum', 'avg', 'product', 'min', 'max'];

/** What the three kinds have in common. */
export abstract class Placement {
  /** The kind of the placement. */
  abstract readonly kind: 'shard' | 'replicate' | 'partial';
  /** @internal small and different for each placement: what keys of caches are made of */
  readonly id: number;

  /** @internal */
  constructor(id: number) {
    this.id = id;
  }

  /** Whether it cuts the tensor, along `dim` if that is given. */
  isShard(_dim?: number | null): this is Shard {
    return false;
  }

  /** Whether each rank holds the whole tensor. */
  isReplicate(): this is Replicate {
    return this.kind === 'replicate';
  }

  /** Whether a reduction is still to be done, `reduceOp` if that is given. */
  isPartial(_reduceOp?: ReduceOpName | null): this is Partial {
    return false;
  }

  /** The placement as code: `Shard(0)`, `Replicate()`, `Partial(sum)`. */
  abstract toString(): string;

  /** @internal */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }
}

class ShardPlacement extends Placement {
  readonly kind = 'shard';
  /** The tensor dim; negative ones count from the end. */
  readonly dim: number;

  constructor(dim: number) {
    super(dim >= 0 ? FIRST_SHARD_ID + 2 * dim : FIRST_SHARD_ID - 1 - 2 * dim);
    this.dim = dim;
  }

  override isShard(dim?: number | null): this is Shard {
    return dim === undefined || dim === null || dim === this.dim;
  }

  override toString(): string {
    return `Shard(${this.dim})`;
  }
}

class ReplicatePlacement extends Placement {
  readonly kind = 'replicate';

  override toString(): string {
    return 'Replicate()';
  }
}

class PartialPlacement extends Placement {
  readonly kind = 'partial';
  /** The reduction that is still to be done. */
  readonly reduceOp: ReduceOpName;

  constructor(reduceOp: ReduceOpName) {
    super(1 + reduceOpNames.indexOf(reduceOp));
    this.reduceOp = reduceOp;
  }

  override isPartial(reduceOp?: ReduceOpName | null): this is Partial {
    return reduceOp === undefined || reduceOp === null || reduceOp === this.reduceOp;
  }

  override toString(): string {
    return `Partial(${this.reduceOp})`;
  }
}

export type Shard = ShardPlacement;
export type Replicate = ReplicatePlacement;
export type Partial = PartialPlacement;

const FIRST_SHARD_ID = 16;
const MOST_DIMS = 64;
const shards = new Map<number, ShardPlacement>();
const replicate = new ReplicatePlacement(0);
const partials = new Map(reduceOpNames.map((name) => [name, new PartialPlacement(name)]));

function findShard(dim: number): ShardPlacement {
  let found = shards.get(dim);
  if (found === undefined) {
    checkNumber('Shard', 'dim', dim, { from: -MOST_DIMS, to: MOST_DIMS - 1, whole: true });
    found = new ShardPlacement(dim);
    shards.set(dim, found);
  }
  return found;
}

/**
 * Each rank of the mesh dimension holds a piece along tensor dim `dim`: of `n` elements among `k`
 * ranks, rank `r` has those from `r * ceil(n / k)` on, at most `ceil(n / k)` of them. The last
 * ranks may hold less, or nothing.
 *
 * @throws ArgumentError unless `dim` is a whole number
 * @see PyTorch `torch.distributed.tensor.Shard`
 */
export const Shard: Interned<[dim: number], Shard> = interned(
  'Shard',
  findShard,
  ShardPlacement.prototype,
);

/**
 * Each rank of the mesh dimension holds all of it. @see PyTorch
 * `torch.distributed.tensor.Replicate`
 */
export const Replicate: Interned<[], Replicate> = interned(
  'Replicate',
  () => replicate,
  ReplicatePlacement.prototype,
);

/**
 * Each rank of the mesh dimension holds a term; the tensor is their reduction by `reduceOp`.
 *
 * @throws ArgumentError for an unknown reduction
 * @see PyTorch `torch.distributed.tensor.Partial`
 */
export const Partial: Interned<[reduceOp?: ReduceOpName], Partial> = interned(
  'Partial',
  (reduceOp: ReduceOpName = 'sum') => {
    checkOneOf('Partial', 'reduceOp', reduceOp, reduceOpNames);
    return partials.get(reduceOp) as Partial;
  },
  PartialPlacement.prototype,
);
