/**
 * The main job: trains a small GPT on Moby-Dick, byte by byte, on the GPU if there is one.
 *
 *   npm start -- [--steps N] [--batch N] [--device cpu|cuda] [--resume] [--json] [--out runs/gpt]
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import cliProgress from 'cli-progress';
import { Command } from 'commander';
import {
  crossEntropy,
  cuda,
  type DeviceName,
  loadSafetensors,
  manualSeed,
  memory,
  multinomial,
  nn,
  noGrad,
  optim,
  saveSafetensors,
  scope,
  type Tensor,
  tensor,
} from '../lib/index.js';
import { lossCurveSvg } from './gpt/loss-curve.js';
import { Gpt, type GptConfig } from './gpt/model.js';
import { bigramLoss, loadText, makeRandom, sampleBatch, type Text } from './gpt/text.js';

interface Options {
  steps: number;
  batch: number;
  device: DeviceName;
  resume: boolean;
  json: boolean;
  out: string;
  lr: number;
  seed: number;
}

const config: GptConfig = { vocabSize: 256, contextLength: 128, numLayers: 4, numHeads: 4, dModel: 128 };

function parseOptions(): Options {
  const count = (value: string): number => {
    const n = Number(value);
    if (!Number.isInteger(n) || n < 1) throw new Error(`expected a positive integer, got ${value}`);
    return n;
  };
  const program = new Command('train-gpt')
    .option('--steps <n>', 'training steps in all', count, 600)
    .option('--batch <n>', 'sequences a step', count, 16)
    .option('--device <name>', 'cpu, cuda or cuda:1', cuda.isAvailable() ? 'cuda' : 'cpu')
    .option('--lr <rate>', 'highest learning rate', Number, 2e-3)
    .option('--seed <n>', 'of weights and batches', count, 1337)
    .option('--resume', 'go on from the last checkpoint', false)
    .option('--json', 'one JSON object a step instead of a progress bar', false)
    .option('--out <folder>', 'for the checkpoint and the loss curve', path.join('runs', 'gpt'));
  return program.parse().opts<Options>();
}

/** Parameters and optimizer state in one file, the position in its metadata. */
async function saveCheckpoint(file: string, model: Gpt, optimizer: optim.AdamW, step: number): Promise<void> {
  const tensors: Record<string, Tensor> = {};
  for (const [name, t] of Object.entries(model.stateDict())) tensors[`model.${name}`] = t;
  const { state } = optimizer.stateDict();
  for (const [id, values] of Object.entries(state)) {
    for (const [name, value] of Object.entries(values)) if (typeof value !== 'number') tensors[`optimizer.${id}.${name}`] = value;
  }
  await saveSafetensors(file, tensors, { metadata: { step: String(step) } });
}

async function loadCheckpoint(file: string, model: Gpt, optimizer: optim.AdamW, device: DeviceName): Promise<void> {
  const tensors = await loadSafetensors(file, { device });
  const ofModel = Object.entries(tensors).filter(([name]) => name.startsWith('model.'));
  model.loadStateDict(Object.fromEntries(ofModel.map(([name, t]) => [name.slice('model.'.length), t])));
  const step = Number(JSON.parse(await readFile(`${file}.json`, 'utf8')).step);
  const state: Record<number, Record<string, Tensor | number>> = {};
  for (const [key, t] of Object.entries(tensors)) {
    const [kind, id, name] = key.split('.');
    if (kind !== 'optimizer') continue;
    state[Number(id)] ??= { step };
    (state[Number(id)] as Record<string, Tensor | number>)[name as string] = t;
  }
  optimizer.loadStateDict({ ...optimizer.stateDict(), state });
}

/** Warms up linearly, then falls along half a cosine to a tenth. */
function learningRate(step: number, { steps, lr }: Options): number {
  const warmup = Math.min(20, steps / 10);
  if (step < warmup) return (lr * (step + 1)) / warmup;
  return lr * (0.1 + 0.45 * (1 + Math.cos((Math.PI * (step - warmup)) / Math.max(1, steps - warmup))));
}

function lossOf(model: Gpt, [inputs, targets]: [Tensor, Tensor]): Tensor {
  return crossEntropy(model(inputs).reshape(-1, config.vocabSize), targets.reshape(-1));
}

/** Mean loss over windows spread evenly over the held-out text. */
async function validate(model: Gpt, { validation }: Text, { device, batch }: Options): Promise<number> {
  const random = makeRandom(99);
  let total = 0;
  const rounds = 8;
  for (let i = 0; i < rounds; i++) {
    const loss = noGrad(() => scope(() => lossOf(model, sampleBatch(validation, batch, config.contextLength, random, device))));
    total += await loss.itemAsync();
    loss.dispose();
  }
  return total / rounds;
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

async function main(): Promise<void> {
  const options = parseOptions();
  const { steps, batch, device, json, out } = options;
  const checkpoint = path.join(out, 'checkpoint.safetensors');
  await mkdir(out, { recursive: true });
  manualSeed(options.seed);
  const text = loadText();
  const bigram = bigramLoss(text);
  const model = new Gpt(config).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: options.lr, betas: [0.9, 0.95], weightDecay: 0.1 });
  let first = 0;
  let losses: { step: number; loss: number }[] = [];
  if (options.resume) {
    await loadCheckpoint(checkpoint, model, optimizer, device);
    ({ step: first, losses } = JSON.parse(await readFile(`${checkpoint}.json`, 'utf8')));
  }
  const random = makeRandom(options.seed + first);
  const bar = json ? null : new cliProgress.SingleBar({ format: '{bar} {value}/{total} | loss {loss} | {rate} tokens/s | {memory} MiB | {eta} s left', etaBuffer: 50 });
  bar?.start(steps, first, { loss: '-', rate: '-', memory: '-' });
  const began = performance.now();
  const peakBytes = (): number => memory.stats(device).peakAllocatedBytes;
  let tokensPerSecond = 0;
  for (let step = first; step < steps; step++) {
    for (const group of optimizer.paramGroups) group.lr = learningRate(step, options);
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
    losses.push({ step, loss: value });
    tokensPerSecond = ((step + 1 - first) * batch * config.contextLength * 1000) / (performance.now() - began);
    if (json) console.log(JSON.stringify({ step, loss: value, lr: learningRate(step, options), tokensPerSecond, memoryBytes: memory.stats(device).allocatedBytes }));
    bar?.update(step + 1, { loss: value.toFixed(3), rate: tokensPerSecond.toFixed(0), memory: (peakBytes() / 2 ** 20).toFixed(0) });
  }
  bar?.stop();
  const validationLoss = await validate(model, text, options);
  await saveCheckpoint(checkpoint, model, optimizer, steps);
  await writeFile(`${checkpoint}.json`, JSON.stringify({ step: steps, losses }));
  await writeFile(path.join(out, 'loss.svg'), lossCurveSvg(losses, bigram));
  if (json) {
    console.log(
      JSON.stringify({
        done: true,
        firstLoss: losses[0]?.loss,
        lastLoss: losses[losses.length - 1]?.loss,
        validationLoss,
        bigramLoss: bigram,
        tokensPerSecond,
        peakMemoryBytes: peakBytes(),
      }),
    );
    return;
  }
  console.log(`\n${await sampleText(model, 'Call me ', 240, device)}\n`);
  console.log(`validation loss ${validationLoss.toFixed(3)} nats a byte; a byte-bigram model of the same text: ${bigram.toFixed(3)}`);
  console.log(`checkpoint: ${checkpoint} (go on with: npm start -- --resume --steps ${steps * 2})\nloss curve: ${path.join(out, 'loss.svg')}`);
}

await main();
