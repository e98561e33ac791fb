/**
 * Batches of messages, for ranks that exchange tensors. A batch cannot deadlock, whatever order
 * each rank lists its messages in.
 */
import { callSite } from '../../core/call-site.js';
import { ArgumentError, InPlaceError } from '../../core/errors.js';
import { type Interned, interned } from '../../core/interned-class.js';
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
  /** The tensor that is sent, or received into. */
  readonly tensor: Tensor;
  /** The other rank, of the world. */
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
    return (
      `P2POp(${op === isend ? 'isend' : 'irecv'} ` +
      `${tensor.dtype.name}${formatShape(tensor.sizes)} ${op === isend ? 'to' : 'from'} rank ` +
      `${peer}, group "${group.name}")`
    );
  }

  /** @internal */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }
}

export type P2POp = MessageOp;

/**
 * A message for {@link batchIsendIrecv}: `P2POp(isend, t, 1)` or `P2POp(irecv, t, 1)`, with or
 * without `new`. The tensor may have any shape, dtype and layout.
 *
 * @param op - {@link isend} or {@link irecv}
 * @param peer - the other rank, of the world
 * @throws ArgumentError for invalid arguments, and for a peer that is this rank or not in the
 * group; InPlaceError for a tensor that cannot be received into; DistributedError without a process
 * group, and for a group without this rank
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
 * Sends and receives a list of messages. All messages between two ranks must be in one batch of
 * each. Messages of one direction are matched in list order; otherwise the order of the list does
 * not matter. The values sent are those of the tensors before the batch.
 *
 * @returns a handle for each op, in the order of the list
 * @throws ArgumentError for an empty list, for anything but ops, and for ops of several groups;
 * InPlaceError for ops that receive into the same memory; FreedError for a disposed tensor. Nothing
 * is sent then. A mismatch with the other rank is a CollectiveError of the work
 * @see PyTorch `torch.distributed.batch_isend_irecv`
 * @example
 * const [mine, theirs] = [full([2], rank), empty([2])];
 * const works = batchIsendIrecv([P2POp(isend, mine, 1 - rank), P2POp(irecv, theirs, 1 - rank)]);
 * for (const work of works) await work.wait();
 * theirs.equal(full([2], 1 - rank)); // true
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

/** Checks the ops and returns their group. */
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
    const message =
      `${OP}: expected ops of one group, got some of group "${group.name}" and some of group ` +
      `"${other.group.name}". Use a batch for each.`;
    throw new ArgumentError(message, { op: OP, groups: [group.name, other.group.name] });
  }
  for (const { tensor } of ops) tensor.liveStorage(OP);
  checkReceives(ops);
  return memberOf(OP, group);
}

/**
 * @throws InPlaceError if two messages certainly write the same memory; interleaved strided views
 * may be disjoint and are accepted
 */
function checkReceives(ops: readonly P2POp[]): void {
  const isDense = ({ tensor }: P2POp): boolean => tensor.isContiguous();
  const isSame = (a: P2POp, b: P2POp): boolean =>
    a.op === irecv && sharesMemory(a, b) && (a.tensor === b.tensor || (isDense(a) && isDense(b)));
  ops.forEach((op, i) => {
    const first = op.op === irecv ? ops.findIndex((earlier) => isSame(earlier, op)) : i;
    if (first === i || first < 0) return;
    throw new InPlaceError(
      `${OP}: ops[${first}] and ops[${i}] receive into the same memory. Give each op its own ` +
        'tensor.',
      { op: OP },
    );
  });
}

const sharesMemory = (a: P2POp, b: P2POp): boolean =>
  a.tensor.storage === b.tensor.storage && a.tensor.numel() > 0 && overlaps(a.tensor, b.tensor);

/** The tensor, or a copy if another message of the batch overwrites what it sends. */
function ownMemory(op: P2POp, ops: readonly P2POp[]): Tensor {
  const isOverwritten =
    op.op === isend && ops.some((other) => other.op === irecv && sharesMemory(op, other));
  return isOverwritten ? op.tensor.detach().clone() : op.tensor;
}

/**
 * An order of messages that all ranks agree on, because a stream runs them one after the other.
 * Sorted by the message's number in its direction; then by the XOR of both ranks, which gives each
 * rank one partner at a time, so that all pairs exchange in parallel; then the lower rank's message
 * first. Sender and receiver know all three keys, so the earliest pending message is next for both.
 */
function inCommonOrder(ops: readonly P2POp[], own: number): number[] {
  const counts = new Map<number, number>();
  const keys = ops.map(({ op, peer }) => {
    const isUpward = (op === isend) === own < peer;
    const direction = isUpward ? peer : -1 - peer;
    const number = counts.get(direction) ?? 0;
    counts.set(direction, number + 1);
    return [number, own ^ peer, isUpward ? 0 : 1] as const;
  });
  const order = ops.map((_, i) => i);
  return order.sort((a, b) => {
    const [first, second] = [keys[a], keys[b]] as [readonly number[], readonly number[]];
    const differs = first.findIndex((part, at) => part !== second[at]);
    return differs < 0 ? 0 : (first[differs] as number) - (second[differs] as number);
  });
}
