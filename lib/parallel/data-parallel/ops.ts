/**
 * The ops of a forward, around those of the module. What data parallelism counts and prepares it
 * does where they run, so that graphs repeat it: a capture leaves the reducer as it was.
 */
import { library, type Tensor } from '../../index.js';
import type { BufferSync } from './module-sync.js';
import type { Reducer } from './reducer.js';

const options = { communicates: true, keepsNoTensors: true } as const;

/** Begins a forward whose gradients are recorded. `syncs`: whether backward reduces them. */
export const beginForward = library
  .customOp('ddp::beginForward', options, (reducer: Reducer, syncs: boolean): void =>
    reducer.beginForward(syncs),
  )
  .registerFake(() => undefined);

/** Copies the buffers of one rank to all. */
export const syncBuffers = library
  .customOp(
    'ddp::syncBuffers',
    { ...options, mutatesArgs: [0] },
    (buffers: readonly Tensor[], sync: BufferSync, reducer: Reducer): void =>
      sync.run(buffers, reducer.rounds?.publishBuffers()),
  )
  .registerFake(() => undefined);

/**
 * Ends a forward. `reached`: the indices of the parameters that its outputs depend on; null if they
 * were not looked for. `isSeen`: whether its outputs show that backward comes to them.
 */
export const endForward = library
  .customOp(
    'ddp::endForward',
    options,
    (
      reducer: Reducer,
      syncs: boolean,
      reached: readonly number[] | null,
      isSeen: boolean,
    ): void => {
      if (syncs) reducer.endForward(reached, isSeen);
      else reducer.endUnsyncedForward();
    },
  )
  .registerFake(() => undefined);
