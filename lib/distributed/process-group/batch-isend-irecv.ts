/**
 * Several messages at once, for ranks that exchange: none of them waits for another in vain,
 * whatever the order in which each rank lists its own.
 */
import { callSite } from '../../core/call-site.js';
import { ArgumentError, InPlaceError } from '../../core/errors.js';
import { type Interned, interned } from '../../core/interned.js';
import { optionsOf, unexpected } from '../../core/options.js';
import { formatShape } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import { overlaps } from '../../eager/aliasing.js';
import { memberOf } from './new-group.js';
import { type CollectiveOptions, checkTensor, checkWritable } from './operands.js';
import { irecv, isend, message, placeOfPeer } from './point-to-point.js';
import type { ProcessGroup } from './process-group.js';
import type { Work } from './work.js';

const OP = 'batchIsendIrecv';

class MessageOp {
  /** `isend` or `irecv`. */
  readonly op: typeof isend | typeof irecv;
  /** What is sent, or received into. */
  readonly tensor: Tensor;
  /** Of the world. */
  readonly peer: number;
  /** The group of the message; null for the world. */
  readonly group: ProcessGroup;

  constructor(
    op: typeof isend | typeof irecv,
    tensor: Tensor,
    peer: number,
    options: CollectiveOptions = {},
  ) {
    if (op !== isend && op !== irecv) throw unexpected('P2POp', 'op', 'isend or irecv', op);
    const group = memberOf('P2POp', optionsOf('P2POp', options, 'group').group);
    checkTensor('P2POp', 'the tensor', tensor, group);
    if (op === irecv) checkWritable('P2POp', 'the tensor', tensor);
    placeOfPeer('P2POp', 'peer', peer, group);
    this.op = op;
    this.tensor = tensor;
    this.peer = peer;
    this.group = group;
  }

  /** `P2POp(isend float32[2] to rank 1, group "world")` */
  toString(): string {
    const { op, tensor, peer, group } = this;
    return `P2POp(${op === isend ? 'isend' : 'irecv'} ${tensor.dtype.name}${formatShape(tensor.shape)} ${op === isend ? 'to' : 'from'} rank ${peer}, group "${group.name}")`;
  }

  /** @internal */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }
}

export type P2POp = MessageOp;

/**
 * A message for {@link batchIsendIrecv}: `P2POp(isend, t, 1)` or `P2POp(irecv, t, 1)`, with or
 * without `new`. A tensor of any shape, dtype and layout.
 *
 * @param op - {@link isend} or {@link irecv}
 * @param peer - the other rank, of the world
 * @throws ArgumentError for what is none of these, for a peer that is not of the group or is this
 * rank; InPlaceError for a tensor that cannot be
 *   received into; DistributedError without a process group, and for a group that this rank is not in
 * @see PyTorch `torch.distributed.P2POp`
 */
export const P2POp: Interned<
  [op: typeof isend | typeof irecv, tensor: Tensor, peer: number, options?: CollectiveOptions],
  P2POp
> = interned(
  'P2POp',
  (op: typeof isend | typeof irecv, tensor: Tensor, peer: number, options?: CollectiveOptions) =>
    new MessageOp(op, tensor, peer, options),
  MessageOp.prototype,
);

/**
 * Sends and receives all of a list of messages. Those between two ranks are in one batch of each,
 * where those of one direction come in the order of the lists; beyond that the order of a list is
 * the rank's own affair. What is sent is what the tensors hold before the batch.
 *
 * @returns for each op, in the order of the list, what tells when its message is on its way or
 * there
 * @throws ArgumentError for a list that is empty, holds anything else or ops of several groups;
 * InPlaceError for ops that receive into the same memory;
 *   FreedError for a tensor that was disposed of. Nothing has been sent then. What the other rank does differently is a CollectiveError of the work
 * @see PyTorch `torch.distributed.batch_isend_irecv`
 * @example
 * const works = batchIsendIrecv([P2POp(isend, mine, next), P2POp(irecv, theirs, before)]);
 * for (const work of works) await work.wait();
 */
