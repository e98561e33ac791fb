/** The folders of a run: one checkpoint for each step that was saved. */
import { access, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { CheckpointError } from '../../../index.js';
import { INDEX_NAME } from '../checkpoint-index.js';

export const stepFolder = (folder: string, step: number): string =>
  path.join(folder, `step-${step}`);

/** Steps with a folder, the last first; those that are complete have an index. */
async function stepsOf(folder: string): Promise<{ step: number; isComplete: boolean }[]> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw new CheckpointError(
      `${folder}: the folder cannot be read: ${error.message}`,
      { folder },
      { cause: error },
    );
  });
  const steps = names.flatMap((name) => /^step-(\d+)$/.exec(name)?.[1] ?? []).map(Number);
  return Promise.all(
    steps
      .sort((a, b) => b - a)
      .map(async (step) => ({
        step,
        isComplete: await access(path.join(stepFolder(folder, step), INDEX_NAME)).then(
          () => true,
          () => false,
        ),
      })),
  );
}

/** The steps of complete checkpoints, the last first. */
export async function completeSteps(folder: string): Promise<number[]> {
  return (await stepsOf(folder)).flatMap(({ step, isComplete }) => (isComplete ? [step] : []));
}

/**
 * Removes all but the last checkpoints, what crashes left before them, and those that are damaged.
 * Folders that cannot be removed stay.
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
  for (const { step } of steps) {
    if (kept.has(step) || last === undefined || (step > last && !damaged.has(step))) continue;
    const old = stepFolder(folder, step);
    // Without an index it is no checkpoint, also if the rest is not removed.
    await rm(path.join(old, INDEX_NAME), { force: true }).catch(() => {});
    await rm(old, { recursive: true, force: true }).catch(() => {});
  }
}
