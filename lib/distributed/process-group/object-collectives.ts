/**
 * Collectives of plain values, which are sent as bytes of a structured clone. They are
 * asynchronous, because each rank waits for the sizes of the others.
 */
import { deserialize, serialize } from 'node:v8';
import { callSite } from '../../core/call-site.js';
import type { CollectiveCall } from '../../core/collective.js';
import {
  cpu,
  type Device,
  type DeviceName,
  deviceByCode,
  device as deviceOf,
} from '../../core/device.js';
import { type DType, float64, uint8 } from '../../core/dtype.js';
import { ArgumentError } from '../../core/errors.js';
import { optionsOf, shown, unexpected } from '../../core/options.js';
import { Tensor } from '../../core/tensor.js';
import { allocateNow, readBytes, writeBytes } from '../../eager/memory.js';
import { memberOf } from './new-group.js';
import { type CollectiveOptions, placeOf, type WaitOptions, waitLimit } from './operands.js';
import type { ProcessGroup } from './process-group.js';

/** Options of collectives of plain values. */
export interface ObjectOptions extends CollectiveOptions {
  /** The device that sends the bytes; the CPU by default. Groups of GPUs alone need `cuda`. */
  device?: DeviceName | Device;
}

/** Options of {@link broadcastObjectList}. */
export interface BroadcastObjectOptions extends ObjectOptions, WaitOptions {}

/** One call: its group, and the device of its bytes. */
interface Call {
  readonly name: string;
  readonly group: ProcessGroup;
  readonly device: Device;
}

function begin(name: string, options: ObjectOptions, names = ''): Call {
  const { group, device } = optionsOf(name, options, `${names}group device`);
  return {
    name,
    group: memberOf(name, group),
    device: device === undefined ? deviceByCode(cpu.code) : deviceOf(device),
  };
}

/**
 * Gathers the objects of all ranks into `objectList`, which has a place for each rank. All of them
 * are copies, also that of this rank.
 *
 * @throws ArgumentError for objects that cannot be copied: functions, symbols, tensors
 * @see PyTorch `torch.distributed.all_gather_object`
 */
export async function allGatherObject(
  objectList: unknown[],
  object: unknown,
  options: ObjectOptions = {},
): Promise<void> {
  const call = begin('allGatherObject', options);
  checkPlaces(call, 'objectList', objectList);
  const bytes = toBytes(call.name, object);
  const counts = await sizesOfAll(call, bytes.length);
  fill(
    objectList,
    await exchange(call, { kind: 'allGather', counts }, bytes, total(counts)),
    counts,
  );
}

/**
 * Copies the objects of rank `src` into the lists of all ranks, which have one length. With `{
 * timeoutMs: Infinity }` the ranks wait for `src` until it comes, dies or leaves.
 *
 * @param src - a rank of the world
 * @throws ArgumentError for objects that cannot be copied, and for a list of another length than
 * that of `src`
 * @see PyTorch `torch.distributed.broadcast_object_list`
 */
export async function broadcastObjectList(
  objectList: unknown[],
  src = 0,
  options: BroadcastObjectOptions = {},
): Promise<void> {
  const call = begin('broadcastObjectList', options, 'timeoutMs ');
  const limit = waitLimit(call.name, options);
  const root = placeOf(call.name, 'src', src, call.group);
  if (!Array.isArray(objectList)) throw unexpected(call.name, 'objectList', 'a list', objectList);
  const own =
    call.group.place === root
      ? objectList.map((object) => toBytes(call.name, object))
      : objectList.map(() => new Uint8Array());
  const onHosts = call.device.type === 'cpu';
  if (!onHosts) await call.group.hostsArrive(call.name, limit, callSite(broadcastObjectList));
  const first = { kind: 'broadcast', root, ...(onHosts ? limit : {}) } as const;
  const length = (await exchangeNumbers(call, first, [own.length], 1))[0] as number;
  const counts = await exchangeNumbers(
    call,
    { kind: 'broadcast', root },
    own.map((bytes) => bytes.length),
    length,
  );
  const whole = await exchange(
    call,
    { kind: 'broadcast', root },
    Buffer.concat(own),
    total(counts),
  );
  if (length !== objectList.length) {
    throw new ArgumentError(
      `${call.name}: expected objectList to have ${length} objects, as on rank ${src}, got ` +
        `${objectList.length}`,
      { op: call.name },
    );
  }
  if (call.group.place !== root) fill(objectList, whole, counts);
}

