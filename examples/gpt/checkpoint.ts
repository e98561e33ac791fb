/** Checkpoints of the example: one safetensors file with everything that a run needs to resume. */
import { existsSync } from 'node:fs';
import {
  CheckpointError,
  type DeviceName,
  float64,
  type optim,
  SafetensorsFile,
  saveSafetensors,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { UserError } from '../common/arguments.js';
import type { Gpt } from './model.js';
import { whole } from './sharing.js';

/** The progress of a run. */
export interface Progress {
  /** Steps done. */
  step: number;
  /** The training loss of each step. */
  losses: number[];
}

/**
 * Writes parameters, optimizer state and losses as whole tensors, the step and the model's sizes as
 * metadata. All ranks call it, one `writes`.
 */
export async function saveCheckpoint(
  file: string,
  model: Gpt,
  optimizer: optim.AdamW,
  { step, losses }: Progress,
  writes: boolean,
): Promise<void> {
  const tensors: Record<string, Tensor> = { losses: tensor(losses, { dtype: float64 }) };
  for (const [name, t] of Object.entries(model.stateDict())) tensors[`model.${name}`] = whole(t);
  for (const [id, values] of Object.entries(optimizer.stateDict().state)) {
    for (const [name, value] of Object.entries(values))
      tensors[`optimizer.${id}.${name}`] =
        typeof value === 'number' ? tensor(value, { dtype: float64 }) : whole(value);
  }
  if (!writes) return;
  await saveSafetensors(file, tensors, {
    metadata: { step: String(step), config: JSON.stringify(model.config) },
  });
}

/**
 * Takes up a checkpoint. @throws UserError if there is none, or it is of another model or damaged
 */
export async function loadCheckpoint(
  path: string,
  model: Gpt,
  optimizer: optim.AdamW,
  device: DeviceName,
): Promise<Progress> {
  if (!existsSync(path))
    throw new UserError(
      `there is no checkpoint at ${path}; run once without --resume, or name its folder with --out`,
    );
  try {
    const file = await SafetensorsFile.open(path);
    try {
      return await readCheckpoint(file, model, optimizer, device);
    } finally {
      await file.close();
    }
  } catch (error) {
    if (error instanceof CheckpointError) throw new UserError(error.message, { cause: error });
    throw error;
  }
}

async function readCheckpoint(
  file: SafetensorsFile,
  model: Gpt,
  optimizer: optim.AdamW,
  device: DeviceName,
): Promise<Progress> {
  const { step: written, config } = file.metadata;
  const step = Number(written);
  if (!Number.isSafeInteger(step) || step < 1 || config === undefined)
    throw new UserError(`${file.path} is not a checkpoint of this program`);
  if (config !== JSON.stringify(model.config))
    throw new UserError(
      `${file.path} is of another model: ${config}, not ${JSON.stringify(model.config)}`,
    );
  const weights: Record<string, Tensor> = {};
  const state: Record<number, Record<string, Tensor>> = {};
  for (const key of file.names) {
    const [kind, id, name] = key.split('.');
    if (kind === 'model') weights[key.slice('model.'.length)] = await file.get(key, { device });
    if (kind === 'optimizer')
      (state[Number(id)] ??= {})[name as string] = await file.get(key, { device });
  }
  model.loadStateDict(weights);
  optimizer.loadStateDict({ ...optimizer.stateDict(), state });
  return { step, losses: (await file.get('losses')).tolist() as number[] };
}
