/** Point-to-point messages between two ranks. They arrive in the order in which they are sent. */
import { callSite } from '../../core/call-site.js';
import { ArgumentError } from '../../core/errors.js';
import { optionsOf } from '../../core/options.js';
import type { Tensor } from '../../core/tensor.js';
import { memberOf } from './new-group.js';
import {
  type CollectiveOptions,
  dense,
  denseOutput,
  perform,
  placeOf,
  type WaitOptions,
  waitLimit,
} from './operands.js';
import type { ProcessGroup } from './process-group.js';
import type { Work } from './work.js';

/** @param where - the call site @internal */
export function message(
  name: string,
  kind: 'send' | 'recv',
  tensor: Tensor,
  peer: number,
  options: WaitOptions,
  asyncOp: boolean,
  where = callSite(message),
): Work | undefined {
  const names = kind === 'send' ? 'group' : 'group timeoutMs';
  const group = memberOf(name, optionsOf(name, options, names).group);
  const root = placeOfPeer(name, kind === 'send' ? 'dst' : 'src', peer, group);
  if (kind === 'send')
    return perform(
      name,
      where,
      group,
      { kind, input: dense(name, 'the tensor', tensor, group), output: null, root },
      { asyncOp },
      [],
    );
  const limit = waitLimit(name, options);
  const [memory, after] = denseOutput(name, 'the tensor', tensor, group);
  if (limit.timeoutMs !== undefined && memory.device.type !== 'cpu') throw noLimit(name);
  return perform(
    name,
    where,
    group,
    { kind, input: null, output: memory, root, ...limit },
    { asyncOp },
    [tensor],
    after,
  );
}

/** A receive on a GPU would keep it busy while it waits. */
function noLimit(name: string): ArgumentError {
  return new ArgumentError(
    `${name}: expected a tensor on the CPU beside timeoutMs. Wait with await barrier({ timeoutMs ` +
      `}) or broadcastObjectList(…, { timeoutMs }), then call ${name} without it.`,
    { op: name },
  );
}

/** @throws ArgumentError for a rank outside the group, and for this rank itself @internal */
export function placeOfPeer(name: string, what: string, peer: number, group: ProcessGroup): number {
  const place = placeOf(name, what, peer, group);
  if (place === group.rank)
    throw new ArgumentError(`${name}: rank ${peer} cannot exchange messages with itself`, {
      op: name,
      given: peer,
    });
  return place;
}

/**
 * Sends `tensor` to rank `dst` of the world, which receives it with {@link recv}. @see PyTorch
 * `torch.distributed.send`
 */
export function send(tensor: Tensor, dst: number, options: CollectiveOptions = {}): void {
  message('send', 'send', tensor, dst, options, false);
}

/**
 * Receives a message of rank `src` of the world into `tensor`, which has the same number of bytes.
 * On the CPU, `{ timeoutMs: Infinity }` waits until it comes, or until the sender dies or leaves.
 *
 * @see PyTorch `torch.distributed.recv`
 */
export function recv(tensor: Tensor, src: number, options: WaitOptions = {}): void {
  message('recv', 'recv', tensor, src, options, false);
}

/**
 * {@link send} with a handle, which completes when the message was sent. @see PyTorch
 * `torch.distributed.isend`
 */
export function isend(tensor: Tensor, dst: number, options: CollectiveOptions = {}): Work {
  return message('isend', 'send', tensor, dst, options, true) as Work;
}

/**
 * {@link recv} with a handle, which completes when the message was received. @see PyTorch
 * `torch.distributed.irecv`
 */
export function irecv(tensor: Tensor, src: number, options: WaitOptions = {}): Work {
  return message('irecv', 'recv', tensor, src, options, true) as Work;
}
