/**
 * The interface of a process group for ops and layers: its size, the rank of this process in it,
 * and a method that runs a collective.
 */
import type { Device } from './device.js';
import type { ReduceOpName } from './placement.js';
import { formatShape, type Shape, sameShape } from './shape.js';
import type { Tensor } from './tensor.js';

export const collectiveKinds = [
  'allReduce',
  'broadcast',
  'allGather',
  'reduceScatter',
  'allToAll',
  'reduce',
  'gather',
  'scatter',
  'barrier',
  'send',
  'recv',
] as const;
export type CollectiveKind = (typeof collectiveKinds)[number];

/** One collective, as a rank called it. */
export interface CollectiveEvent {
  /** The kind of collective: `'allReduce'`, `'allGather'`, … */
  readonly kind: CollectiveKind;
  /** The function or op that called it. */
  readonly name: string;
  /** The name of the group. */
  readonly group: string;
  /** The global ranks, in the order of the group. */
  readonly ranks: readonly number[];
  /** The mesh dimension; null for a group that no mesh created. */
  readonly meshDim: string | null;
  /** The size of the payload: the output of an all-gather, the input of a reduce-scatter. */
  readonly bytes: number;
  /**
   * The bytes that this rank sends in a ring algorithm; a mean if the chunks of the ring differ in
   * size.
   */
  readonly sentBytes: number;
  /** The bytes that this rank receives in a ring algorithm. */
  readonly receivedBytes: number;
  /** The call site in the program; in a backward pass that of `backward`. */
  readonly where: string;
}

/** One of several collectives in one call, with equal counts. @internal */
export interface CollectivePart {
  readonly input: Tensor;
  readonly output: Tensor;
}

/**
 * One rank's part of a collective. Tensors are dense; counts are elements of each rank, in the
 * order of ranks. @internal
 */
export interface CollectiveCall {
  readonly kind: CollectiveKind;
  readonly input: Tensor | null;
  /** The tensor to write; allReduce, reduce and broadcast may write their input. */
  readonly output: Tensor | null;
  /** The device on which a call without tensors runs; the CPU by default. */
  readonly device?: Device;
  readonly reduceOp?: ReduceOpName;
  /** The group rank that sends or receives the whole; the peer of send and recv. */
  readonly root?: number;
  /**
   * The number of elements of each rank in allGather, gather, reduceScatter and scatter; in
   * allToAll, the number received from each rank.
   */
  readonly counts?: readonly number[];
  /** The number of elements that allToAll sends to each rank. */
  readonly sendCounts?: readonly number[];
  /**
   * Several allGathers or reduceScatters in one call: `input` and `output` are those of the first,
   * `counts` those of all together.
   */
  readonly parts?: readonly CollectivePart[];
  /**
   * A description that must be equal on all ranks and that errors quote; `callContext.purpose`
   * replaces it if set.
   */
  readonly about?: string;
  /**
   * How long it waits for other ranks on the hosts; as long as all calls of the group by default.
   */
  readonly timeoutMs?: number;
}

/**
 * A text about one or two numbers, cached for the last ones, because most calls repeat the call
 * before. @internal
 */
export function remembered(
  make: (first: number, second: number) => string,
): (first: number, second?: number) => string {
  let [last, lastSecond, text] = [-1, -1, ''];
  return (first, second = 0) => {
    if (first === last && second === lastSecond) return text;
    last = first;
    lastSecond = second;
    text = make(first, second);
    return text;
  };
}

let [lastShape, shapeText]: [Shape, string] = [[], ''];

/**
 * The shape that the tensors of all ranks must have, as text; '' below two dims, where the number
 * of elements says the same. @internal
 */
export function aboutShape(shape: Shape): string {
  if (shape.length < 2) return '';
  if (!sameShape(shape, lastShape))
    [lastShape, shapeText] = [[...shape], `with shape ${formatShape(shape)}`];
  return shapeText;
}

/** A group of ranks that this rank belongs to, such as a `ProcessGroup`. */
export interface CollectiveGroup {
  readonly name: string;
  /** How many ranks it has. */
  readonly size: number;
  /** The rank of this process in the group. */
  readonly rank: number;
  /**
   * Submits the call to the group's engine and returns; the result is ordered with later work of
   * the device. `name` is the function that the program called, `where` its call site. @internal
   */
  run(name: string, call: CollectiveCall, where?: string): void;
  /** The stream that runs its collectives on tensors of a device. @internal */
  streamFor?(device: Device): number;
}
