/** A run of the example: shards the model, loads, trains, saves and exports it. */
import { DataLoader, tokenWindows } from '../../lib/data/index.js';
import {
  allReduce,
  applyActivationCheckpointing,
  Checkpointer,
  type CheckpointState,
  type DeviceMesh,
  fullyShard,
  initDeviceMesh,
  launch,
  MixedPrecisionPolicy,
} from '../../lib/distributed.js';
import {
  CheckpointError,
  crossEntropy,
  float32,
  manualSeed,
  memory,
  nn,
  noGrad,
  optim,
  scope,
  type Tensor,
  withDevice,
} from '../../lib/index.js';
import { type Progress, TrainMetrics } from '../../lib/train/index.js';
import { UserError } from '../common/arguments.js';
import { type LlamaConfig, readConfig } from './config.js';
import { type Data, loadData } from './data.js';
import { addLora } from './lora.js';
import { Layer, Llama } from './model.js';
import type { Options } from './options.js';
import { checkpointsOf, modelOf, prepareFolder } from './run-folder.js';
import { copyOthers, exportWeights, loadWeights } from './weights.js';

/** The end of a run. */
export interface RunReport {
  /** The losses of all steps, of runs before too. */
  readonly losses: readonly number[];
  /** On the same held-out tokens before and after. */
  readonly lossBefore: number;
  readonly lossAfter: number;
  /** The folder that Hugging Face reads. */
  readonly exported: string;
  /** The command that goes on with the run. */
  readonly goOn: string;
  readonly peakMemoryBytes: number;
}

/** What a run shows: the steps of the first rank. */
export type Shown = Pick<Progress, 'begin' | 'write' | 'message' | 'close'>;
const nothing: Shown = {
  begin: () => {},
  write: () => {},
  message: console.error,
  close: () => {},
};

/** Batches of held-out tokens. */
const VALIDATION_BATCHES = 4;
/** Steps in which the learning rate rises; then it stays, so that any step may be the last one. */
const WARMUP_STEPS = 10;

/** What a rank works with. */
interface Run {
  readonly options: Options;
  readonly data: Data;
  readonly mesh: DeviceMesh;
  readonly model: Llama;
  readonly optimizer: optim.AdamW;
  readonly batches: Batches;
}

type Batches = ReturnType<typeof batchesOf>;

/** This rank's batches of windows of the tokens, in an order that all ranks share. */
function batchesOf(
  { batch, context, ranks, seed }: Options,
  tokens: Data['train'],
  mesh: DeviceMesh,
) {
  return new DataLoader(tokenWindows(tokens, { length: context, stride: 1 }), {
    batchSize: batch / ranks,
    shuffle: true,
    seed,
    dropLast: true,
    numReplicas: ranks,
    rank: mesh.getRank(),
    device: mesh.deviceType,
  });
}

/** The model on all ranks; each has its shards, without values yet. */
function makeModel({ dtype, lora, recompute }: Options, config: LlamaConfig, mesh: DeviceMesh) {
  const model = withDevice('meta', () => {
    const made = new Llama(config);
    if (lora !== null) addLora(made, lora);
    return made;
  });
  if (recompute)
    applyActivationCheckpointing(model, { checkFn: (module) => module instanceof Layer });
  const mpPolicy = new MixedPrecisionPolicy({ paramDtype: dtype, reduceDtype: float32 });
  for (const layer of model.model.layers) fullyShard(layer, { mesh, mpPolicy });
  fullyShard(model, { mesh, mpPolicy });
  return model.toEmpty({ device: mesh.deviceType });
}

/** Token ids and what follows each of them. */
type Batch = { inputs: Tensor; targets: Tensor };

/** The mean loss of this rank's rows of a batch. */
function lossOf(model: Llama, { inputs, targets }: Batch): Tensor {
  return crossEntropy(model(inputs).float().flatten(0, 1), targets.flatten());
}

/** Reads the mean over the ranks; local ranks must not block. */
async function meanOf(loss: Tensor): Promise<number> {
  allReduce(loss, { op: 'avg' });
  const value = await loss.itemAsync();
  loss.dispose();
  return value;
}

async function validate({ data, mesh, model, options }: Run): Promise<number> {
  // Always the same ones: those of the first epoch.
  const batches = batchesOf(options, data.validation, mesh).repeat();
  let total = 0;
  for (let i = 0; i < VALIDATION_BATCHES; i++) {
    const batch = (await batches.next()).value;
    total += await meanOf(noGrad(() => scope(() => lossOf(model, batch))));
  }
  return total / VALIDATION_BATCHES;
}

async function trainStep(run: Run, step: number, batch: Batch): Promise<number> {
  const { model, optimizer, options } = run;
  for (const group of optimizer.paramGroups)
    group.lr = options.lr * Math.min(1, step / WARMUP_STEPS);
  const loss = scope(() => {
    // A scope of its own: backward then frees what it has used.
    const value = scope(() => lossOf(model, batch));
    value.backward();
    nn.utils.clipGradNorm_(model.parameters(), 1);
    optimizer.step();
    optimizer.zeroGrad();
    return value.detach();
  });
  return meanOf(loss);
}

