/**
 * What ops and layers see of a group of ranks: its size, one's own place in it, and a way to give
 * it work.
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

/**
 * One rank's part of a collective. Tensors are dense; counts are elements of each rank, in the
 * order of ranks. @internal
 */
export interface CollectiveCall {
  readonly kind: CollectiveKind;
  readonly input: Tensor | null;
  /** Written; may be the input where the kind allows it: allReduce, reduce, broadcast. */
  readonly output: Tensor | null;
  /** Of a call without tensors: where the ranks meet; the CPU if left out. */
  readonly device?: Device;
  readonly reduceOp?: ReduceOpName;
  /** The rank, of the group, that has or gets it all; the peer of send and recv. */
  readonly root?: number;
  /**
   * Of allGather, gather, reduceScatter, scatter: each rank's part. Of allToAll: what comes from
   * each rank.
   */
  readonly counts?: readonly number[];
  /** Of allToAll: what goes to each rank. */
  readonly sendCounts?: readonly number[];
  /**
   * What errors say of it where ranks differ, as `callContext.purpose`, which stands in its place where
   * there is one.
   */
  readonly about?: string;
}

/**
 * A text about one or two numbers, made anew only where they change: most calls are like the one
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
 * What the ranks' tensors must have in common beside their number of elements, which says it all
 * for one dim. @internal
 */
export function aboutShape(shape: Shape): string {
  if (shape.length < 2) return '';
  if (!sameShape(shape, lastShape))
    [lastShape, shapeText] = [[...shape], `with shape ${formatShape(shape)}`];
  return shapeText;
}

/** A group of ranks, one of which this is. @internal */
export interface CollectiveGroup {
  readonly name: string;
  /** How many ranks it has. */
  readonly size: number;
  /** Which of them this is. */
  readonly rank: number;
  /**
   * Gives the call to the group's engine and returns; results are there in the order of the device.
   * `name` is what the program called, `where` its place.
   */
  run(name: string, call: CollectiveCall, where?: string): void;
}
