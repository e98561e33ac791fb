/** `distributedCheckpoint`: saves and loads the state of all ranks, for any number of them. */
import { checkFlag, optionsOf } from '../../core/options.js';
import type { CheckpointState, Stateful } from '../../index.js';
import { type LoadedCheckpoint, loadAll } from './load/load.js';
import { Ranks } from './ranks.js';
import {
  afterEarlierSave,
  earlierSave,
  inBackground,
  type PendingSave,
} from './save/pending-saves.js';
import { checkFolder, prepareSave, writeSave } from './save/save.js';
import { rng } from './state/state-entries.js';

/** Options of `distributedCheckpoint.save`. */
export interface DistributedSaveOptions {
  /** Whether the program goes on while the files are written. False by default. */
  async?: boolean;
}

/** Options of `distributedCheckpoint.load`. */
export interface DistributedLoadOptions {
  /** Whether the paths of the state and of the checkpoint must be the same. True by default. */
  strict?: boolean;
  /** Whether checksums are compared. True by default. */
  verify?: boolean;
}

/** Saving and loading of states from all ranks. */
export interface DistributedCheckpoint {
  /**
   * With `async`, resolves as soon as this rank has copied what it writes to host memory; the state
   * may change from then on. The next save waits until this one is complete.
   *
   * @throws CheckpointError also if the save before failed and its `wait` was not called
   * @example
   * const { rng } = distributedCheckpoint;
   * await distributedCheckpoint.save('run', { model, optimizer, rng, step });
   */
  save(
    folder: string,
    state: CheckpointState,
    options: DistributedSaveOptions & { async: true },
  ): Promise<PendingSave>;
  /**
   * Saves a state from all ranks, which call it together; without a process group, from this one.
   * Each rank writes its own shards to one safetensors file of the folder, what several ranks hold
   * is written once, and an index is written last. A crash at any moment leaves the last
   * checkpoint. Plain tensors are compared between ranks, large ones by a sample; buffers of
   * modules are those of the first rank.
   *
   * @param state - tensors, distributed tensors, modules, optimizers, other objects with
   * `stateDict`, and plain values, in nested objects
   * @throws CheckpointError on all ranks if one of them cannot write, with its cause, or a plain
   * tensor differs between them; CollectiveError if a rank has died, or does not come within
   * `timeoutMs` of the process group; ArgumentError for values that cannot be saved
   * @see PyTorch `torch.distributed.checkpoint.save`
   * @example await distributedCheckpoint.save('run', { model, optimizer, rng:
   * distributedCheckpoint.rng, step });
   */
  save(folder: string, state: CheckpointState, options?: DistributedSaveOptions): Promise<void>;
  /**
   * Loads a checkpoint into a state, which the ranks of any number and mesh call together. Tensors
   * are filled in place, plain values are set in the objects of the state, an empty object gets all
   * that the checkpoint has there, and other objects get theirs by `loadStateDict`. A rank reads
   * the bytes that it holds and at most 1 MiB more.
   *
   * @throws CheckpointError on all ranks, before anything changes, if there is no checkpoint or it
   * does not fit the state; after some tensors were loaded, if a file is missing or damaged
   * @see PyTorch `torch.distributed.checkpoint.load`
   */
  load(
    folder: string,
    state: CheckpointState,
    options?: DistributedLoadOptions,
  ): Promise<LoadedCheckpoint>;
  /** The random numbers of this rank, as a part of a state. */
  readonly rng: Stateful;
}

async function save(
  folder: string,
  state: CheckpointState,
  options: DistributedSaveOptions & { async: true },
): Promise<PendingSave>;
async function save(
  folder: string,
  state: CheckpointState,
  options?: DistributedSaveOptions,
): Promise<void>;
async function save(
  folder: string,
  state: CheckpointState,
  options: DistributedSaveOptions = {},
): Promise<PendingSave | void> {
  const op = 'distributedCheckpoint.save';
  checkFolder(op, folder);
  const { async: copies = false } = optionsOf(op, options, 'async');
  checkFlag(op, 'async', copies);
  const ranks = new Ranks(copies ? 'background' : 'checkpoints');
  const earlier = await earlierSave(ranks);
  const prepared = await prepareSave(ranks, folder, state, { copies, earlier });
  if (!copies) return writeSave(ranks, prepared);
  const writing = writeSave(ranks, prepared).finally(() => {
    // Views that are not collected yet would keep the memory.
    for (const copy of Object.values(prepared.own)) copy.untypedStorage().resize_(0);
  });
  return inBackground(ranks, writing);
}

/**
 * Saves and loads the state of all ranks, for any number of them: see {@link
 * DistributedCheckpoint}.
 */
export const distributedCheckpoint: DistributedCheckpoint = Object.freeze({
  save,

  async load(
    folder: string,
    state: CheckpointState,
    options: DistributedLoadOptions = {},
  ): Promise<LoadedCheckpoint> {
    const op = 'distributedCheckpoint.load';
    checkFolder(op, folder);
    const { strict = true, verify = true } = optionsOf(op, options, 'strict verify');
    checkFlag(op, 'strict', strict);
    checkFlag(op, 'verify', verify);
    const ranks = new Ranks();
    await afterEarlierSave(ranks);
    return loadAll(ranks, folder, state, { strict, verify });
  },

  rng,
});
