/**
 * Applies a strategy without ranks: shards whole tensors for each rank of a mesh, runs the op on
 * the shards, and compares the combined results with the whole result.
 */
import { inspect } from 'node:util';
import { dispatch } from '../../../lib/core/dispatch.js';
import type { AnyOp } from '../../../lib/core/op.js';
import type { Placement, ReduceOpName } from '../../../lib/core/placement.js';
import type { MeshDimContext, ShardMeta, Strategy } from '../../../lib/core/sharding-rule.js';
import { bool, cat, type Tensor, uint8 } from '../../../lib/index.js';

/** One strategy for each mesh dimension, which together make a call. */
export type StrategyChoice = readonly Strategy<object>[];

/** The chunk rule: where the chunk of a rank begins and ends. */
function chunk(size: number, ranks: number, rank: number): [number, number] {
  const most = Math.ceil(size / ranks);
  return [Math.min(size, rank * most), Math.min(size, (rank + 1) * most)];
}

function wholeShard({ shape }: Tensor): ShardMeta {
  return { shape, offsets: shape.map(() => 0), globalShape: shape };
}

/** The shard of a shard on a rank of one more mesh dimension. */
function shardOfShard(
  shard: ShardMeta,
  placement: Placement,
  ranks: number,
  rank: number,
): ShardMeta {
  if (!placement.isShard()) return shard;
  const { dim } = placement;
  const [start, end] = chunk(shard.shape[dim] as number, ranks, rank);
  return {
    ...shard,
    shape: shard.shape.with(dim, end - start),
    offsets: shard.offsets.with(dim, (shard.offsets[dim] as number) + start),
  };
}

/**
 * What each rank of one more mesh dimension holds of a tensor; terms differ by `seed`, as two
 * operands with equal terms would hide mistakes.
 */
export function distribute(t: Tensor, placement: Placement, ranks: number, seed: number): Tensor[] {
  if (t.storage !== null && placement.isPartial()) return terms(t, placement.reduceOp, ranks, seed);
  return Array.from({ length: ranks }, (_, rank) => {
    if (!placement.isShard()) return t;
    const [start, end] = chunk(t.shape[placement.dim] as number, ranks, rank);
    return t.narrow(placement.dim, start, end - start).contiguous();
  });
}

/** Numbers that are the same in each run, other ones for each seed. */
function noise(like: Tensor, seed: number, low: number, high: number): Tensor {
  const steps = like
    .newOnes([like.numel()])
    .double()
    .cumsum(0)
    .add(seed * 31);
  const unit = steps.mul(12.9898).sin().abs();
  return unit
    .mul(high - low)
    .add(low)
    .reshape(like.shape)
    .to(like.dtype);
}

/** Terms of which none needs to be the tensor, but whose reduction is. */
function terms(t: Tensor, reduction: ReduceOpName, ranks: number, seed: number): Tensor[] {
  const others = Array.from({ length: ranks - 1 }, (_, i) => i + 5 * seed);
  const exact = !t.dtype.isFloatingPoint;
  if (reduction === 'avg' && exact) return [t, ...others.map(() => t)];
  if (t.dtype === bool)
    return [
      t,
      ...others.map(() => (reduction === 'min' || reduction === 'product' ? t.eq(t) : t.ne(t))),
    ];
  switch (reduction) {
    case 'max':
    case 'min': {
      const [sign, end] = reduction === 'max' ? [-1, 0] : [1, 255];
      // Unsigned numbers would wrap around.
      const away = others.map((i) =>
        t.dtype === uint8 ? t.newFull(t.shape, end) : t.add(noise(t, i, 0, 3), { alpha: sign }),
      );
      return [...away.slice(0, 1), t, ...away.slice(1)];
    }
    case 'avg':
      return terms(t.mul(ranks), 'sum', ranks, seed);
    case 'sum': {
      const parts = others.map((i) => noise(t, i, -3, 3));
      return [...parts, parts.reduce((rest, part) => rest.sub(part), t)];
    }
    case 'product': {
      const factors = others.map((i) =>
        exact ? t.newOnes(t.shape) : noise(t, i, 0.5, 2).mul(i % 2 ? 1 : -1),
      );
      return [...factors, exact ? t : factors.reduce((rest, factor) => rest.div(factor), t)];
    }
  }
}

const pairwise: Record<Exclude<ReduceOpName, 'avg'>, (a: Tensor, b: Tensor) => Tensor> = {
  sum: (a, b) => a.add(b),
  product: (a, b) => a.mul(b),
  max: (a, b) => a.maximum(b),
  min: (a, b) => a.minimum(b),
};

/** Means of integers are only taken of equal ones. */
function reduce(parts: readonly Tensor[], reduction: ReduceOpName): Tensor {
  const exact = parts[0]?.dtype.isFloatingPoint === false;
  if (reduction === 'avg')
    return exact ? parts.reduce(pairwise.max) : parts.reduce(pairwise.sum).div(parts.length);
  return parts.reduce(pairwise[reduction]);
}

