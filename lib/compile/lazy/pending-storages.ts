/** Gives storages that have no memory yet that of results, and runs what computes these. */
import type { Backend } from '../../core/backend.js';
import type { Device } from '../../core/device.js';
import { hooks, layers } from '../../core/hooks.js';
import { moduleCalls } from '../../core/module-calls.js';
import { innermostScope, type Scope, setScope } from '../../core/scope-stack.js';
import { sameShape } from '../../core/shape.js';
import { PENDING_HANDLE, Storage } from '../../core/storage.js';
import { Tensor } from '../../core/tensor.js';
import { runEager } from '../../eager/eager-backend.js';
import { allocateNow } from '../../eager/memory.js';
import type { ValueMeta } from '../graph/node.js';

/** Where the work of a segment goes, as when its ops were called. */
export interface Place {
  readonly backend: Backend;
  readonly device: Device;
  readonly stream: number;
  readonly scope: Scope | null;
}

/** Memory that a result of a segment will have. */
export class PendingStorage extends Storage {
  /** The number of the value, whose tensor has all of the memory. */
  readonly number: number;
  readonly meta: ValueMeta;

  constructor(device: Device, bytes: number, number: number, meta: ValueMeta) {
    super(device, bytes);
    this.handle = PENDING_HANDLE;
    this.number = number;
    this.meta = meta;
  }
}

/**
 * Runs `compute` as the program ran at the place, and puts its results under the storages, one for
 * each; the results are tensors of the program, or others.
 *
 * @throws what `compute` throws; the storages are then freed
 */
export function fill(
  place: Place,
  pending: readonly PendingStorage[],
  compute: () => readonly Tensor[],
): void {
  try {
    atPlace(place, () => {
      const results = compute();
      const taken = new Set<Storage>();
      pending.forEach((storage, i) => {
        const result = results[i] as Tensor;
        if (!takeOver(storage, result, taken)) copyOver(storage, result);
        if (storage.scope === null && storage.token === null) storage.escape();
      });
    });
  } catch (error) {
    const reason = `the ops that compute it failed: ${(error as Error).message}`;
    for (const storage of pending) if (storage.handle === PENDING_HANDLE) storage.markFreed(reason);
    throw error;
  }
}

/** Takes the memory of a result that nothing else uses. */
function takeOver(storage: PendingStorage, t: Tensor, taken: Set<Storage>): boolean {
  const from = t.storage;
  const isOwn =
    from !== null &&
    from.handle > 0 &&
    from.nbytes === storage.nbytes &&
    t.storageOffset === 0 &&
    sameShape(t.strides, storage.meta.strides) &&
    from.refs - from.retains === 1 &&
    from.retains === 0 &&
    from.owner === null &&
    from.pendingReads === null &&
    !taken.has(from);
  if (!isOwn) return false;
  taken.add(from);
  storage.handle = from.handle;
  storage.token = from.token ?? t.token;
  from.markFreed('a result of a lazy segment took it over');
  return true;
}

function copyOver(storage: PendingStorage, t: Tensor): void {
  const memory = allocateNow(storage.device, storage.nbytes);
  const { shape, strides, dtype, device } = storage.meta;
  const copy = new Tensor(shape, strides, 0, dtype, device, memory);
  runEager(hooks.copyOp, [t], {}, copy);
  takeOver(storage, copy, new Set());
}

/** Runs `fn` in the scope and on the stream of a place; its ops go to the addon at once. */
function atPlace({ device, stream, scope, backend }: Place, fn: () => void): void {
  const { dtensor, hasMode } = layers;
  const before = layers.backend;
  const scopeBefore = innermostScope();
  const streamBefore = device.currentStream;
  const { run } = moduleCalls;
  layers.backend = backend;
  layers.dtensor = null;
  layers.hasMode = false;
  moduleCalls.run = null;
  device.currentStream = stream;
  setScope(scope);
  try {
    fn();
  } finally {
    layers.backend = before;
    layers.dtensor = dtensor;
    layers.hasMode = hasMode;
    moduleCalls.run = run;
    device.currentStream = streamBefore < 0 ? device.currentStream : streamBefore;
    setScope(scopeBefore);
  }
}
