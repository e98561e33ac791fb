/**
 * Factories of distributed tensors. All ranks of the mesh call them, and each computes its shard.
 * Random numbers depend on the global index of the element, so values are equal on every mesh.
 */
import type { DTypeLike } from '../core/dtype.js';
import { optionsOf } from '../core/options.js';
import { type Placement, Replicate } from '../core/placement.js';
import type { Generator } from '../core/random.js';
import type { Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { type DeviceMesh, getCurrentMesh } from '../distributed/device-mesh/device-mesh.js';
import { empty, full, ones, type TensorOptions, zeros } from '../ops/factories.js';
import type { RandomOptions } from '../ops/random.js';
import { rand, randint, randn } from '../ops/random-factories.js';
import { arange, linspace } from '../ops/ranges.js';
import { runFactory } from './factory-dispatch.js';
import { checkMesh } from './spec/checks.js';

/**
 * Options of the factories of distributed tensors. They throw ArgumentError unless `mesh` is a
 * mesh, ShardingError for placements that do not fit it or are Partial, and else as plain factories
 * do.
 */
export interface DTensorOptions {
  /**
   * The mesh of the tensor, which has the mesh's device. By default that of `mesh.run` around the
   * call.
   */
  mesh?: DeviceMesh;
  /** One placement for each mesh dimension; replicated if left out. */
  placements?: readonly Placement[];
  /** The dtype, as of the plain factory. */
  dtype?: DTypeLike;
  /** Whether autograd records ops on the tensor; for floating types. False by default. */
  requiresGrad?: boolean;
}

/** Options of factories of random numbers. */
export interface DTensorRandomOptions extends DTensorOptions {
  /** The generator, which must have one state on all ranks; by default the default generator. */
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
  return runFactory(op, mesh, placements ?? mesh.shape.map(() => Replicate()), () =>
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