/** Options of {@link gatherObject}. */
export interface GatherObjectOptions extends ObjectOptions {
  /** On the destination, an array with a place for the value of each rank. */
  objectGatherList?: unknown[];
  /** A rank of the world; 0 if left out. */
  dst?: number;
}

/**
 * Gathers the objects of all ranks into `objectGatherList` of rank `dst`.
 *
 * @throws ArgumentError for objects that cannot be copied, for a list on another rank than `dst`,
 * and without one on `dst`
 * @see PyTorch `torch.distributed.gather_object`
 */
export async function gatherObject(
  object: unknown,
  options: GatherObjectOptions = {},
): Promise<void> {
  const call = begin('gatherObject', options, 'objectGatherList dst ');
  const { objectGatherList: list, dst = 0 } = options;
  const root = placeOf(call.name, 'dst', dst, call.group);
  const takes = call.group.place === root;
  if (takes) checkPlaces(call, 'objectGatherList', list);
  else if (list !== undefined) throw notHere(call, 'objectGatherList', dst);
  const bytes = toBytes(call.name, object);
  const counts = await sizesOfAll(call, bytes.length);
  const whole = await exchange(
    call,
    { kind: 'gather', root, counts },
    bytes,
    takes ? total(counts) : 0,
  );
  if (takes) fill(list as unknown[], whole, counts);
}

/** Options of {@link scatterObjectList}. */
export interface ScatterObjectOptions extends ObjectOptions {
  /** An object for each rank; on rank `src` only. */
  scatterObjectInputList?: readonly unknown[];
  /** A rank of the world; 0 by default. */
  src?: number;
}

/**
 * Sends an object of rank `src` to each rank, which gets it as the first element of
 * `scatterObjectOutputList`.
 *
 * @throws ArgumentError for objects that cannot be copied, for an input list on another rank than
 * `src`, and without one on `src`
 * @see PyTorch `torch.distributed.scatter_object_list`
 */
export async function scatterObjectList(
  scatterObjectOutputList: unknown[],
  options: ScatterObjectOptions = {},
): Promise<void> {
  const call = begin('scatterObjectList', options, 'scatterObjectInputList src ');
  const { scatterObjectInputList: list, src = 0 } = options;
  const { size, place } = call.group;
  const root = placeOf(call.name, 'src', src, call.group);
  if (!Array.isArray(scatterObjectOutputList) || scatterObjectOutputList.length < 1) {
    throw unexpected(
      call.name,
      'scatterObjectOutputList',
      'a list with a place for an object',
      scatterObjectOutputList,
    );
  }
  if (place === root) checkPlaces(call, 'scatterObjectInputList', list);
  else if (list !== undefined) throw notHere(call, 'scatterObjectInputList', src);
  const own = (list ?? []).map((object) => toBytes(call.name, object));
  const counts = await exchangeNumbers(
    call,
    { kind: 'broadcast', root },
    own.map((bytes) => bytes.length),
    size,
  );
  const bytes = await exchange(
    call,
    { kind: 'scatter', root, counts },
    Buffer.concat(own),
    counts[place] as number,
  );
  scatterObjectOutputList[0] = deserialize(bytes);
}

