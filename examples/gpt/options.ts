/** The command line of the example. */
import path from 'node:path';
import { Command, InvalidArgumentError, Option } from 'commander';
import { cuda, type DeviceName } from '../../lib/index.js';
import { count, deviceName, rate } from '../common/arguments.js';
import type { MeshSizes } from './sharing.js';

export interface Options {
  /** Total number of training steps; null: the default, from the start of the run. */
  steps: number | null;
  batch: number;
  device: DeviceName;
  ranks: number;
  /** Ranks for data and tensor parallelism; null: data parallelism only. */
  mesh: MeshSizes | null;
  /** How the ranks share parameters. */
  parallel: Parallel;
  resume: boolean;
  /** A checkpoint is written after so many steps. */
  saveEvery: number;
  json: boolean;
  /** Whether event files for TensorBoard are written. */
  tensorboard: boolean;
  out: string;
  /** A text file instead of Moby-Dick. */
  text: string | null;
  lr: number;
  seed: number;
}

export const DEFAULT_STEPS = 600;

/**
 * `ddp`: every rank holds the model. `fsdp`: each holds a shard. `fsdp+tp`: shards of the local
 * shards of tensor parallelism.
 */
const PARALLEL = ['ddp', 'fsdp', 'fsdp+tp'] as const;
export type Parallel = (typeof PARALLEL)[number];

function meshSizes(value: string): MeshSizes {
  const match = /^dp=([1-9]\d{0,3})(?:,tp=([1-9]\d{0,3}))?$|^tp=([1-9]\d{0,3})$/.exec(value);
  if (match === null)
    throw new InvalidArgumentError("expected such as 'dp=2,tp=2', 'dp=4' or 'tp=4'");
  return { dp: Number(match[1] ?? 1), tp: Number(match[2] ?? match[3] ?? 1) };
}

/** Reads the command line; prints errors and exits with 1. */
export function parseOptions(): Options {
  const program = new Command('train-gpt')
    .option(
      '--steps <n>',
      `training steps in all (default: ${DEFAULT_STEPS}; with --resume, so many more)`,
      count(1),
    )
    .option('--batch <n>', 'sequences a step', count(1), 16)
    .option(
      '--device <name>',
      'cpu, cuda or cuda:1',
      deviceName,
      cuda.isAvailable() ? 'cuda' : 'cpu',
    )
    .option('--ranks <n>', 'ranks that train together', count(1), 1)
    .option(
      '--mesh <sizes>',
      'how many of them share the batch and how many the model, such as dp=2,tp=2 (default: dp=<ranks>)',
      meshSizes,
    )
    .addOption(
      new Option('--parallel <kind>', 'ddp: each rank holds the model; fsdp: a shard of it')
        .choices(PARALLEL)
        .default('ddp'),
    )
    .option('--lr <rate>', 'highest learning rate', rate, 2e-3)
    .option('--seed <n>', 'of weights and batches', count(0), 1337)
    .option('--resume', 'go on from the last checkpoint', false)
    .option('--save-every <n>', 'steps between checkpoints', count(1), 200)
    .option('--json', 'one JSON object a step instead of a progress bar', false)
    .option('--tensorboard', 'write metrics for TensorBoard into the folder of --out', false)
    .option('--text <file>', 'what to learn; its last tenth is held out (default: Moby-Dick)')
    .option('--out <folder>', 'for the checkpoint and the loss curve', path.join('runs', 'gpt'));
  const given = program.parse().opts<Omit<Options, 'steps' | 'mesh' | 'text'> & Partial<Options>>();
  return {
    ...given,
    steps: given.steps ?? null,
    mesh: given.mesh ?? null,
    text: given.text ?? null,
  };
}
