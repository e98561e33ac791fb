/**
 * Trains a small GPT on the bytes of Moby-Dick or another text, on one or several ranks, on the GPU
 * if there is one.
 *
 *   npm start -- [--steps N] [--batch N] [--device cpu|cuda] [--ranks N --parallel ddp|fsdp|fsdp+tp --mesh dp=N,tp=N] [--text file] [--resume] [--json] [--out runs/gpt]
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { constants } from 'node:os';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { DataLoader, tokenWindows } from '../lib/data/index.js';
import { type Checkpointer, launch } from '../lib/distributed.js';
import {
  type DeviceName,
  float64,
  manualSeed,
  memory,
  multinomial,
  nn,
  noGrad,
  optim,
  scope,
  type Tensor,
  tensor,
} from '../lib/index.js';
import {
  lossCurve,
  type Progress,
  progress as progressOf,
  SummaryWriter,
  TrainMetrics,
} from '../lib/train/index.js';
import { UserError } from './common/arguments.js';
import { colored } from './common/colored.js';
import { windowsAt } from './common/text.js';
import { openCheckpoints, resume, type State } from './gpt/checkpoint.js';
import { Gpt, type GptConfig } from './gpt/model.js';
import { DEFAULT_STEPS, type Options, parseOptions } from './gpt/options.js';
import {
  alone,
  averageGradients,
  type Callable,
  lossOf,
  type MeshSizes,
  type Share,
  shared,
  whole,
} from './gpt/sharing.js';
import { bigramLoss, evaluationStarts, loadText, type Text } from './gpt/text.js';

const config: GptConfig = {
  vocabSize: 256,
  contextLength: 128,
  numLayers: 4,
  numHeads: 4,
  dModel: 128,
};

/** Linear warm-up, then cosine decay to a tenth. */
function learningRate(step: number, steps: number, lr: number): number {
  const warmup = Math.min(20, Math.floor(steps / 10));
  if (step < warmup) return (lr * (step + 1)) / warmup;
  return (
    lr * (0.1 + 0.45 * (1 + Math.cos((Math.PI * (step - warmup)) / Math.max(1, steps - warmup))))
  );
}

/** Windows of a validation on the way. */
const SOME_WINDOWS = 128;

/**
 * Mean loss over the held-out text, on the same windows as for the bigram model, or on the first of
 * them.
 */
async function validate(
  { model, share, text: { validation }, display }: Run,
  windows = Number.POSITIVE_INFINITY,
): Promise<number> {
  const { part, parts, device, isFirst } = share;
  if (isFirst) display.validation(null);
  const starts = evaluationStarts(validation, config.contextLength).slice(0, windows);
  const own = starts.filter((_, i) => i % parts === part);
  const rows = 16;
  let total = 0;
  // Ranks that shard the model run it equally often: one without windows takes any.
  for (let i = 0; i < starts.length / parts; i += rows) {
    const some = own.slice(i, i + rows);
    const shown = some.length > 0 ? some : starts.slice(0, 1);
    const loss = noGrad(() =>
      scope(() => whole(lossOf(model, windowsAt(validation, shown, config.contextLength, device)))),
    );
    total += (await loss.itemAsync()) * some.length;
    loss.dispose();
  }
  const mean = tensor(total, { device, dtype: float64 });
  share.average(mean);
  const loss = ((await mean.itemAsync()) * parts) / starts.length;
  if (isFirst) display.validation(loss);
  return loss;
}

/** Continues a prompt, byte by byte, at temperature 0.8. */
async function sampleText(
  model: Gpt,
  prompt: string,
  length: number,
  device: DeviceName,
): Promise<string> {
  const bytes = [...new TextEncoder().encode(prompt)];
  for (let i = 0; i < length; i++) {
    const window = bytes.slice(-config.contextLength);
    const probabilities = noGrad(() =>
      scope(() => {
        const ids = tensor(BigInt64Array.from(window, BigInt), { device }).unsqueeze(0);
        const logits = whole(model(ids))
          .select(1, window.length - 1)
          .div(0.8);
        return logits.softmax(-1);
      }),
    );
    // multinomial reads its input, and local ranks must not block.
    await probabilities.read();
    const next = multinomial(probabilities, 1);
    bytes.push(await next.itemAsync());
    for (const t of [probabilities, next]) t.dispose();
  }
  // Bytes that are no letter are left out.
  return new TextDecoder().decode(Uint8Array.from(bytes)).replaceAll('\uFFFD', '');
}

