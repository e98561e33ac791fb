/**
 * The operands of collectives: checks, dense memory for the engine, and copies back into strided
 * outputs.
 */
import type { CollectiveCall } from '../../core/collective.js';
import {
  ArgumentError,
  DeviceError,
  DtypeError,
  InPlaceError,
  ShapeError,
  ShardingError,
} from '../../core/errors.js';
import { checkFlag, checkNumber, optionsOf, shown, unexpected } from '../../core/options.js';
import { formatShape, overlapsItself } from '../../core/shape.js';
import type { Sharding } from '../../core/sharding.js';
import { Tensor } from '../../core/tensor.js';
import { reportUse } from '../../core/unrepeatable.js';
import { overlaps } from '../../eager/aliasing.js';
import { noValues } from '../../eager/fake-backend.js';
import type { ProcessGroup } from './process-group.js';
import { Work } from './work.js';

/** Options of all collectives. */
export interface CollectiveOptions {
  /** The ranks that take part; all ranks by default. */
  group?: ProcessGroup | undefined;
}

/** Options of calls that may wait long for another rank. */
export interface WaitOptions extends CollectiveOptions {
  /**
   * How long this call waits for other ranks, in milliseconds; by default as long as all calls of
   * the group. `Infinity`: until they come. A rank that dies or leaves ends the wait at once.
   */
  timeoutMs?: number | undefined;
}

/** Three years: what the engines take for a wait without a limit. */
const LONGEST_WAIT_MS = 100_000_000_000;

/**
 * The limit of a call, as a part of it. @throws ArgumentError unless it is left out, or a number of
 * at least 1 @internal
 */
export function waitLimit(name: string, { timeoutMs }: WaitOptions): { timeoutMs?: number } {
  if (timeoutMs === undefined) return {};
  if (!(typeof timeoutMs === 'number' && timeoutMs >= 1))
    throw unexpected(name, 'timeoutMs', 'milliseconds from 1, or Infinity', timeoutMs);
  return { timeoutMs: Math.min(Math.ceil(timeoutMs), LONGEST_WAIT_MS) };
}

/** Options that make a collective return a {@link Work}. */
export interface Async {
  /** Returns a handle. */
  asyncOp: true;
}

/** Options that make a collective return nothing. */
export interface Sync {
  /** Returns nothing. */
  asyncOp?: false;
}

/** Whether a collective returns a {@link Work}; `A` is inferred from the options. */
export interface AsyncOption<A extends boolean> {
  /** True: return a handle. */
  asyncOp?: A;
}

/** The result of a collective: a {@link Work}, nothing, or either if the type is `boolean`. */
export type WorkIf<A extends boolean> = boolean extends A
  ? Work | undefined
  : A extends true
    ? Work
    : void;

/** Checks the options against the `names` that the collective has, and returns them. */
export function collectiveOptions<T extends CollectiveOptions & AsyncOption<boolean>>(
  name: string,
  options: T,
  names = 'group asyncOp',
): T {
  const { asyncOp } = optionsOf(name, options, names);
  if (asyncOp !== undefined) checkFlag(name, 'asyncOp', asyncOp);
  return options;
}

/**
 * Runs a collective whose operands are dense.
 *
 * @param where - the call site
 * @param after - copies the result into strided outputs
 */
export function perform<A extends boolean>(
  name: string,
  where: string,
  group: ProcessGroup,
  call: CollectiveCall,
  options: AsyncOption<A>,
  outputs: readonly Tensor[],
  after?: () => void,
): WorkIf<A> {
  reportUse(name);
  group.run(name, call, where);
  after?.();
  for (const t of outputs) t.bumpVersion();
  if (options.asyncOp !== true) return undefined as WorkIf<A>;
  return new Work(group.finished((call.output ?? call.input)?.device), outputs) as WorkIf<A>;
}

/**
 * @throws ArgumentError unless it is a tensor, ShardingError for a distributed tensor, DeviceError
 * for a tensor of another rank, or on `meta`
 */
export function checkTensor(name: string, what: string, t: Tensor, group: ProcessGroup): void {
  if (!(t instanceof Tensor) || t.storage === null) throw unexpected(name, what, 'a tensor', t);
  if (t.sharding !== null) throw distributedGiven(name, what, t.sharding.spec);
  if (t.isMeta) throw noValues(name, t);
  if (t.device.runtime === group.runtime) return;
  throw new DeviceError(
    `${name}: expected ${what} to be on a device of ` +
      `${group.runtime.label ?? 'the main program'}, got ` +
      `${t.device}. Ranks that share a process have separate memory: give it a tensor that this ` +
      'rank has created.',
    { op: name, group: group.name, device: String(t.device) },
  );
}

/** The collective would change the local shard, and the placements would no longer hold. */
function distributedGiven(name: string, what: string, spec: Sharding['spec']): ShardingError {
  return new ShardingError(
    `${name}: expected ${what} to be a plain tensor, got a distributed one: ${spec}. Give its ` +
      'local shard, toLocal(), or change its placements with redistribute(…); ' +
      'fullTensor() gives the whole.',
    { op: name, placements: spec.placements, mesh: spec.meshInWords() },
  );
}

