/**
 * The three ops of a group, which hooks call. They pass the dispatcher as all ops do, with their
 * group as an argument that no layer looks into: a graph carries each call as one node.
 */
import {
  AutogradError,
  type Device,
  type DType,
  library,
  type Shape,
  type Tensor,
} from '../../index.js';

/** The metadata of a result, known without computing it. */
export interface Description {
  readonly shape: Shape;
  readonly dtype: DType;
  readonly device: Device;
}

/** What the ops need of a group. @internal */
export interface GroupOfOps {
  /** Gathers the parameters, unless they are whole. Returns them without history. */
  gatherWhole(keepsRows: boolean): Tensor[];
  describeWhole(): Description[];
  /** Frees the whole parameters; with `keepsRows`, not what a smaller group keeps for backward. */
  freeWhole(keepsRows: boolean): void;
  /** What decides which gradients backward gives. */
  gradientState(): unknown;
  /** Which shards get a gradient, if these whole parameters come with one. */
  willReduce(given: readonly boolean[]): boolean[];
  /**
   * Reduces gradients of the whole parameters and frees these. Returns local ones of the shards.
   */
  reduceGradients(grads: readonly (Tensor | null)[]): (Tensor | null)[];
  describeReduced(given: readonly boolean[]): Description[];
  /** The gradient of a shard over its local memory. */
  distributed(reduced: Tensor, i: number): Tensor;
}

const options = { communicates: true, keepsNoTensors: true };

/**
 * The whole parameters of shards. Backward comes to its gradient when it is done with all uses of
 * the parameters since this call: the node is older than those of the uses, and younger than all
 * that the module got.
 */
export const unshard = library
  .customOp(
    'fsdp::unshard',
    options,
    (_shards: readonly Tensor[], group: GroupOfOps, keepsRows: boolean): Tensor[] =>
      group.gatherWhole(keepsRows),
  )
  .registerFake((_, group) => group.describeWhole())
  .registerAutograd({
    setupContext: (_ctx, [, group]) => ({ group }),
    state: (_, group) => group.gradientState(),
    backward: ({ group }, ...grads) => [reduceInto(group, grads), null, null],
  });

/** Frees whole parameters after forward. */
export const reshard = library
  .customOp(
    'fsdp::reshard',
    options,
    (_whole: readonly Tensor[], group: GroupOfOps, keepsRows: boolean): void =>
      group.freeWhole(keepsRows),
  )
  .registerFake(() => undefined);

/** The local gradients of shards, from those that came of whole parameters. */
const postBackward = library
  .customOp(
    'fsdp::postBackward',
    options,
    (grads: readonly Tensor[], group: GroupOfOps, given: readonly boolean[]): Tensor[] =>
      group.reduceGradients(spread(grads, given)).filter((grad) => grad !== null),
  )
  .registerFake((_, group, given) => group.describeReduced(given))
  .registerAutograd({
    backward: () => {
      throw new AutogradError(
        'fsdp::postBackward: the gradients of sharded parameters have no gradient of their own. ' +
          'Leave out createGraph, or take second derivatives of the module before it is sharded.',
        { op: 'fsdp::postBackward' },
      );
    },
  });

/** Reduces gradients of a group by the op; null stands for a parameter without one. */
export function reduceInto(
  group: GroupOfOps,
  grads: readonly (Tensor | null)[],
): (Tensor | null)[] {
  const given = grads.map((grad) => grad !== null);
  const reduced = group.willReduce(given);
  const present = grads.filter((grad) => grad !== null);
  return spread(postBackward(present, group, given), reduced).map(
    (grad, i) => grad && group.distributed(grad, i),
  );
}

/** The tensors at the places that are true, in order, and null at the others. */
function spread(tensors: readonly Tensor[], places: readonly boolean[]): (Tensor | null)[] {
  let next = 0;
  return places.map((isThere) => (isThere ? (tensors[next++] as Tensor) : null));
}