/** The state of a run. */
interface Run {
  options: Options;
  share: Share;
  text: Text;
  model: Gpt;
  /** What training calls. */
  trained: Callable;
  /** The model, the optimizer, and the losses of all steps done. */
  state: State;
  checkpointer: Checkpointer;
  display: Progress;
  /** Steps done before this run, and in total. */
  first: number;
  steps: number;
}

const peakBytes = (device: DeviceName): number => memory.stats(device).peakAllocatedBytes;

async function prepare(
  options: Options,
  share: Share,
  checkpointer: Checkpointer,
  display: Progress,
): Promise<Run> {
  const { batch, lr, seed } = options;
  const { device, part, parts } = share;
  manualSeed(seed);
  const model = new Gpt(config).to(device);
  const optimizer = new optim.AdamW(model.parameters(), {
    lr,
    betas: [0.9, 0.95],
    weightDecay: 0.1,
  });
  const trained = share.cut(model);
  const text = loadText(options.text, config.contextLength);
  const windows = tokenWindows(text.train, { length: config.contextLength, stride: 1 });
  const data = new DataLoader(windows, {
    batchSize: batch / parts,
    shuffle: true,
    seed,
    dropLast: true,
    numReplicas: parts,
    rank: part,
    device,
  });
  const state = { model, optimizer, data, progress: { step: 0, losses: [] } };
  if (options.resume) await resume(checkpointer, options, state);
  const first = state.progress.step;
  const steps = options.steps ?? first + DEFAULT_STEPS;
  if (steps <= first)
    throw new UserError(`the checkpoint is at step ${first} already; give --steps more than that`);
  return {
    options,
    share,
    text,
    model,
    trained,
    state,
    checkpointer,
    display,
    first,
    steps,
  };
}

/** One step on this rank's share of a batch; returns the loss of the whole batch. */
async function trainStep(
  { share, model, trained, state: { optimizer } }: Run,
  batch: [Tensor, Tensor],
): Promise<number> {
  const loss = scope(() => {
    // A scope of its own: backward then frees what it has used.
    const value = scope(() => lossOf(trained, batch));
    value.backward();
    averageGradients(model, share);
    nn.utils.clipGradNorm_(model.parameters(), 1);
    optimizer.step();
    optimizer.zeroGrad();
    const mean = whole(value.detach());
    share.average(mean);
    return mean;
  });
  const value = await loss.itemAsync();
  loss.dispose();
  return value;
}

const kB = ({ length }: Uint8Array): string => `${Math.round(length / 1000)} kB`;

/** Device, parameters, ranks and data of a run in one line. */
function described({ options, share, model, text, first }: Run): string {
  // Of the whole model, also where this rank holds a shard.
  const parameters = [...model.parameters()].reduce((sum, p) => sum + p.numel(), 0);
  const { parallel, ranks } = options;
  const together =
    ranks === 1 ? '1 rank' : `${ranks} ranks, ${parallel}, ${share.parts} shares of a batch`;
  return [
    colored('bold', `GPT of ${(parameters / 1e6).toFixed(2)}M parameters`),
    share.device,
    together,
    `${options.text ?? 'Moby-Dick'}: ${kB(text.train)}, ${kB(text.validation)} held out`,
    ...(first > 0 ? [`from step ${first}`] : []),
  ].join(' | ');
}

/** Trains to the last step. Returns tokens per second. */
async function train(run: Run): Promise<number> {
  const { options, state, checkpointer, first, steps } = run;
  const { data, optimizer, progress } = state;
  const { batch, lr, saveEvery } = options;
  const tokens = batch * config.contextLength;
  const metrics = metricsOf(run, tokens);
  const batches = data.repeat();
  let trainingMs = 0;
  for (let step = first; step < steps; step++) {
    const began = performance.now();
    const rate = learningRate(step, steps, lr);
    for (const group of optimizer.paramGroups) group.lr = rate;
    const { inputs, targets } = (await batches.next()).value;
    const loss = await trainStep(run, [inputs, targets]);
    const done = step + 1;
    progress.losses.push(loss);
    progress.step = done;
    trainingMs += performance.now() - began;
    metrics.step(done, { loss, lr: rate });
    if (!options.json && done % saveEvery === 0 && done < steps) await validate(run, SOME_WINDOWS);
    await checkpointer.step(done, state);
    metrics.restart();
  }
  return ((steps - first) * tokens * 1000) / trainingMs;
}

/** What reports the steps of this rank. */
function metricsOf({ options, share, display }: Run, tokens: number): TrainMetrics {
  const { device, rank, isFirst } = share;
  const isWritten = options.tensorboard && isFirst;
  const writers = isWritten ? [new SummaryWriter(path.join(options.out, 'tensorboard'))] : [];
  return new TrainMetrics({ tokens, device, rank, writers: [display, ...writers] });
}

