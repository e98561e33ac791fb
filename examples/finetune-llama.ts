/**
 * Trains a Llama of a Hugging Face folder further, in full or with LoRA, sharded by `fullyShard` over
 * one or several ranks, and exports it as such a folder.
 *
 *   node --import tsx examples/finetune-llama.ts FOLDER [--lora RANK] [--ranks N] [--device cpu|cuda] [--dtype float32|bfloat16] [--text file | --tokens ids.json] [--steps N] [--resume] [--out runs/llama]
 */
import { progress } from '../lib/train/index.js';
import { UserError } from './common/arguments.js';
import { type Options, parseOptions } from './llama/options.js';
import { finetune } from './llama/training.js';

async function main(options: Options): Promise<void> {
  const { json } = options;
  const shown = progress({ json });
  const end = await finetune(options, shown).finally(() => shown.close());
  const { losses: _, ...others } = end;
  const { lossBefore, lossAfter, exported, goOn } = end;
  console.log(
    json
      ? JSON.stringify({ done: true, ...others })
      : `held-out loss ${lossBefore.toFixed(3)} before, ${lossAfter.toFixed(3)} after, in nats a token\n` +
          `model: ${exported}\ngo on with: ${goOn}`,
  );
}

try {
  await main(parseOptions());
} catch (error) {
  if (!(error instanceof UserError)) throw error;
  console.error(`finetune-llama: ${error.message}`);
  process.exitCode = 1;
}
