/**
 * Plain tensors of the program that are distributed for the duration of a capture: the program
 * computes with whole tensors, and the graph with what the tensors are.
 */

import { aliasOf } from '../../core/alias-of.js';
import { ArgumentError } from '../../core/errors.js';
import { Tensor } from '../../core/tensor.js';
import type { Recorder } from '../capture/recorder.js';

/** Makes a distributed tensor over a local shard, as `DTensor.fromLocal` does. */
export type Distribute = (local: Tensor) => Tensor;

/**
 * Borrows a plain tensor and makes it distributed until it gets its fields back. `define` gives its
 * local shard a value.
 */
export function borrowDistributed(
  recorder: Recorder,
  t: Tensor,
  distribute: Distribute,
  define: (local: Tensor) => void,
): void {
  const local = aliasOf(t);
  recorder.borrowed.borrow(t);
  define(local);
  const made = distribute(local);
  if (!(made instanceof Tensor) || made.sharding === null)
    throw new ArgumentError(
      'captureStep: expected the functions of distribute to return distributed tensors over the ' +
        'tensors that they get, such as DTensor.fromLocal(local, mesh, [Replicate()])',
    );
  const value = recorder.valueOf(local);
  recorder.known.define(made.sharding.local, value);
  t.sharding = made.sharding;
  t.sizes = made.sizes;
  t.strides = made.strides;
  recorder.distributed.set(t, local);
}