/** From now on, Ctrl-C ends the program at once: all training is saved. */
function endAtSignals(saved: string, goOn: string, display: Progress): void {
  const end = (signal: NodeJS.Signals): void => {
    display.message(`${signal}: ${saved}. To go on: ${goOn}`);
    process.exit(128 + constants.signals[signal]);
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, end);
}

/** The program of each rank. */
async function job(options: Options, share: Share, display: Progress): Promise<void> {
  const began = performance.now();
  const { json, out } = options;
  const { device, isFirst } = share;
  await using checkpointer = await openCheckpoints(options, isFirst, (text) =>
    display.message(text),
  );
  const run = await prepare(options, share, checkpointer, display);
  const { model, state, steps, text } = run;
  const { losses } = state.progress;
  if (isFirst) display.begin(described(run), { first: run.first, steps });
  const tokensPerSecond = await train(run);
  const checkpoint = await checkpointer.save(steps, state);
  await checkpointer.close();
  const goOn = checkpointer.resumeCommand({ '--steps': String(steps * 2) });
  if (isFirst) endAtSignals(`step ${steps} is saved in ${checkpoint}`, goOn, display);
  const validationLoss = await validate(run);
  if (isFirst) display.close();
  const sample = json ? '' : await sampleText(model, 'Call me ', 240, device);
  if (!isFirst) return;
  const bigram = bigramLoss(text, config.contextLength);
  const curve = {
    title: 'training loss, nats a byte',
    baseline: { name: 'byte bigram', loss: bigram },
  };
  await writeFile(path.join(out, 'loss.svg'), lossCurve(losses, curve));
  if (json) {
    const [firstLoss, lastLoss] = [losses[0], losses[losses.length - 1]];
    console.log(
      JSON.stringify({
        done: true,
        firstLoss,
        lastLoss,
        validationLoss,
        bigramLoss: bigram,
        tokensPerSecond,
        peakMemoryBytes: peakBytes(device),
      }),
    );
    return;
  }
  const seconds = (performance.now() - began) / 1000;
  const lines = [
    `\n${sample}\n`,
    `${colored('bold', `validation loss ${validationLoss.toFixed(3)}`)} nats a byte; a byte-bigram model ` +
      `of the same text: ${bigram.toFixed(3)}`,
    `${steps - run.first} steps in ${seconds.toFixed(1)} s, ${tokensPerSecond.toFixed(0)} tokens/s, ` +
      `${(peakBytes(device) / 2 ** 20).toFixed(0)} MiB at most`,
    `checkpoint: ${checkpoint}`,
    `loss curve: ${path.join(out, 'loss.svg')}`,
    `go on with: ${colored('cyan', goOn)}`,
  ];
  console.log(lines.join('\n'));
}

/** The mesh of the options. @throws UserError if ranks, batch or heads do not divide by it */
function meshOf({ batch, mesh, parallel, ranks }: Options): MeshSizes {
  const tp = parallel === 'fsdp+tp' && ranks % 2 === 0 ? 2 : 1;
  const sizes = mesh ?? { dp: ranks / tp, tp };
  if (sizes.dp * sizes.tp !== ranks)
    throw new UserError(
      `--mesh dp=${sizes.dp},tp=${sizes.tp} needs --ranks ${sizes.dp * sizes.tp}, got ${ranks}`,
    );
  if (batch % sizes.dp !== 0)
    throw new UserError(
      `--batch ${batch} does not divide into ${sizes.dp} shares; give one that dp=${sizes.dp} divides`,
    );
  if (config.numHeads % sizes.tp !== 0)
    throw new UserError(
      `the model has ${config.numHeads} heads, which tp=${sizes.tp} does not divide`,
    );
  return sizes;
}

async function main(): Promise<void> {
  const options = parseOptions();
  const { device, out, ranks } = options;
  const sizes = meshOf(options);
  await mkdir(out, { recursive: true }).catch((error: Error) => {
    throw new UserError(`--out ${out} cannot be used: ${error.message}`);
  });
  const display = progressOf({ json: options.json, ranks });
  try {
    if (ranks === 1) await job(options, alone(device), display);
    else await launch(ranks, () => job(options, shared(sizes, options.parallel, device), display));
  } finally {
    display.close();
  }
}

try {
  await main();
} catch (error) {
  // The error of a rank is the cause of the error of launch.
  const own = error instanceof UserError ? error : (error as Error).cause;
  if (!(own instanceof UserError)) throw error;
  console.error(`train-gpt: ${own.message}`);
  process.exitCode = 1;
}
