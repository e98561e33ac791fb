/** A run of the example: shards the model, loads, trains, saves and exports it. */
import { performance } from 'node:perf_hooks';
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
import { UserError } from '../common/arguments.js';
import { makeRandom, sampleBatch } from '../common/text.js';
import { type LlamaConfig, readConfig } from './config.js';
import { type Data, loadData } from './data.js';
import { addLora } from './lora.js';
import { Layer, Llama } from './model.js';
import type { Options } from './options.js';
import { checkpointsOf, modelOf, prepareFolder } from './run-folder.js';
import { copyOthers, exportWeights, loadWeights } from './weights.js';

/** A step that is done. */
export interface StepReport {
  readonly step: number;
  /** Mean over the batch, in nats a token. */
  readonly loss: number;
  readonly tokensPerSecond: number;
  readonly memoryBytes: number;
}

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

/** What a run shows. */
export interface Shown {
  /** A step of the first rank has ended. */
  report(step: StepReport): void;
  /** A message about the end of the run; no steps are shown after it. */
  message(text: string): void;
}

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
  readonly report: (step: StepReport) => void;
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

/** The mean loss of this rank's rows of a batch. */
function lossOf({ model, mesh, options }: Run, batch: readonly [Tensor, Tensor]): Tensor {
  const rows = batch.map((t) => t.chunk(options.ranks)[mesh.getRank()]) as [Tensor, Tensor];
  const logits = model(rows[0]).float();
  return crossEntropy(logits.flatten(0, 1), rows[1].flatten());
}

/** Reads the mean over the ranks; local ranks must not block. */
async function meanOf(loss: Tensor): Promise<number> {
  allReduce(loss, { op: 'avg' });
  const value = await loss.itemAsync();
  loss.dispose();
  return value;
}

async function validate(run: Run): Promise<number> {
  const { data, mesh, options } = run;
  const random = makeRandom(0);
  let total = 0;
  for (let i = 0; i < VALIDATION_BATCHES; i++) {
    const batch = sampleBatch(
      data.validation,
      options.batch,
      options.context,
      random,
      mesh.deviceType,
    );
    total += await meanOf(noGrad(() => scope(() => lossOf(run, batch))));
  }
  return total / VALIDATION_BATCHES;
}

/** A step draws its batch from its number, so that a resumed run goes on with the same batches. */
async function trainStep(run: Run, step: number): Promise<number> {
  const { data, mesh, model, optimizer, options } = run;
  const random = makeRandom(options.seed * 1_000_003 + step);
  for (const group of optimizer.paramGroups)
    group.lr = options.lr * Math.min(1, step / WARMUP_STEPS);
  const loss = scope(() => {
    const { batch, context } = options;
    // A scope of its own: backward then frees what it has used.
    const value = scope(() =>
      lossOf(run, sampleBatch(data.train, batch, context, random, mesh.deviceType)),
    );
    value.backward();
    nn.utils.clipGradNorm_(model.parameters(), 1);
    optimizer.step();
    optimizer.zeroGrad();
    return value.detach();
  });
  return meanOf(loss);
}

/** What a checkpoint has. */
type State = CheckpointState & { losses: number[] };

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
): Promise<void> {
  const { options, mesh, report } = run;
  const { batch, context, steps } = options;
  const began = performance.now();
  for (let step = first + 1; step <= steps; step++) {
    const loss = await trainStep(run, step);
    if (!Number.isFinite(loss))
      throw new UserError(`the loss of step ${step} is ${loss}; give a lower --lr`);
    state.losses.push(loss);
    const tokens = (step - first) * batch * context;
    report({
      step,
      loss,
      tokensPerSecond: (tokens * 1000) / (performance.now() - began),
      memoryBytes: memory.stats(mesh.deviceType).allocatedBytes,
    });
    await checkpointer.step(step, state);
  }
  await checkpointer.save(steps, state);
}

/** The program of each rank. */
async function runRank(
  options: Options,
  config: LlamaConfig,
  data: Data,
  { report, message }: Shown,
): Promise<RunReport> {
  const { folder, lr, out, ranks, saveEvery: every, seed } = options;
  manualSeed(seed);
  const mesh = initDeviceMesh(options.device, [ranks]);
  const model = makeModel(options, config, mesh);
  const trained = [...model.parameters()].filter((parameter) => parameter.requiresGrad);
  const optimizer = new optim.AdamW(trained, { lr, weightDecay: 0 });
  const run: Run = { options, data, mesh, model, optimizer, report };
  const state: State = { model, optimizer, losses: [] };
  await using checkpointer = new Checkpointer({
    folder: checkpointsOf(out),
    every,
    resumeArguments: ['--resume'],
    report: message,
  });
  const first = await begin(run, checkpointer, state);
  const lossBefore = await validate(run);
  await train(run, first, checkpointer, state);
  const lossAfter = await validate(run);
  const exported = modelOf(out);
  await exportWeights(exported, model);
  if (mesh.getRank() === 0) await copyOthers(folder, exported);
  const { peakAllocatedBytes: peakMemoryBytes } = memory.stats(mesh.deviceType);
  const goOn = checkpointer.resumeCommand({ '--steps': String(2 * options.steps) });
  return { losses: state.losses, lossBefore, lossAfter, exported, goOn, peakMemoryBytes };
}

/**
 * Trains as the options say, and exports the model. The first rank reports its steps.
 *
 * @throws UserError for folders, files and options that do not fit
 */
export async function finetune(
  options: Options,
  shown: Shown = { report: () => {}, message: console.error },
): Promise<RunReport> {
  const config = await readConfig(options.folder);
  if (options.context > config.maxPositions)
    throw new UserError(
      `--context ${options.context} is more than the ${config.maxPositions} positions of the model`,
    );
  const data = loadData(options, config);
  await prepareFolder(options);
  try {
    const [first] = await launch(options.ranks, (rank) =>
      runRank(options, config, data, rank === 0 ? shown : { ...shown, report: () => {} }),
    );
    return first as RunReport;
  } catch (error) {
    // The error of a rank is the cause of the error of launch.
    const { cause } = error as Error;
    if (cause instanceof UserError) throw cause;
    if (cause instanceof CheckpointError) throw new UserError(cause.message, { cause });
    throw error;
  }
}
