/**
 * Trains a Llama of a Hugging Face folder further, in full or with LoRA, sharded by `fullyShard` over
 * one or several ranks, and exports it as such a folder.
 *
 *   node --import tsx examples/finetune-llama.ts FOLDER [--lora RANK] [--ranks N] [--device cpu|cuda] [--dtype float32|bfloat16] [--text file | --tokens ids.json] [--steps N] [--resume] [--out runs/llama]
 */
import cliProgress from 'cli-progress';
import { UserError } from './common/arguments.js';
import { type Options, parseOptions } from './llama/options.js';
import { finetune, type Shown } from './llama/training.js';

/** Shows steps as a progress bar. */
function makeBar(steps: number): Shown & { stop(): void } {
  const bar = new cliProgress.SingleBar({
    format: '{bar} {value}/{total} | loss {loss} | {rate} tokens/s | {memory} MiB | {eta} s left',
    etaBuffer: 50,
  });
  bar.start(steps, 0, { loss: '-', rate: '-', memory: '-' });
  return {
    report: ({ step, loss, tokensPerSecond, memoryBytes }) =>
      bar.update(step, {
        loss: loss.toFixed(3),
        rate: tokensPerSecond.toFixed(0),
        memory: (memoryBytes / 2 ** 20).toFixed(0),
      }),
    message(text) {
      bar.stop();
      console.error(text);
    },
    stop: () => bar.stop(),
  };
}

async function main(options: Options): Promise<void> {
  if (options.json) {
    const { losses, ...end } = await finetune(options, {
      report: (step) => console.log(JSON.stringify(step)),
      message: console.error,
    });
    console.log(JSON.stringify({ done: true, ...end }));
    return;
  }
  const bar = makeBar(options.steps);
  const { lossBefore, lossAfter, exported, goOn } = await finetune(options, bar).finally(bar.stop);
  console.log(
    `held-out loss ${lossBefore.toFixed(3)} before, ${lossAfter.toFixed(3)} after, in nats a token\n` +
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
