/** Samples on their way to another thread: memory is moved there, not copied on both sides. */
import { DataError } from '../core/errors.js';
import { isPlain } from '../core/plain-object.js';
import { isTensor } from './collate.js';

/** A value whose typed arrays may be moved, and the memory to move. */
export interface Detached {
  readonly value: unknown;
  readonly buffers: ArrayBuffer[];
}

/**
 * Finds the memory to move. It is gone here then, so that typed arrays are copied unless they are
 * `isOwn`, made for this value: a dataset may have them, or more in the same memory.
 *
 * @throws DataError for tensors, which belong to their thread
 */
export function detached(value: unknown, isOwn: boolean): Detached {
  const buffers: ArrayBuffer[] = [];
  const move = (view: ArrayBufferView): unknown => {
    const own = isOwn ? view : copyOf(view);
    buffers.push(own.buffer as ArrayBuffer);
    return own;
  };
  return { value: visited(value, move), buffers };
}

const copyOf = (view: ArrayBufferView): ArrayBufferView =>
  view instanceof DataView
    ? new DataView(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength))
    : (view as Uint8Array).slice();

function visited(value: unknown, move: (view: ArrayBufferView) => unknown): unknown {
  if (ArrayBuffer.isView(value)) return move(value);
  if (Array.isArray(value)) return value.map((each) => visited(each, move));
  if (isPlain(value))
    return Object.fromEntries(
      Object.entries(value).map(([name, each]) => [name, visited(each, move)]),
    );
  if (isTensor(value))
    throw new DataError(
      'DataLoader: expected samples that another thread can be given, got a tensor, whose memory ' +
        'belongs to the worker; return a typed array',
    );
  return value;
}
