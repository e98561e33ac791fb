/**
 * Layouts on the way into and out of modules: plain tensors become distributed ones, distributed
 * ones are held otherwise or taken apart.
 */
import { shown, unexpected } from '../../core/options.js';
import type { DeviceMesh } from '../../distributed/index.js';
import { DTensor, Placement } from '../../dtensor/index.js';
import { ArgumentError, type nn, type Shape, ShardingError, Tensor } from '../../index.js';

/** What a tensor is said to be, and what it shall be; null leaves it as it is. */
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

function stridesOf(shape: Shape): Shape {
  return shape.map((_, dim) => shape.slice(dim + 1).reduce((a, b) => a * b, 1));
}

/**
 * A plain tensor as the part of a distributed one that `layouts.given` says it is, in the placement
 * that is desired. A distributed tensor is taken as it is and brought there only where both differ.
 *
 * @param features - the whole size of the last dim, where it is known: parts along it may then
 * differ in size
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
  return { shape, stride: stridesOf(shape) };
}

/** `Linear at "blocks.0.up"`, for messages. */
export const moduleAt = (module: nn.AnyModule, path: string): string =>
  `${module.constructor.name}${path === '' ? '' : ` at "${path}"`}`;

/** Who takes an input, and how many features it has in all. */
export interface InputOf {
  readonly op: string;
  readonly name: string;
  readonly features: number;
}

/**
 * @throws ShardingError for a plain input that has other features than this rank's part, where
 * `given` says that they are cut
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

/** The same distributed tensor in another placement on its one mesh dim; itself if it is there. */
export function inPlacement(t: Tensor, placement: Placement): Tensor {
  const dim = placement.isShard() && placement.dim < 0 ? placement.dim + t.ndim : null;
  const [own] = t.placements;
  return own === placement || (dim !== null && own?.isShard(dim)) ? t : t.redistribute([placement]);
}

/** The local part if that is asked for. */
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