/** What a checkpoint has. */
type State = CheckpointState & { losses: number[]; data: Batches };

/** Loads the files, or the last checkpoint. Resolves to the number of steps done. */
async function begin(run: Run, checkpointer: Checkpointer, state: State): Promise<number> {
  const { model, options } = run;
  const { folder, steps } = options;
  if (!options.resume) {
    await loadWeights(folder, model);
    return 0;
  }
  const done = await checkpointer.resume(state);
  if (done === null)
    throw new UserError(
      `there is no checkpoint in ${checkpointer.folder}: the run ended before its first one; start ` +
        'again without --resume',
    );
  if (done >= steps)
    throw new UserError(`the checkpoint is at step ${done} already; give --steps more than that`);
  return done;
}

/** Trains from step `first` to the last one. */
async function train(
  run: Run,
  first: number,
  checkpointer: Checkpointer,
  state: State,
  shown: Shown | null,
): Promise<void> {
  const { options, mesh } = run;
  const { batch, context, steps } = options;
  const writers = shown === null ? [] : [shown];
  const metrics = new TrainMetrics({ tokens: batch * context, device: mesh.deviceType, writers });
  const batches = run.batches.repeat();
  for (let step = first + 1; step <= steps; step++) {
    const loss = await trainStep(run, step, (await batches.next()).value);
    if (!Number.isFinite(loss))
      throw new UserError(`the loss of step ${step} is ${loss}; give a lower --lr`);
    state.losses.push(loss);
    metrics.step(step, { loss });
    await checkpointer.step(step, state);
    metrics.restart();
  }
  await checkpointer.save(steps, state);
}

/** Model, device, ranks and what is trained in one line. */
function described({ device, dtype, folder, lora, ranks }: Options, config: LlamaConfig): string {
  const { numLayers, hiddenSize } = config;
  const trained = lora === null ? 'in full' : `LoRA of rank ${lora.rank}`;
  const model = `Llama of ${numLayers} layers, ${hiddenSize} wide`;
  return [folder, model, device, `${ranks} ranks`, dtype.name, trained].join(' | ');
}

/** The program of each rank. */
async function runRank(
  options: Options,
  config: LlamaConfig,
  data: Data,
  shown: Shown,
): Promise<RunReport> {
  const { folder, lr, out, ranks, saveEvery: every, seed } = options;
  manualSeed(seed);
  const mesh = initDeviceMesh(options.device, [ranks]);
  const model = makeModel(options, config, mesh);
  const trained = [...model.parameters()].filter((parameter) => parameter.requiresGrad);
  const optimizer = new optim.AdamW(trained, { lr, weightDecay: 0 });
  const batches = batchesOf(options, data.train, mesh);
  const run: Run = { options, data, mesh, model, optimizer, batches };
  const state: State = { model, optimizer, data: batches, losses: [] };
  await using checkpointer = new Checkpointer({
    folder: checkpointsOf(out),
    every,
    resumeArguments: ['--resume'],
    report: (text) => shown.message(text),
  });
  const first = await begin(run, checkpointer, state);
  const lossBefore = await validate(run);
  const isFirst = mesh.getRank() === 0;
  if (isFirst) shown.begin(described(options, config), { first, steps: options.steps });
  await train(run, first, checkpointer, state, isFirst ? shown : null);
  const lossAfter = await validate(run);
  const exported = modelOf(out);
  await exportWeights(exported, model);
  if (isFirst) await copyOthers(folder, exported);
  const { peakAllocatedBytes: peakMemoryBytes } = memory.stats(mesh.deviceType);
  const goOn = checkpointer.resumeCommand({ '--steps': String(2 * options.steps) });
  return { losses: state.losses, lossBefore, lossAfter, exported, goOn, peakMemoryBytes };
}

/**
 * Trains as the options say, and exports the model. The first rank reports its steps.
 *
 * @throws UserError for folders, files and options that do not fit
 */
export async function finetune(options: Options, shown: Shown = nothing): Promise<RunReport> {
  const config = await readConfig(options.folder);
  if (options.context > config.maxPositions)
    throw new UserError(
      `--context ${options.context} is more than the ${config.maxPositions} positions of the model`,
    );
  const data = loadData(options, config);
  await prepareFolder(options);
  try {
    const [first] = await launch(options.ranks, () => runRank(options, config, data, shown));
    return first as RunReport;
  } catch (error) {
    // The error of a rank is the cause of the error of launch.
    const { cause } = error as Error;
    if (cause instanceof UserError) throw cause;
    if (cause instanceof CheckpointError) throw new UserError(cause.message, { cause });
    throw error;
  }
}
