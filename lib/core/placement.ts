/**
 * How a tensor is placed on one mesh dimension: sharded along a dim, replicated, or partial, which
 * means that a reduction is pending. Placements are interned, so `===` compares them.
 *
 * @see PyTorch `torch.distributed.tensor.placement_types`
 */
import { type Interned, interned } from './interned-class.js';
import { checkNumber, checkOneOf } from './options.js';

/** How the values of several ranks are combined. */
export type ReduceOpName = 'sum' | 'avg' | 'product' | 'min' | 'max';

export const reduceOpNames: readonly ReduceOpName[] = ['sum', 'avg', 'product', 'min', 'max'];

/** The base class of Shard, Replicate and Partial. */
export abstract class Placement {
  /** The kind of the placement. */
  abstract readonly kind: 'shard' | 'replicate' | 'partial';
  /** @internal a small number, unique for each placement, for keys of caches */
  readonly id: number;

  /** @internal */
  constructor(id: number) {
    this.id = id;
  }

  /** Whether this is a Shard, along `dim` if that is given. */
  isShard(_dim?: number | null): this is Shard {
    return false;
  }

  /** Whether each rank holds the whole tensor. */
  isReplicate(): this is Replicate {
    return this.kind === 'replicate';
  }

  /** Whether this is a Partial, of `reduceOp` if that is given. */
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
  /** The pending reduction. */
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
 * Each rank of the mesh dimension holds a shard along tensor dim `dim`: of `n` elements on `k`
 * ranks, rank `r` has at most `ceil(n / k)`, beginning with index `r * ceil(n / k)`. The last ranks
 * may have fewer, or none.
 *
 * @throws ArgumentError unless `dim` is a whole number
 * @see PyTorch `torch.distributed.tensor.Shard`
 * @example
 * distributeTensor(ones([4, 3]), mesh, [Shard(0)]).toLocal().shape; // [2, 3]
 */
export const Shard: Interned<[dim: number], Shard> = interned(
  'Shard',
  findShard,
  ShardPlacement.prototype,
);

/**
 * Each rank of the mesh dimension holds the whole tensor.
 *
 * @see PyTorch `torch.distributed.tensor.Replicate`
 * @example
 * distributeTensor(ones([4, 3]), mesh, [Replicate()]).toLocal().shape; // [4, 3]
 */
export const Replicate: Interned<[], Replicate> = interned(
  'Replicate',
  () => replicate,
  ReplicatePlacement.prototype,
);

/**
 * Each rank of the mesh dimension holds a partial value; the tensor is their reduction by
 * `reduceOp`.
 *
 * @throws ArgumentError for an unknown reduction
 * @see PyTorch `torch.distributed.tensor.Partial`
 * @example
 * const sum = DTensor.fromLocal(ones([2]), mesh, [Partial()]);
 * await sum.fullTensor().read(); // [2, 2]
 */
export const Partial: Interned<[reduceOp?: ReduceOpName], Partial> = interned(
  'Partial',
  (reduceOp: ReduceOpName = 'sum') => {
    checkOneOf('Partial', 'reduceOp', reduceOp, reduceOpNames);
    return partials.get(reduceOp) as Partial;
  },
  PartialPlacement.prototype,
);