function checkPlaces({ name, group }: Call, what: string, list: unknown): void {
  if (Array.isArray(list) && list.length === group.size) return;
  const given = Array.isArray(list) ? `${list.length} places` : shown(list);
  throw new ArgumentError(
    `${name}: expected ${what} to be a list of ${group.size}, one for each rank of the ` +
      `group, got ${given}`,
    { op: name },
  );
}

function notHere({ name, group }: Call, what: string, root: number): ArgumentError {
  return new ArgumentError(
    `${name}: ${what} belongs to rank ${root} only; this is rank ${group.ranks[group.rank]}`,
    { op: name },
  );
}

function toBytes(name: string, object: unknown): Uint8Array {
  refuseTensors(name, object, new Set());
  try {
    return serialize(object);
  } catch (error) {
    throw new ArgumentError(
      `${name}: expected an object that structured clone copies (plain values, arrays, maps, ` +
        `sets, typed arrays), got ${shown(object)}: ${String(error)}`,
      {
        op: name,
      },
    );
  }
}

/** @throws ArgumentError for a tensor, which would arrive as an object without memory */
function refuseTensors(name: string, value: unknown, seen: Set<unknown>): void {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value) || seen.has(value))
    return;
  seen.add(value);
  if (value instanceof Tensor)
    throw new ArgumentError(
      `${name}: expected plain values, got a tensor among them. Send it by a collective of ` +
        'tensors, or send its values from await t.read().',
      { op: name },
    );
  const inner =
    value instanceof Map
      ? [...value.keys(), ...value.values()]
      : value instanceof Set
        ? value
        : Object.values(value);
  for (const each of inner) refuseTensors(name, each, seen);
}

const total = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);

function fill(list: unknown[], whole: Uint8Array, counts: readonly number[]): void {
  let at = 0;
  for (const [i, count] of counts.entries()) {
    list[i] = deserialize(whole.subarray(at, at + count));
    at += count;
  }
}

const sizesOfAll = (call: Call, own: number): Promise<number[]> =>
  exchangeNumbers(
    call,
    { kind: 'allGather', counts: Array<number>(call.group.size).fill(1) },
    [own],
    call.group.size,
  );

async function exchangeNumbers(
  call: Call,
  what: Exchange,
  own: readonly number[],
  count: number,
): Promise<number[]> {
  const bytes = await exchange(
    call,
    what,
    new Uint8Array(Float64Array.from(own).buffer),
    8 * count,
    float64,
  );
  return [...new Float64Array(bytes.buffer, 0, count)];
}

type Exchange = Pick<CollectiveCall, 'kind' | 'root' | 'counts' | 'timeoutMs'>;

/**
 * Runs a collective of bytes and waits for its result of `size` bytes. The root of a broadcast gets
 * its own bytes. All of it is on the stream of the group, so that one with a stream of its own holds
 * up nothing else.
 */
async function exchange(
  { name, group, device }: Call,
  what: Exchange,
  bytes: Uint8Array,
  size: number,
  dtype: DType = uint8,
): Promise<Uint8Array> {
  const received = new Uint8Array(size);
  const start = (): { used: Set<Tensor>; read: Promise<void> } => {
    const input = newTensor(dtype, device, bytes.length);
    if (bytes.length > 0) writeBytes(input, bytes);
    const inPlace = what.kind === 'broadcast' && group.place === what.root;
    const output = inPlace ? input : newTensor(dtype, device, size);
    group.run(name, { ...what, input: what.kind === 'broadcast' ? output : input, output });
    const read = size > 0 ? readBytes(output, received) : Promise.resolve();
    return { used: new Set([input, output]), read };
  };
  if (group.ownStream) group.streamFor(device, name); // errors of joining name this call
  const { used, read } = group.ownStream ? group.onStream(device, start) : start();
  await read;
  for (const t of used) t.dispose();
  return received;
}

function newTensor(dtype: DType, device: Device, bytes: number): Tensor {
  return new Tensor([bytes / dtype.itemsize], [1], 0, dtype, device, allocateNow(device, bytes));
}
