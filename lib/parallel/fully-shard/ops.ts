/**
 * The ops of a group, which hooks call. They pass the dispatcher as all ops do, with their group as
 * an argument that no layer looks into: a graph carries each call as one node. What a group counts
 * and frees it does where they run, so that graphs repeat it.
 */
import {
  AutogradError,
  compiler,
  type Device,
  type DType,
  device,
  empty,
  library,
  type Shape,
  ShardingError,
  type Tensor,
  uint8,
} from '../../index.js';

/** The metadata of a result, known without computing it. */
export interface Description {
  readonly shape: Shape;
  readonly dtype: DType;
  readonly device: Device;
}

/** What of the whole parameters is in memory between forward and backward. */
export type KeptForBackward = 'nothing' | 'rows' | 'all';

/** The whole parameters of a forward as modules use them; null for one that a graph runs. */
export type WholeOfForward = readonly Tensor[] | null;

/** The pass for which a gather makes the parameters whole. */
export type GatherFor = 'forward' | 'backward';

/** The hooks of a forward, in a backward pass that a graph runs. @internal */
export interface BackwardUse {
  /** Backward has come to a result. */
  begins(): void;
  /** Backward has passed all inputs. */
  passes(): void;
  /** What decides which gathers a graph has there. */
  settings(): unknown;
}

/** The module of a group, to which it reports where ops run: also in a run of a graph. @internal */
export interface GroupUser {
  /** A forward begins. False where backward holds the parameters. */
  forwardBegins(): boolean;
  /** The parameters of a forward are whole. */
  forwardGathered(): void;
  forwardEnds(): void;
  /** Backward is done with the parameters, until it comes to another forward. */
  backwardEnded(): void;
}

/** What the ops need of a group. @internal */
export interface GroupOfOps {
  /** The path of its module, for errors. */
  readonly path: string;
  /** A forward of its module begins: starts to gather the parameters, unless they are whole. */
  beginForward(): void;
  /** Backward comes: starts to gather the parameters, unless that needs none. */
  unshardForBackward(): void;
  /** The parameters are whole for what follows. Returns them without history. */
  finishUnshard(keepsRows: boolean, isInGraph: boolean): readonly Tensor[];
  describeWhole(): Description[];
  /** The memory on which the whole parameters are. */
  readonly wholeMemory: readonly Tensor[];
  /** A forward of its module has ended. `isRecorded`: backward may follow. */
  endForward(kept: KeptForBackward, isRecorded: boolean): void;
  /** Whether backward gathers the parameters again. */
  readonly reshardsAfterForward: boolean;
  /** What decides which ops forward and backward call. */
  gradientState(): unknown;
  /** Which shards get a gradient, if these whole parameters come with one. */
  willReduce(given: readonly boolean[]): boolean[];
  /**
   * Reduces gradients of the whole parameters and frees these. Returns local ones of the shards.
   */
  reduceGradients(grads: readonly (Tensor | null)[]): (Tensor | null)[];
  describeReduced(given: readonly boolean[]): Description[];
  /** The group in the capture of a whole step; null outside of one. */
  readonly inStep: { afterBackward(): void } | null;
  /** The gradient of a shard over its local memory. */
  distributed(reduced: Tensor, i: number): Tensor;
}

const options = { communicates: true, keepsNoTensors: true } as const;

/** Both halves of a gather fill the memory of the group, and run again if it is freed between. */
const gatherOptions = {
  ...options,
  managesArgs: [1],
  runsAgain: (_first: unknown, _memory: unknown, group: GroupOfOps) => group.reshardsAfterForward,
};

/**
 * The two halves of a gather, of which graphs consist, so that passes can move one of them. The
 * first has a result without elements: backward runs both again, in order.
 */
export const startUnshard = library
  .customOp(
    'fsdp::startUnshard',
    gatherOptions,
    (
      _shards: readonly Tensor[],
      _memory: readonly Tensor[],
      group: GroupOfOps,
      pass: GatherFor,
    ): Tensor => {
      if (pass === 'forward') group.beginForward();
      else group.unshardForBackward();
      return empty([0], { dtype: uint8, device: 'cpu' });
    },
  )
  .registerFake(() => ({ shape: [0], dtype: uint8, device: device('cpu') }));

export const finishUnshard = library
  .customOp(
    'fsdp::finishUnshard',
    { ...gatherOptions, communicates: 'wait' },
    (
      _started: Tensor,
      _memory: readonly Tensor[],
      group: GroupOfOps,
      keepsRows: boolean,
    ): readonly Tensor[] => group.finishUnshard(keepsRows, true),
  )
  .registerFake((_started, _memory, group) => group.describeWhole());

/**
 * The whole parameters of shards. Backward comes to its gradient when it is done with all uses of
 * the parameters since this call: the node is older than those of the uses, and younger than all
 * that the module got.
 */
