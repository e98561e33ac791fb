/** Batches of what was loaded: collated, with tensors on their device. */
import { scope, type Tensor, tree } from '../index.js';
import { type TensorPlace, toTensors } from './batch-tensors.js';
import { collateArrays } from './collate.js';
import { DeviceCopies } from './device-copies.js';
import type { Fetched, FetchedStep } from './fetch.js';
import type { CheckedOptions } from './loader-options.js';
import type { Place } from './order.js';

/** A batch, and where the next step begins. */
export interface Made<Batch> {
  readonly batch: Batch;
  readonly after: Place;
}

type BatchOptions<Sample, Batch> = Pick<
  CheckedOptions<Sample, Batch>,
  'collateFn' | 'device' | 'pinMemory'
>;

/** Makes the batches. On a GPU, the copy of a batch begins before the one before it is used. */
export async function* withTensors<Sample, Batch>(
  loaded: AsyncIterable<FetchedStep<Sample>>,
  options: BatchOptions<Sample, Batch>,
): AsyncGenerator<Made<Batch>, void> {
  const { device } = options;
  const copies = device?.type === 'cuda' ? new DeviceCopies(device) : null;
  let copied: Made<Batch> | null = null;
  try {
    for await (const { fetched, after } of loaded) {
      const batch = await batchOf(fetched, options);
      if (copies === null) yield { batch, after };
      else {
        const before = copied;
        copied = { batch: copies.begin(batch) as Batch, after };
        if (before !== null) yield before;
      }
    }
    if (copied !== null) yield copied;
  } finally {
    copies?.end();
  }
}

async function batchOf<Sample, Batch>(
  fetched: Fetched<Sample>,
  options: BatchOptions<Sample, Batch>,
): Promise<Batch> {
  const { collateFn, device, pinMemory } = options;
  const isCopied = device?.type === 'cuda';
  if (collateFn !== null && 'samples' in fetched) {
    const batch = await collateFn(fetched.samples);
    if (isCopied || (device === null && !pinMemory)) return batch;
    return tree.map((t: Tensor) => placed(t, options), batch);
  }
  const place: TensorPlace = {
    ...(device === null ? {} : { device: isCopied ? 'cpu' : device }),
    pinMemory: pinMemory || isCopied,
  };
  const arrays = 'batch' in fetched ? fetched.batch : collateArrays(fetched.samples);
  return scope(() => toTensors(arrays, place)) as Batch;
}

type Placement = Pick<CheckedOptions<unknown, unknown>, 'device' | 'pinMemory'>;

function placed(t: Tensor, { device, pinMemory }: Placement): Tensor {
  const moved = device === null ? t : t.to(device);
  return pinMemory ? moved.pinMemory() : moved;
}
