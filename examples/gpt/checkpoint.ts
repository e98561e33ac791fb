/** Checkpoints of the example: a folder for each, which any number of ranks resumes from. */
import { rm } from 'node:fs/promises';
import path from 'node:path';
import type { DataLoader, TokenWindow } from '../../lib/data/index.js';
import { barrier, Checkpointer } from '../../lib/distributed.js';
import { CheckpointError, type optim } from '../../lib/index.js';
import { UserError } from '../common/arguments.js';
import type { Gpt } from './model.js';
import type { Options } from './options.js';

/** The progress of a run. */
export type Progress = {
  /** Steps done. */
  step: number;
  /** The training loss of each step. */
  losses: number[];
};

/** What a checkpoint holds. */
export type State = {
  model: Gpt;
  optimizer: optim.AdamW;
  /** The batches, from the place on where a run before has ended. */
  data: DataLoader<TokenWindow>;
  progress: Progress;
};

const folderOf = ({ out }: Options): string => path.join(out, 'checkpoints');

/**
 * Saves the run every so many steps, and when Ctrl-C ends it. All ranks make it. A new run begins
 * without the checkpoints of an earlier one.
 */
export async function openCheckpoints(
  options: Options,
  isFirst: boolean,
  report: (message: string) => void,
): Promise<Checkpointer> {
  const folder = folderOf(options);
  if (!options.resume && isFirst) await rm(folder, { recursive: true, force: true });
  if (options.ranks > 1) await barrier();
  const resumeArguments = ['--resume'];
  return new Checkpointer({ folder, every: options.saveEvery, resumeArguments, report });
}

/**
 * Takes up the last checkpoint. @throws UserError if there is none, or it is of another model or
 * damaged
 */
export async function resume(
  checkpointer: Checkpointer,
  options: Options,
  state: State,
): Promise<void> {
  try {
    const step = await checkpointer.resume(state);
    if (step === null)
      throw new UserError(
        `there is no checkpoint at ${folderOf(options)}; run once without --resume, or name its ` +
          'folder with --out',
      );
  } catch (error) {
    if (error instanceof CheckpointError) throw new UserError(error.message, { cause: error });
    throw error;
  }
}