export const unshard = library
  .customOp(
    'fsdp::unshard',
    options,
    (_shards: readonly Tensor[], group: GroupOfOps, keepsRows: boolean): readonly Tensor[] => {
      group.beginForward();
      return group.finishUnshard(keepsRows, false);
    },
  )
  .registerFake((_, group) => group.describeWhole())
  .registerDecomposition((shards, group, keepsRows) =>
    finishUnshard(
      startUnshard(shards, group.wholeMemory, group, 'forward'),
      group.wholeMemory,
      group,
      keepsRows,
    ),
  )
  .registerAutograd({
    setupContext: (_ctx, [, group]) => ({ group }),
    state: (_, group) => group.gradientState(),
    backward: ({ group }, ...grads) => [reduceInto(group, grads), null, null],
  });

/** Ends a forward, and frees the whole parameters but the rows that a smaller group keeps. */
export const reshard = library
  .customOp(
    'fsdp::reshard',
    { ...options, communicates: 'frees', managesArgs: [0] },
    (_whole: readonly Tensor[], group: GroupOfOps, keepsRows: boolean, isRecorded: boolean): void =>
      group.endForward(keepsRows ? 'rows' : 'nothing', isRecorded),
  )
  .registerFake(() => undefined);

/** Ends a forward whose whole parameters stay for backward. */
export const endForward = library
  .customOp(
    'fsdp::endForward',
    { ...options, communicates: 'frees', managesArgs: [0] },
    (_memory: readonly Tensor[], group: GroupOfOps): void => group.endForward('all', true),
  )
  .registerFake(() => undefined);

const noGradient = (): never => {
  throw new AutogradError(
    'fsdp::postBackward: the gradients of sharded parameters have no gradient of their own. ' +
      'Leave out createGraph, or take second derivatives of the module before it is sharded.',
    { op: 'fsdp::postBackward' },
  );
};

/**
 * What the hooks of backward do beside gathers. Graphs of whole steps have these ops in their
 * place, in order with all that uses the memory of the group.
 */
export const beginBackward = library
  .customOp(
    'fsdp::beginBackward',
    { ...options, communicates: 'frees', managesArgs: [0] },
    (_memory: readonly Tensor[], use: BackwardUse): void => use.begins(),
  )
  .registerFake(() => undefined)
  .registerAutograd({ state: (_, use) => use.settings(), backward: noGradient });

export const passBackward = library
  .customOp(
    'fsdp::passBackward',
    { ...options, communicates: 'frees', managesArgs: [0] },
    (_memory: readonly Tensor[], use: BackwardUse): void => use.passes(),
  )
  .registerFake(() => undefined);

/** The local gradients of shards, from those that came of whole parameters. */
const postBackward = library
  .customOp(
    'fsdp::postBackward',
    { ...options, managesArgs: [1] },
    (
      grads: readonly Tensor[],
      _memory: readonly Tensor[],
      group: GroupOfOps,
      given: readonly boolean[],
      reduced: readonly boolean[],
    ): Tensor[] => {
      checkReduced(group, given, reduced);
      return group.reduceGradients(spread(grads, given)).filter((grad) => grad !== null);
    },
  )
  .registerFake((_grads, _memory, group, given) => group.describeReduced(given))
  .registerAutograd({ backward: noGradient });

/** Reduces gradients of a group by the op; null stands for a parameter without one. */
export function reduceInto(
  group: GroupOfOps,
  grads: readonly (Tensor | null)[],
): (Tensor | null)[] {
  const given = grads.map((grad) => grad !== null);
  const reduced = group.willReduce(given);
  const present = grads.filter((grad) => grad !== null);
  // Passes over graphs look at the memory that the op frees.
  const memory = compiler.isCompiling() ? group.wholeMemory : [];
  const local = postBackward(present, memory, group, given, reduced);
  group.inStep?.afterBackward();
  return spread(local, reduced).map((grad, i) => grad && group.distributed(grad, i));
}

/** @throws ShardingError if a graph was captured where other gradients were to be reduced */
function checkReduced(
  group: GroupOfOps,
  given: readonly boolean[],
  expected: readonly boolean[],
): void {
  const now = group.willReduce(given);
  if (now.every((will, i) => will === expected[i])) return;
  const reduces = (list: readonly boolean[]): string => (list.includes(true) ? 'on' : 'off');
  throw new ShardingError(
    `fsdp::postBackward: the reduction of the gradients of ${group.path || 'the root'} was ` +
      `${reduces(expected)} in the forward pass of a compiled model, and is ${reduces(now)} or ` +
      'takes along other gradients in its backward pass. Call setRequiresGradientSync before ' +
      'forward, and run the backward pass of a forward pass before the next one that reduces.',
    { op: 'fsdp::postBackward', module: group.path },
  );
}

/** The tensors at the places that are true, in order, and null at the others. */
function spread(tensors: readonly Tensor[], places: readonly boolean[]): (Tensor | null)[] {
  let next = 0;
  return places.map((isThere) => (isThere ? (tensors[next++] as Tensor) : null));
}
