/** What can be saved. */
import type { Generator } from '../../core/random.js';
import type { Tensor } from '../../core/tensor.js';
import type { Stateful } from './paths.js';

/**
 * Keys of maps and elements of sets that a checkpoint saves: objects would be others afterwards.
 */
type Primitive = string | number | boolean | bigint | null | undefined;

/**
 * What a checkpoint saves and loads; objects may be nested. Objects of the language come back as
 * what they were, with their NaN, infinities and -0. Arrays of bytes and numbers are a part of the
 * file's header, so that large ones belong into tensors.
 */
export type CheckpointValue =
  | Tensor
  | Stateful
  | Generator
  | Primitive
  | Date
  | ArrayBuffer
  | ArrayBufferView
  | ReadonlySet<Primitive>
  | ReadonlyMap<Primitive, CheckpointValue>
  | readonly CheckpointValue[]
  | { [name: string]: CheckpointValue };

/** The state of a program by name. */
export type CheckpointState = { [name: string]: CheckpointValue };
