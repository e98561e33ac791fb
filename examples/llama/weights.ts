/** A sharded model from the files of a Hugging Face folder, and to such files. */
import { copyFile, readdir } from 'node:fs/promises';
import path from 'node:path';
import { loadHuggingFace, saveHuggingFace } from '../../lib/distributed.js';
import { UserError } from '../common/arguments.js';
import { loraLayers } from './lora.js';
import { fileName, type Llama } from './model.js';

const isLora = (name: string): boolean => /\.lora[AB]$/.test(name);

/**
 * Loads the weights of a folder, each rank its shards; LoRA begins anew. All ranks call it.
 *
 * @throws UserError if names differ; CheckpointError if a file is missing or damaged, or shapes differ
 */
export async function loadWeights(folder: string, model: Llama): Promise<void> {
  const names = new Map(Object.keys(model.stateDict()).map((name) => [fileName(name), name]));
  // Older files have the frequencies of the rotary embedding, which the configuration gives.
  const rename = (name: string): string | null =>
    name.endsWith('.rotary_emb.inv_freq') ? null : (names.get(name) ?? name);
  const { missing, unexpected } = await loadHuggingFace(folder, model, { rename, strict: false });
  const wanted = missing.filter((name) => !isLora(name)).map(fileName);
  if (wanted.length > 0 || unexpected.length > 0)
    throw new UserError(
      `${folder}: the files and config.json do not fit: ` +
        [...wanted.map((name) => `no ${name}`), ...unexpected.map((name) => `unknown ${name}`)]
          .slice(0, 10)
          .join(', '),
    );
  for (const layer of loraLayers(model)) layer.resetLora();
}

/**
 * Writes the weights to a folder that Hugging Face reads, with those of LoRA merged, in the dtype of
 * the configuration. The model has that dtype then. All ranks call it.
 */
export async function exportWeights(folder: string, model: Llama): Promise<void> {
  for (const layer of loraLayers(model)) layer.merge();
  const { storedDtype, tiedEmbeddings } = model.config;
  if (storedDtype !== null) model.to({ dtype: storedDtype });
  const rename = (name: string): string | null =>
    isLora(name) || (tiedEmbeddings && name === 'lmHead.weight') ? null : fileName(name);
  await saveHuggingFace(folder, model, { rename });
}

/** Copies what a folder has beside weights: configuration and tokenizer. */
export async function copyOthers(from: string, to: string): Promise<void> {
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const { name } = entry;
    const isOther = /\.(json|model|txt|jinja)$/.test(name) && !name.endsWith('.index.json');
    if (entry.isFile() && isOther) await copyFile(path.join(from, name), path.join(to, name));
  }
}