/** The tensor that the ranks of one mesh dimension hold together. */
export function collect(parts: readonly Tensor[], placement: Placement, what: string): Tensor {
  if (placement.isShard()) return cat(parts, placement.dim);
  if (placement.isPartial()) return reduce(parts, placement.reduceOp);
  for (const copy of parts) assertSame(copy, parts[0] as Tensor, `${what}, copies`);
  return parts[0] as Tensor;
}

export function assertSame(a: Tensor, b: Tensor, what: string): void {
  const alike = a.dtype === b.dtype && a.shape.join() === b.shape.join();
  if (!alike || !a.allclose(b, { rtol: 1.3e-6, atol: 1e-5, equalNan: true }))
    throw new Error(`${what}: ${a.dtype}[${a.shape}] ${a}\nexpected ${b.dtype}[${b.shape}] ${b}`);
}

/** The context of a mesh dimension after the given strategies of earlier mesh dimensions. */
export function contextOf(
  ranks: number,
  before: readonly { strategy: Strategy<object>; ranks: number }[] = [],
): MeshDimContext {
  const parts = (input: number, dim: number): number =>
    before.reduce(
      (n, outer) => (outer.strategy.inputs[input]?.isShard(dim) ? n * outer.ranks : n),
      ranks,
    );
  return { ranks, divides: (input, dim, size) => size % parts(input, dim) === 0 };
}

/** The strategies of an op for a mesh dimension. */
export function strategiesOf(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  context: MeshDimContext,
): readonly Strategy<object>[] {
  return op.sharding?.strategies(inputs, params, context) ?? [];
}

/** Whether strategies of two mesh dimensions go together. */
export function goTogether(a: Strategy<object>, b: Strategy<object>): boolean {
  return a.run === undefined || b.run === undefined || a.run === b.run;
}

/** A call on whole tensors, and its results. */
export interface Call {
  op: AnyOp;
  inputs: readonly Tensor[];
  params: object;
  expected: readonly Tensor[];
}

function runLocally(
  { op, params }: Call,
  locals: readonly Tensor[],
  inputs: readonly ShardMeta[],
  outputs: readonly ShardMeta[],
  choice: StrategyChoice,
): readonly Tensor[] {
  const call = { inputs, outputs };
  const run = choice.find((strategy) => strategy.run !== undefined)?.run;
  if (run !== undefined) return run(locals, params, call);
  return dispatch(op, locals, op.sharding?.localParams?.(params, call) ?? params);
}

/**
 * Runs a call on every rank of a mesh and compares what the ranks then hold together with its
 * results on the whole tensors.
 *
 * @throws Error if they differ, or if the results of a rank do not have the sizes that the chunk
 * rule says
 */
export function checkStrategies(call: Call, choice: StrategyChoice, mesh: readonly number[]): void {
  const described = choice
    .map((s, i) => `(${s.inputs.join(', ')}) -> (${s.outputs.join(', ')}) on ${mesh[i]} ranks`)
    .join(', then ');
  const what = `${call.op.name} of ${call.inputs.map((t) => `[${t.shape}]`).join(' ')}, ${inspect(call.params, { depth: 1, breakLength: Infinity })}: ${described}`;

  /** What all ranks below one rank of the outer mesh dimensions hold together. */
  const below = (
    locals: readonly Tensor[],
    inputs: readonly ShardMeta[],
    outputs: readonly ShardMeta[],
    meshDim: number,
  ): readonly Tensor[] => {
    const strategy = choice[meshDim];
    if (strategy === undefined) {
      const results = runLocally(call, locals, inputs, outputs, choice);
      results.forEach((t, i) => {
        const { shape } = outputs[i] as ShardMeta;
        if (t.shape.join() !== shape.join())
          throw new Error(`${what}: a rank has output ${i} in shape [${t.shape}], not [${shape}]`);
      });
      return results;
    }
    const ranks = mesh[meshDim] as number;
    const held = locals.map((t, i) =>
      distribute(t, strategy.inputs[i] as Placement, ranks, 2 * i + meshDim),
    );
    const perRank = Array.from({ length: ranks }, (_, rank) =>
      below(
        held.map((shards) => shards[rank] as Tensor),
        inputs.map((shard, i) => shardOfShard(shard, strategy.inputs[i] as Placement, ranks, rank)),
        outputs.map((shard, i) =>
          shardOfShard(shard, strategy.outputs[i] as Placement, ranks, rank),
        ),
        meshDim + 1,
      ),
    );
    return outputs.map((_, i) =>
      collect(
        perRank.map((results) => results[i] as Tensor),
        strategy.outputs[i] as Placement,
        `${what}, output ${i}`,
      ),
    );
  };

  const results = below(call.inputs, call.inputs.map(wholeShard), call.expected.map(wholeShard), 0);
  results.forEach((t, i) => assertSame(t, call.expected[i] as Tensor, `${what}, output ${i}`));
}
