/** What goes into collectives and comes out of them: checked, taken to dense memory, and back. */
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
import { type Sharding, Tensor } from '../../core/tensor.js';
import { overlaps } from '../../eager/aliasing.js';
import type { ProcessGroup } from './process-group.js';
import { Work } from './work.js';

/** What all collectives take. */
export interface CollectiveOptions {
  /** The ranks that take part; all of them if left out. */
  group?: ProcessGroup | undefined;
}

/** Asks for a {@link Work} that tells when the collective is done. */
export interface Async {
  /** Returns a handle. */
  asyncOp: true;
}

/** Without it, nothing is returned. */
export interface Sync {
  /** Returns nothing. */
  asyncOp?: false;
}

/** Where a program decides. */
export interface MaybeAsync {
  asyncOp?: boolean;
}

/** Options as they were given, to take apart; `names` are all that the collective has. */
export function collectiveOptions<T extends CollectiveOptions & MaybeAsync>(
  name: string,
  options: T,
  names = 'group asyncOp',
): T {
  const { asyncOp } = optionsOf(name, options, names);
  if (asyncOp !== undefined) checkFlag(name, 'asyncOp', asyncOp);
  return options;
}

/**
 * A call with what goes into it and comes out of it taken to dense memory, and back; `where` the
 * program called it.
 */
export function perform(
  name: string,
  where: string,
  group: ProcessGroup,
  call: CollectiveCall,
  options: MaybeAsync,
  outputs: readonly Tensor[],
  after?: () => void,
): Work | undefined {
  group.run(name, call, where);
  after?.();
  for (const t of outputs) t.bumpVersion();
  if (options.asyncOp !== true) return undefined;
  return new Work(group.finished((call.output ?? call.input)?.device), outputs);
}

/**
 * @throws ArgumentError for what is no tensor, ShardingError for a distributed one, DeviceError for
 * one of another rank
 */
export function checkTensor(name: string, what: string, t: Tensor, group: ProcessGroup): void {
  if (!(t instanceof Tensor) || t.storage === null) throw unexpected(name, what, 'a tensor', t);
  if (t.sharding !== null) throw distributedGiven(name, what, t.sharding.spec);
  if (t.device.home === group.home) return;
  throw new DeviceError(
    `${name}: expected ${what} to be on a device of ${group.home.label ?? 'the main program'}, got ${t.device}. Ranks that share a process have memory of their own: give it what this rank has made.`,
    { op: name, group: group.name, device: String(t.device) },
  );
}

/**
 * A collective would take the part for the whole, and leave placements behind that do not hold any
 * more.
 */
function distributedGiven(name: string, what: string, spec: Sharding['spec']): ShardingError {
  return new ShardingError(
    `${name}: expected ${what} to be a plain tensor, got a distributed one: ${spec}. Give toLocal() of it, this rank's own part, or let its placements say what is exchanged: redistribute(…), or fullTensor() for the whole.`,
    { op: name, placements: spec.placements, mesh: spec.meshInWords() },
  );
}

/** The tensor as collectives take it: dense, and without history. */
export function dense(name: string, what: string, t: Tensor, group: ProcessGroup): Tensor {
  checkTensor(name, what, t, group);
  const plain = t.requiresGrad ? t.detach() : t;
  return plain.isContiguous() ? plain : plain.contiguous();
}

/** Output memory for `t`, and what brings it there afterwards if `t` is not dense. */
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

/** Apart, so that only those that need it have a closure. */
function copyingBack(t: Tensor, memory: Tensor): () => void {
  return () => (t.requiresGrad ? t.detach() : t).copy_(memory);
}

/** @throws InPlaceError for a tensor whose elements share memory */
export function checkWritable(name: string, what: string, t: Tensor): void {
  if (!overlapsItself(t.shape, t.strides)) return;
  throw new InPlaceError(
    `${name}: cannot write into ${what}, whose elements share memory (as after expand or unfold: shape ${formatShape(t.shape)}, strides ${formatShape(t.strides)}). clone() it first.`,
    { op: name },
  );
}

/** The input itself, or a copy of it where ranks would write into it while others still read. */
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
      `${name}: expected ${what} with ${expected} elements (${why}), got ${formatShape(given.shape)} with ${given.numel()}`,
      {
        op: name,
        shape: given.shape,
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
      `${name}: expected ${what} to be a list of ${group.size} tensors, one for each rank of the group, got ${Array.isArray(list) ? list.length : shown(list)}`,
      { op: name },
    );
  }
  for (const t of list) checkTensor(name, what, t, group);
}

/**
 * All of the list have the dtype and the number of elements of one of the tensors that go into it
 * or come out of it.
 */
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

/** The place in the group of a rank of the world. */
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

/** The values of a list, one behind the other. */
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

/** The values of `whole` into the tensors of a list. */
export function spread(whole: Tensor, list: readonly Tensor[]): void {
  let at = 0;
  for (const t of list) {
    const plain = t.requiresGrad ? t.detach() : t;
    if (t.numel() > 0) plain.copy_(whole.narrow(0, at, t.numel()).view(t.shape));
    at += t.numel();
  }
}
