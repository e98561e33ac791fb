/** Ops with hand-written sharding rules, and calls of them: what propagation is tested with. */
import { cpu } from '../../../lib/core/device.js';
import { type DType, float32 } from '../../../lib/core/dtype.js';
import type { AnyOp, Op } from '../../../lib/core/op.js';
import { Partial, type Placement, Replicate, Shard } from '../../../lib/core/placement.js';
import { broadcastShapes, contiguousStrides, type Shape } from '../../../lib/core/shape.js';
import type { MeshDimContext, ShardingRule, Strategy } from '../../../lib/core/sharding-rule.js';
import { Tensor } from '../../../lib/core/tensor.js';
import { type Decision, propagate } from '../../../lib/dtensor/propagation/propagate.js';
import type { DTensorSpec } from '../../../lib/dtensor/spec/spec.js';

const [R, P] = [Replicate(), Partial()];

let nextId = 1_000_000;

type Toy<T> = {
  name: string;
  shape: (inputs: readonly Tensor[], params: T) => Shape[];
  sharding?: ShardingRule<T>;
  decompose?: Op<T>['decompose'];
  mutates?: Op<T>['mutates'];
};

export function toyOp<T>({ name, shape, sharding, decompose, mutates }: Toy<T>): AnyOp {
  const meta = (inputs: readonly Tensor[], params: T) =>
    shape(inputs, params).map((sizes) => ({
      shape: sizes,
      strides: null,
      dtype: (inputs[0] as Tensor).dtype,
      device: cpu,
    }));
  return {
    id: nextId++,
    name,
    traits: [],
    params: {
      kernelParams: [],
      append: null,
      keyed: ['dim', 'dims', 'count', 'alpha', 'fn'],
      hasRandomState: false,
    },
    meta,
    view: null,
    sharding: sharding ?? null,
    decompose: decompose ?? null,
    mutates: mutates ?? null,
  } as unknown as AnyOp;
}

export function metadata(shape: Shape, dtype: DType = float32): Tensor {
  return new Tensor(shape, contiguousStrides(shape), 0, dtype, cpu, null);
}

/** Propagates through a call whose inputs are such distributed tensors; null is the number 2. */
export function decisionOf(
  op: AnyOp,
  specs: readonly (DTensorSpec | null)[],
  params: object = {},
  into: DTensorSpec | null = null,
): Decision {
  const inputs = specs.map((spec) =>
    spec === null ? metadata([]) : metadata(spec.shape, spec.dtype),
  );
  return propagate(op, inputs, specs, params, into);
}

const strategy = (inputs: Placement[], ...outputs: Placement[]): Strategy<never> => ({
  inputs,
  outputs,
});

/** Broadcasts, and keeps Partial sums, like an addition. */
function addStrategies(inputs: readonly Tensor[]): Strategy<never>[] {
  const shape = inputs.reduce<Shape>((all, { shape }) => broadcastShapes(all, shape, 'add'), []);
  const cuts = shape.map((size, dim) => {
    const own = inputs.map((t): Placement => {
      const ownDim = dim - (shape.length - t.ndim);
      return ownDim >= 0 && (t.shape[ownDim] === size || size === 1) ? Shard(ownDim) : R;
    });
    return strategy(own, Shard(dim));
  });
  return [
    ...cuts,
    strategy(
      inputs.map(() => P),
      P,
    ),
  ];
}

const broadcast = (inputs: readonly Tensor[]): Shape[] => [
  inputs.reduce<Shape>((all, { shape }) => broadcastShapes(all, shape, 'add'), []),
];

export const add = toyOp({
  name: 'add',
  shape: broadcast,
  sharding: { strategies: addStrategies },
});

/** Not linear: Partial inputs are reduced first. */
export const relu = toyOp({
  name: 'relu',
  shape: ([x]) => [(x as Tensor).shape],
  sharding: {
    strategies: ([x]) => (x as Tensor).shape.map((_, dim) => strategy([Shard(dim)], Shard(dim))),
  },
});

export const matmul = toyOp({
  name: 'matmul',
  shape: ([a, b]) => [[(a as Tensor).shape[0] as number, (b as Tensor).shape[1] as number]],
  sharding: {
    strategies: () => [
      strategy([Shard(0), R], Shard(0)),
      strategy([R, Shard(1)], Shard(1)),
      strategy([Shard(1), Shard(0)], P),
      strategy([P, R], P),
      strategy([R, P], P),
    ],
  },
});

/** Along dim 0. The mean of means is the mean only for equal shards. */
export const mean = toyOp({
  name: 'mean',
  shape: ([x]) => [(x as Tensor).shape.slice(1)],
  sharding: {
    strategies: ([x], _params: never, mesh: MeshDimContext) => {
      const { shape } = x as Tensor;
      const rest = shape.slice(1).map((_, dim) => strategy([Shard(dim + 1)], Shard(dim)));
      return mesh.divides(0, 0, shape[0] as number)
        ? [strategy([Shard(0)], Partial('avg')), ...rest]
        : rest;
    },
  },
});

/** Along dim 0; decomposes into means if that dim is sharded. */
export const variance = toyOp({
  name: 'variance',
  shape: ([x]) => [(x as Tensor).shape.slice(1)],
  decompose: (inputs) => inputs,
  sharding: {
    strategies: ([x]) =>
      (x as Tensor).shape.slice(1).map((_, dim) => strategy([Shard(dim + 1)], Shard(dim))),
    decomposes: true,
    reducedFirst: [0],
  },
});

export const lookUpRows: NonNullable<Strategy<object>['run']> = (inputs) => inputs;

/** Rows of a table; if the rows are sharded, each rank looks up its own. */
export const embedding = toyOp({
  name: 'embedding',
  shape: ([table, index]) => [
    [(index as Tensor).shape[0] as number, (table as Tensor).shape[1] as number],
  ],
  sharding: {
    strategies: () => [
      strategy([R, Shard(0)], Shard(0)),
      strategy([Shard(1), R], Shard(1)),
      { ...strategy([Shard(0), R], P), run: lookUpRows },
    ],
  },
});

/** Overwrites its first two inputs. */
export const step = toyOp({
  name: 'step',
  shape: () => [],
  mutates: () => [0, 1],
  sharding: {
    strategies: ([x]) =>
      (x as Tensor).shape.map((_, dim) => strategy([Shard(dim), Shard(dim), Shard(dim)])),
  },
});

export const cumsum = toyOp({
  name: 'cumsum',
  shape: ([x]) => [(x as Tensor).shape],
  sharding: {
    strategies: ([x]) =>
      (x as Tensor).shape.slice(1).map((_, dim) => strategy([Shard(dim + 1)], Shard(dim + 1))),
  },
});

export const withoutRule = toyOp({ name: 'mystery', shape: ([x]) => [(x as Tensor).shape] });
export const withDecomposition = toyOp({
  name: 'composed',
  shape: ([x]) => [(x as Tensor).shape],
  decompose: (inputs) => inputs,
});
