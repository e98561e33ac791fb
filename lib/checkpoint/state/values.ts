/** What can be saved. */
import type { Generator } from '../../core/random.js';
import type { Tensor } from '../../core/tensor.js';
import type { Stateful } from './paths.js';

/** What a checkpoint saves and loads; objects may be nested. */
export type CheckpointValue =
  | Tensor
  | Stateful
  | Generator
  | string
  | number
  | boolean
  | bigint
  | null
  | readonly CheckpointValue[]
  | { [name: string]: CheckpointValue };

/** The state of a program by name. */
export type CheckpointState = { [name: string]: CheckpointValue };
