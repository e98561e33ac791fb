/**
 * The main job: trains a small GPT on Moby-Dick, byte by byte, on the GPU if there is one.
 *
 *   npm start -- [--steps N] [--batch N] [--device cpu|cuda] [--resume] [--json] [--out runs/gpt]
 */
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import cliProgress from 'cli-progress';
import { crossEntropy, type DeviceName, manualSeed, memory, multinomial, nn, noGrad, optim, scope, type Tensor, tensor } from '../lib/index.js';
import { loadCheckpoint, type Progress, saveCheckpoint } from './gpt/checkpoint.js';
import { lossCurveSvg } from './gpt/loss-curve.js';
import { Gpt, type GptConfig } from './gpt/model.js';
import { DEFAULT_STEPS, type Options, parseOptions, UserError } from './gpt/options.js';
import { bigramLoss, evaluationStarts, loadText, makeRandom, sampleBatch, type Text, windowsAt } from './gpt/text.js';

const config: GptConfig = { vocabSize: 256, contextLength: 128, numLayers: 4, numHeads: 4, dModel: 128 };

/** Warms up linearly, then falls along half a cosine to a tenth. */
function learningRate(step: number, steps: number, lr: number): number {
  const warmup = Math.min(20, Math.floor(steps / 10));
  if (step < warmup) return (lr * (step + 1)) / warmup;
  return lr * (0.1 + 0.45 * (1 + Math.cos((Math.PI * (step - warmup)) / Math.max(1, steps - warmup))));
}

function lossOf(model: Gpt, [inputs, targets]: [Tensor, Tensor]): Tensor {
  return crossEntropy(model(inputs).reshape(-1, config.vocabSize), targets.reshape(-1));
}

/** Mean loss over the held-out text, on the windows on which the bigram model is judged too. */
async function validate(model: Gpt, { validation }: Text, device: DeviceName): Promise<number> {
  const starts = evaluationStarts(validation, config.contextLength);
  const rows = 16;
  let total = 0;
  for (let i = 0; i < starts.length; i += rows) {
    const some = starts.slice(i, i + rows);
    const loss = noGrad(() => scope(() => lossOf(model, windowsAt(validation, some, config.contextLength, device))));
    total += (await loss.itemAsync()) * some.length;
    loss.dispose();
  }
  return total / starts.length;
}

/** Continues a prompt, byte by byte, at temperature 0.8. */
async function sampleText(model: Gpt, prompt: string, length: number, device: DeviceName): Promise<string> {
  const bytes = [...new TextEncoder().encode(prompt)];
  for (let i = 0; i < length; i++) {
    const window = bytes.slice(-config.contextLength);
    const next = noGrad(() =>
      scope(() => {
        const ids = tensor(BigInt64Array.from(window, BigInt), { device }).unsqueeze(0);
        const logits = model(ids)
          .select(1, window.length - 1)
          .div(0.8);
        return multinomial(logits.softmax(-1), 1);
      }),
    );
    bytes.push(await next.itemAsync());
    next.dispose();
  }
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

/** A run in the making. */
interface Run {
  options: Options;
  text: Text;
  model: Gpt;
  optimizer: optim.AdamW;
  /** Steps done before, and in all. */
  first: number;
  steps: number;
  losses: number[];
}

const peakBytes = (device: DeviceName): number => memory.stats(device).peakAllocatedBytes;

async function prepare(options: Options, checkpoint: string): Promise<Run> {
  const { device, lr, out, resume, seed } = options;
  await mkdir(out, { recursive: true }).catch((error: Error) => {
    throw new UserError(`--out ${out} cannot be used: ${error.message}`);
  });
  manualSeed(seed);
  const model = new Gpt(config).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr, betas: [0.9, 0.95], weightDecay: 0.1 });
  const { step: first, losses }: Progress = resume ? await loadCheckpoint(checkpoint, model, optimizer, device) : { step: 0, losses: [] };
  const steps = options.steps ?? first + DEFAULT_STEPS;
  if (steps <= first) throw new UserError(`the checkpoint is at step ${first} already; give --steps more than that`);
  return { options, text: loadText(), model, optimizer, first, steps, losses };
}

/** Trains to the last step. Returns tokens per second. */
async function train({ options, text, model, optimizer, first, steps, losses }: Run): Promise<number> {
  const { batch, device, json, lr, seed } = options;
  const random = makeRandom(seed + first);
  const bar = json ? null : new cliProgress.SingleBar({ format: '{bar} {value}/{total} | loss {loss} | {rate} tokens/s | {memory} MiB | {eta} s left', etaBuffer: 50 });
  bar?.start(steps, first, { loss: '-', rate: '-', memory: '-' });
  const began = performance.now();
  let tokensPerSecond = 0;
  for (let step = first; step < steps; step++) {
    const rate = learningRate(step, steps, lr);
    for (const group of optimizer.paramGroups) group.lr = rate;
    const loss = scope(() => {
      const value = lossOf(model, sampleBatch(text.train, batch, config.contextLength, random, device));
      value.backward();
      nn.utils.clipGradNorm_(model.parameters(), 1);
      optimizer.step();
      optimizer.zeroGrad();
      return value.detach();
    });
    const value = await loss.itemAsync();
    loss.dispose();
    losses.push(value);
    tokensPerSecond = ((step + 1 - first) * batch * config.contextLength * 1000) / (performance.now() - began);
    if (json) console.log(JSON.stringify({ step, loss: value, lr: rate, tokensPerSecond, memoryBytes: memory.stats(device).allocatedBytes }));
    bar?.update(step + 1, { loss: value.toFixed(3), rate: tokensPerSecond.toFixed(0), memory: (peakBytes(device) / 2 ** 20).toFixed(0) });
  }
  bar?.stop();
  return tokensPerSecond;
}

async function main(): Promise<void> {
  const options = parseOptions();
  const { device, json, out } = options;
  const checkpoint = path.join(out, 'checkpoint.safetensors');
  const run = await prepare(options, checkpoint);
  const { losses, model, optimizer, steps, text } = run;
  const bigram = bigramLoss(text, config.contextLength);
  const tokensPerSecond = await train(run);
  const validationLoss = await validate(model, text, device);
  await saveCheckpoint(checkpoint, model, optimizer, { step: steps, losses });
  await writeFile(path.join(out, 'loss.svg'), lossCurveSvg(losses, bigram));
  if (json) {
    const [firstLoss, lastLoss] = [losses[0], losses[losses.length - 1]];
    console.log(JSON.stringify({ done: true, firstLoss, lastLoss, validationLoss, bigramLoss: bigram, tokensPerSecond, peakMemoryBytes: peakBytes(device) }));
    return;
  }
  console.log(`\n${await sampleText(model, 'Call me ', 240, device)}\n`);
  console.log(`validation loss ${validationLoss.toFixed(3)} nats a byte; a byte-bigram model of the same text: ${bigram.toFixed(3)}`);
  console.log(`checkpoint: ${checkpoint} (go on with: npm start -- --resume --steps ${steps * 2})\nloss curve: ${path.join(out, 'loss.svg')}`);
}

try {
  await main();
} catch (error) {
  if (!(error instanceof UserError)) throw error;
  console.error(`train-gpt: ${error.message}`);
  process.exitCode = 1;
}
