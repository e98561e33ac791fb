/**
 * Layouts of module inputs and outputs: distributes plain tensors, redistributes distributed ones,
 * and takes their local shards.
 */
import { shown, unexpected } from '../../core/options.js';
import { contiguousStrides } from '../../core/shape.js';
import type { DeviceMesh } from '../../distributed/index.js';
import { DTensor, Placement } from '../../dtensor/index.js';
import { ArgumentError, type nn, type Shape, ShardingError, Tensor } from '../../index.js';

/** The placement of a plain tensor, and the desired one; null keeps the given one. */
export interface Layouts {
  readonly given: Placement;
  readonly desired: Placement | null;
}

/** @throws ArgumentError unless it is a placement */
export function checkPlacement(
  op: string,
  name: string,
  value: unknown,
): asserts value is Placement {
  if (!(value instanceof Placement))
    throw unexpected(op, name, 'a placement, such as Replicate() or Shard(0)', value);
}

/**
 * A tensor in the desired placement. A plain tensor is the local shard of a distributed one placed
 * as `layouts.given`. A distributed tensor keeps its placement if `given` and `desired` are equal.
 *
 * @param features - the size of the whole last dim, if known; local shards along it may then differ
 * in size
 */
export function intoLayout(
  t: Tensor,
  mesh: DeviceMesh,
  { given, desired }: Layouts,
  features: number | null = null,
): Tensor {
  const whole =
    t instanceof DTensor
      ? t
      : DTensor.fromLocal(t, mesh, [given], wholeShapeOf(t, given, features));
  return desired === null || desired === given ? whole : inPlacement(whole, desired);
}

function wholeShapeOf(
  t: Tensor,
  given: Placement,
  features: number | null,
): { shape?: Shape; stride?: Shape } {
  if (features === null || !shardsLastDim(given, t)) return {};
  const shape = [...t.shape.slice(0, -1), features];
  return { shape, stride: contiguousStrides(shape) };
}

/** `Linear at "blocks.0.up"`, for errors. */
export const moduleAt = (module: nn.AnyModule, path: string): string =>
  `${module.constructor.name}${path === '' ? '' : ` at "${path}"`}`;

/** The module of an input, and the number of features of the whole input. */
export interface InputOf {
  readonly op: string;
  readonly name: string;
  readonly features: number;
}

/**
 * @throws ShardingError if `given` shards the features, and a plain input does not have those of
 * the local shard
 */
export function requireFeatures(
  { op, name, features }: InputOf,
  mesh: DeviceMesh,
  given: Placement,
  t: Tensor,
): void {
  const coordinate = mesh.getCoordinate();
  if (t instanceof DTensor || coordinate === null || !shardsLastDim(given, t)) return;
  const most = Math.ceil(features / mesh.size());
  const own = Math.max(0, Math.min(most, features - (coordinate[0] as number) * most));
  const last = t.shape.at(-1);
  if (last === own) return;
  const hint =
    last === features
      ? `Each rank has all features: use ${op}({ inputLayouts: Replicate() }), or pass the ` +
        'local shard, as the output of a ColwiseParallel layer.'
      : `inputLayouts is the placement of a plain input, here ${given}.`;
  throw new ShardingError(
    `${op}: expected the input of ${name} to be the local shard along its last dim, ${own} ` +
      `of ${features} features, got ${t.dtype.name}${shown(t.shape)}. ${hint}`,
    {
      op,
      expected: own,
      given: last,
    },
  );
}

const shardsLastDim = (given: Placement, t: Tensor): boolean =>
  given.isShard() && (given.dim === -1 || given.dim === t.ndim - 1);

/** The tensor in a placement on its only mesh dim; the same object if it has it already. */
export function inPlacement(t: Tensor, placement: Placement): Tensor {
  const dim = placement.isShard() && placement.dim < 0 ? placement.dim + t.ndim : null;
  const [own] = t.placements;
  return own === placement || (dim !== null && own?.isShard(dim)) ? t : t.redistribute([placement]);
}

/** The local shard if `useLocal`, else the tensor. */
export function localIf(useLocal: boolean, t: Tensor): Tensor {
  return useLocal && t instanceof DTensor ? t.toLocal() : t;
}

/** @throws ArgumentError unless it is a tensor */
export function requireTensor(op: string, name: string, value: unknown): asserts value is Tensor {
  if (!(value instanceof Tensor)) {
    throw new ArgumentError(
      `${op}: expected ${name} to be a tensor, plain or distributed, got ` +
        `${value === null ? 'null' : typeof value}`,
      { op, argument: name },
    );
  }
}
