/** The folder of a run: its checkpoints, what a resumed run has to agree with, and the model. */
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { UserError } from '../common/arguments.js';
import type { Options } from './options.js';

export const checkpointsOf = (out: string): string => path.join(out, 'checkpoints');
export const modelOf = (out: string): string => path.join(out, 'model');

/**
 * Makes the folder of a new run, or checks that the run in it may go on.
 *
 * @throws UserError if the folder cannot be used: a new run would mix its checkpoints with those of
 * another, and LoRA of another shape does not fit
 */
export async function prepareFolder({ lora, out, resume }: Options): Promise<void> {
  const file = path.join(out, 'run.json');
  const settings = JSON.stringify({ lora });
  if (resume) {
    const before = await readFile(file, 'utf8').catch(() => {
      throw new UserError(
        `there is no run in ${out}; run once without --resume, or name its folder with --out`,
      );
    });
    if (before === settings) return;
    throw new UserError(
      `the run in ${out} has ${before}, this one ${settings}; give the same --lora, --lora-alpha and ` +
        '--lora-targets',
    );
  }
  const found = await readdir(checkpointsOf(out)).catch(() => []);
  if (found.length > 0)
    throw new UserError(
      `--out ${out} has checkpoints of a run; go on with it by --resume, or give another folder`,
    );
  try {
    await mkdir(out, { recursive: true });
    await writeFile(file, settings);
  } catch (error) {
    throw new UserError(`--out ${out} cannot be used: ${(error as Error).message}`);
  }
}
