/**
 * Distributed tensors from nothing. Each rank makes its own part, and all ranks of the mesh call
 * the factory: random numbers are drawn by the element's place in the whole, so values are those of
 * the plain factory with the same seed, whatever the mesh.
 */
import type { DTypeLike } from '../core/dtype.js';
import { optionsOf } from '../core/options.js';
import { type Placement, Replicate } from '../core/placement.js';
import type { Generator } from '../core/random.js';
import type { Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { getCurrentMesh } from '../distributed/device-mesh/current-mesh.js';
import type { DeviceMesh } from '../distributed/device-mesh/device-mesh.js';
import {
  arange,
  empty,
  full,
  linspace,
  ones,
  type TensorOptions,
  zeros,
} from '../ops/factories.js';
import { type RandomOptions, rand, randint, randn } from '../ops/random.js';
import { createOn } from './factory-dispatch.js';
import { checkMesh } from './spec/checks.js';

/**
 * Options of the factories of distributed tensors. Bad ones throw: ArgumentError for what is no
 * mesh, ShardingError for placements that do not fit it, or Partial ones; else as those of plain
 * tensors.
 */
export interface DTensorOptions {
  /**
   * The ranks that hold the tensor; its device is theirs. By default that of `mesh.run` around the
   * call.
   */
  mesh?: DeviceMesh;
  /** One for each mesh dimension; replicated if left out. */
  placements?: readonly Placement[];
  /** As of the plain factory. */
  dtype?: DTypeLike;
  /** Whether to record operations on it; for floating types. False by default. */
  requiresGrad?: boolean;
}

/** Options of factories that draw. */
export interface DTensorRandomOptions extends DTensorOptions {
  /** Where numbers come from, the same on all ranks; the default generator if not given. */
  generator?: Generator;
}

function make(
  op: string,
  options: DTensorRandomOptions,
  names: string,
  factory: (options: RandomOptions) => Tensor,
): Tensor {
  const { mesh = getCurrentMesh(op), placements, ...rest } = optionsOf(op, options, names);
  checkMesh(op, mesh);
  return createOn(op, mesh, placements ?? mesh.shape.map(() => Replicate()), () =>
    factory({ ...rest, device: mesh.device }),
  );
}

const NAMES = 'mesh placements dtype requiresGrad';
const plain = (
  op: string,
  options: DTensorOptions,
  factory: (options: TensorOptions) => Tensor,
): Tensor => make(op, options, NAMES, factory);
const drawn = (
  op: string,
  options: DTensorRandomOptions,
  factory: (options: RandomOptions) => Tensor,
): Tensor => make(op, options, `${NAMES} generator`, factory);

/** Zeros, as `zeros`; see {@link DTensorOptions}. @see PyTorch `torch.distributed.tensor.zeros` */
export function dtensorZeros(size: Shape, options: DTensorOptions): Tensor {
  return plain('dtensorZeros', options, (own) => zeros(size, own));
}

/** Ones, as `ones`; see {@link DTensorOptions}. @see PyTorch `torch.distributed.tensor.ones` */
export function dtensorOnes(size: Shape, options: DTensorOptions): Tensor {
  return plain('dtensorOnes', options, (own) => ones(size, own));
}

/**
 * One value everywhere, as `full`; see {@link DTensorOptions}. @see PyTorch
 * `torch.distributed.tensor.full`
 */
export function dtensorFull(
  size: Shape,
  value: number | bigint | boolean,
  options: DTensorOptions,
): Tensor {
  return plain('dtensorFull', options, (own) => full(size, value, own));
}

/**
 * Undefined values, as `empty`; see {@link DTensorOptions}. @see PyTorch
 * `torch.distributed.tensor.empty`
 */
export function dtensorEmpty(size: Shape, options: DTensorOptions): Tensor {
  return plain('dtensorEmpty', options, (own) => empty(size, own));
}

/** `start`, `start + step`, ... below `end`, as `arange`; see {@link DTensorOptions}. */
export function dtensorArange(
  start: number,
  end: number,
  step: number,
  options: DTensorOptions,
): Tensor {
  return plain('dtensorArange', options, (own) => arange(start, end, step, own));
}

/** Evenly spaced values, as `linspace`; see {@link DTensorOptions}. */
export function dtensorLinspace(
  start: number,
  end: number,
  steps: number,
  options: DTensorOptions,
): Tensor {
  return plain('dtensorLinspace', options, (own) => linspace(start, end, steps, own));
}

/**
 * Uniform numbers in [0, 1), as `rand`; see {@link DTensorOptions}. @see PyTorch
 * `torch.distributed.tensor.rand`
 */
export function dtensorRand(size: Shape, options: DTensorRandomOptions): Tensor {
  return drawn('dtensorRand', options, (own) => rand(size, own));
}

/**
 * Normal numbers of mean 0 and standard deviation 1, as `randn`; see {@link DTensorOptions}. @see
 * PyTorch `torch.distributed.tensor.randn`
 */
export function dtensorRandn(size: Shape, options: DTensorRandomOptions): Tensor {
  return drawn('dtensorRandn', options, (own) => randn(size, own));
}

/** Integers in [low, high), as `randint`; see {@link DTensorOptions}. */
export function dtensorRandint(
  low: number,
  high: number,
  size: Shape,
  options: DTensorRandomOptions,
): Tensor {
  return drawn('dtensorRandint', options, (own) => randint(low, high, size, own));
}