/** The tensor for a collective: contiguous, and without autograd history. */
export function dense(name: string, what: string, t: Tensor, group: ProcessGroup): Tensor {
  checkTensor(name, what, t, group);
  const plain = t.requiresGrad ? t.detach() : t;
  return plain.isContiguous() ? plain : plain.contiguous();
}

/** Contiguous memory for the output `t`, and a function that copies it back if `t` is strided. */
export function denseOutput(
  name: string,
  what: string,
  t: Tensor,
  group: ProcessGroup,
): [Tensor, (() => void) | undefined] {
  const memory = dense(name, what, t, group);
  checkWritable(name, what, t);
  return [memory, t.isContiguous() ? undefined : copyingBack(t, memory)];
}

/** A separate function, so that only strided outputs create a closure. */
function copyingBack(t: Tensor, memory: Tensor): () => void {
  return () => (t.requiresGrad ? t.detach() : t).copy_(memory);
}

/** @throws InPlaceError for a tensor whose elements share memory */
export function checkWritable(name: string, what: string, t: Tensor): void {
  if (!overlapsItself(t.sizes, t.strides)) return;
  throw new InPlaceError(
    `${name}: cannot write into ${what}, whose elements share memory (as after expand or ` +
      `unfold: shape ${formatShape(t.sizes)}, strides ` +
      `${formatShape(t.strides)}). clone() it first.`,
    { op: name },
  );
}

/** The input, or a copy if it overlaps the output: ranks would write while others still read. */
export function apartFrom(output: Tensor, input: Tensor): Tensor {
  return overlaps(input, output) ? input.clone() : input;
}

export function checkSame(name: string, what: string, given: Tensor, expected: Tensor): void {
  if (given.dtype !== expected.dtype) {
    throw new DtypeError(
      `${name}: expected ${what} of dtype ${expected.dtype.name}, got ${given.dtype.name}`,
      { op: name },
    );
  }
}

export function checkNumel(
  name: string,
  what: string,
  given: Tensor,
  expected: number,
  why: string,
): void {
  if (given.numel() !== expected) {
    throw new ShapeError(
      `${name}: expected ${what} with ${expected} elements (${why}), got ` +
        `${formatShape(given.sizes)} with ${given.numel()}`,
      {
        op: name,
        shape: given.sizes,
        expected,
      },
    );
  }
}

export function checkList(
  name: string,
  what: string,
  list: readonly Tensor[],
  group: ProcessGroup,
): void {
  if (!Array.isArray(list) || list.length !== group.size) {
    throw new ArgumentError(
      `${name}: expected ${what} to be a list of ${group.size} tensors, one for each rank of ` +
        `the group, got ${Array.isArray(list) ? list.length : shown(list)}`,
      { op: name },
    );
  }
  for (const t of list) checkTensor(name, what, t, group);
}

/** @throws DtypeError, ShapeError unless all tensors of the list are like the other operand */
export function checkAlike(
  name: string,
  what: string,
  list: readonly Tensor[],
  like: Tensor,
): void {
  for (const t of list) {
    checkSame(name, what, t, like);
    checkNumel(name, what, t, like.numel(), 'all of one size');
  }
}

/** The group rank of a rank of the world. */
export function placeOf(name: string, what: string, rank: number, group: ProcessGroup): number {
  checkNumber(name, what, rank, { from: 0, whole: true });
  const place = group.ranks.indexOf(rank);
  if (place < 0)
    throw new ArgumentError(
      `${name}: ${what} ${rank} is not of group "${group.name}" (ranks ${group.ranks.join(', ')})`,
      { op: name, given: rank, ranks: group.ranks },
    );
  return place;
}

/** The number of elements of each tensor. */
export const sizesOf = (list: readonly Tensor[]): number[] => list.map((t) => t.numel());

/** The same number of elements for each rank. */
export const equalCounts = (numel: number, ranks: number): number[] =>
  Array.from({ length: ranks }, () => numel / ranks);

/** The values of a list, concatenated. */
export function joined(
  name: string,
  what: string,
  list: readonly Tensor[],
  group: ProcessGroup,
): Tensor {
  const flat = list.map((t) => dense(name, what, t, group).reshape([-1]));
  const [first] = flat as [Tensor];
  const total = flat.reduce((sum, t) => sum + t.numel(), 0);
  const whole = first.newEmpty([total]);
  let at = 0;
  for (const t of flat) {
    checkSame(name, what, t, first);
    if (t.numel() > 0) whole.narrow(0, at, t.numel()).copy_(t);
    at += t.numel();
  }
  return whole;
}

/** Copies the values of `whole` into the tensors of a list. */
export function spread(whole: Tensor, list: readonly Tensor[]): void {
  let at = 0;
  for (const t of list) {
    const plain = t.requiresGrad ? t.detach() : t;
    if (t.numel() > 0) plain.copy_(whole.narrow(0, at, t.numel()).view(t.sizes));
    at += t.numel();
  }
}
