/**
 * The folders of a run: one checkpoint for each step that was saved. What a program has put into
 * them, or beside them under such a name, is its own and stays.
 */
import { access, readdir, rmdir, unlink } from 'node:fs/promises';
import path from 'node:path';
import { CheckpointError } from '../../../index.js';
import { INDEX_NAME, isOfCheckpoint } from '../checkpoint-index.js';

export const stepFolder = (folder: string, step: number): string =>
  path.join(folder, `step-${step}`);

/** A folder of a step, or a link to one. */
export interface StepFolder {
  readonly step: number;
  /** Whether it has an index. */
  readonly isComplete: boolean;
  readonly isLink: boolean;
}

const stepName = /^step-(0|[1-9]\d*)$/;

/** The folders of steps, the last first. */
export async function stepsOf(folder: string): Promise<StepFolder[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw new CheckpointError(
        `${folder}: the folder cannot be read: ${error.message}`,
        { folder },
        { cause: error },
      );
    },
  );
  const steps = await Promise.all(
    entries.map(async (entry): Promise<StepFolder[]> => {
      const step = Number(stepName.exec(entry.name)?.[1] ?? Number.NaN);
      const isLink = entry.isSymbolicLink();
      if (!Number.isSafeInteger(step) || !(isLink || entry.isDirectory())) return [];
      const isComplete = await access(path.join(folder, entry.name, INDEX_NAME)).then(
        () => true,
        () => false,
      );
      return [{ step, isComplete, isLink }];
    }),
  );
  return steps.flat().sort((a, b) => b.step - a.step);
}

/** The steps of complete checkpoints, the last first. */
export async function completeSteps(folder: string): Promise<number[]> {
  return (await stepsOf(folder)).flatMap(({ step, isComplete }) => (isComplete ? [step] : []));
}

/**
 * Removes all but the last checkpoints, what crashes left before them, and those that are damaged.
 * What cannot be removed stays.
 */
export async function removeOldSteps(
  folder: string,
  keep: number,
  damaged: ReadonlySet<number>,
): Promise<void> {
  const steps = await stepsOf(folder);
  const complete = steps.flatMap(({ step, isComplete }) =>
    isComplete && !damaged.has(step) ? [step] : [],
  );
  const kept = new Set(complete.slice(0, keep));
  const [last] = complete;
  for (const old of steps) {
    const { step } = old;
    if (kept.has(step) || last === undefined || (step > last && !damaged.has(step))) continue;
    await removeStep(stepFolder(folder, step), old).catch(() => {});
  }
}

/**
 * Removes a checkpoint and its folder, if that holds nothing else. A link to a checkpoint goes, and
 * what it names stays: it belongs to someone else.
 */
async function removeStep(old: string, { isLink, isComplete }: StepFolder): Promise<void> {
  if (isLink) return isComplete ? unlink(old) : undefined;
  const names = (await readdir(old)).filter(isOfCheckpoint);
  // Without an index it is no checkpoint, also if the rest is not removed; with it, it stays one.
  if (isComplete) await unlink(path.join(old, INDEX_NAME));
  for (const name of names) await unlink(path.join(old, name)).catch(() => {});
  await rmdir(old);
}