export function batchIsendIrecv(ops: readonly P2POp[]): Work[] {
  const { ranks, place } = checkOps(ops);
  const where = callSite(batchIsendIrecv);
  const tensors = ops.map((op) => ownMemory(op, ops));
  const works = new Array<Work>(ops.length);
  for (const i of inCommonOrder(ops, ranks[place] as number)) {
    const { op, peer, group } = ops[i] as P2POp;
    works[i] = message(
      op === isend ? 'isend' : 'irecv',
      op === isend ? 'send' : 'recv',
      tensors[i] as Tensor,
      peer,
      { group },
      true,
      where,
    ) as Work;
  }
  return works;
}

/** The group of all. */
function checkOps(ops: readonly P2POp[]): ProcessGroup {
  if (!Array.isArray(ops) || ops.length === 0) throw unexpected(OP, 'ops', 'a list of P2POp', ops);
  ops.forEach((op, i) => {
    if (!(op instanceof MessageOp))
      throw unexpected(
        OP,
        `ops[${i}]`,
        'P2POp(isend, tensor, peer) or P2POp(irecv, tensor, peer)',
        op,
      );
  });
  const { group } = ops[0] as P2POp;
  const other = ops.find((op) => op.group !== group);
  if (other !== undefined) {
    const message = `${OP}: expected ops of one group, got some of group "${group.name}" and some of group "${other.group.name}". Make a batch for each.`;
    throw new ArgumentError(message, { op: OP, groups: [group.name, other.group.name] });
  }
  for (const { tensor } of ops) tensor.liveStorage(OP);
  checkReceives(ops);
  return memberOf(OP, group);
}

/**
 * @throws InPlaceError where two messages are sure to come into the same memory: views that are
 * interleaved may be apart
 */
function checkReceives(ops: readonly P2POp[]): void {
  const isDense = ({ tensor }: P2POp): boolean => tensor.isContiguous();
  const isSame = (a: P2POp, b: P2POp): boolean =>
    a.op === irecv && sharesMemory(a, b) && (a.tensor === b.tensor || (isDense(a) && isDense(b)));
  ops.forEach((op, i) => {
    const first = op.op === irecv ? ops.findIndex((earlier) => isSame(earlier, op)) : i;
    if (first === i || first < 0) return;
    throw new InPlaceError(
      `${OP}: ops[${first}] and ops[${i}] receive into the same memory, where only one message can stay. Give each its own.`,
      { op: OP },
    );
  });
}

const sharesMemory = (a: P2POp, b: P2POp): boolean =>
  a.tensor.storage === b.tensor.storage && a.tensor.numel() > 0 && overlaps(a.tensor, b.tensor);

/** What is sent is not what another message of the batch brings. */
function ownMemory(op: P2POp, ops: readonly P2POp[]): Tensor {
  const isOverwritten =
    op.op === isend && ops.some((other) => other.op === irecv && sharesMemory(op, other));
  return isOverwritten ? op.tensor.detach().clone() : op.tensor;
}

/**
 * Where a stream does one message after the other, ranks must begin theirs in one order. That is:
 * of each direction the first ones, then the second, and so on; among these, pairs of ranks by what
 * `xor` makes of them, which gives a rank one partner at a time and lets all other pairs go on
 * meanwhile; of a pair, the lower rank's first. Sender and receiver know all three of a message, so
 * the earliest that is not done is the next of both.
 */
function inCommonOrder(ops: readonly P2POp[], own: number): number[] {
  const counts = new Map<number, number>();
  const keys = ops.map(({ op, peer }) => {
    const isUpward = (op === isend) === own < peer;
    const way = isUpward ? peer : -1 - peer;
    const number = counts.get(way) ?? 0;
    counts.set(way, number + 1);
    return [number, own ^ peer, isUpward ? 0 : 1] as const;
  });
  const order = ops.map((_, i) => i);
  return order.sort((a, b) => {
    const [first, second] = [keys[a], keys[b]] as [readonly number[], readonly number[]];
    const differs = first.findIndex((part, at) => part !== second[at]);
    return differs < 0 ? 0 : (first[differs] as number) - (second[differs] as number);
  });
}
