/** The command line of the example. */
import path from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { bfloat16, cuda, type DType, float32 } from '../../lib/index.js';
import { count, deviceName, rate } from '../common/arguments.js';
import { LORA_TARGETS, type LoraOptions } from './lora.js';

export interface Options {
  /** The Hugging Face folder to start from. */
  readonly folder: string;
  /** Training steps in all. */
  readonly steps: number;
  /** Sequences a step, over all ranks, and tokens of each. */
  readonly batch: number;
  readonly context: number;
  readonly device: 'cpu' | 'cuda';
  readonly ranks: number;
  /** The dtype of compute; shards and the optimizer are float32. */
  readonly dtype: DType;
  /** Null trains all parameters. */
  readonly lora: LoraOptions | null;
  /** Whether backward computes the activations of layers again. */
  readonly recompute: boolean;
  readonly lr: number;
  readonly seed: number;
  /** A text or a file of token ids; null: Moby-Dick. */
  readonly text: string | null;
  readonly tokens: string | null;
  readonly saveEvery: number;
  readonly resume: boolean;
  readonly json: boolean;
  readonly out: string;
}

function deviceType(value: string): 'cpu' | 'cuda' {
  const name = deviceName(value);
  if (name === 'cpu' || name === 'cuda') return name;
  throw new InvalidArgumentError("expected 'cpu' or 'cuda': each rank takes a GPU by itself");
}

const DTYPES: Readonly<Record<string, DType>> = { float32, bfloat16 };

function dtypeName(value: string): string {
  if (Object.hasOwn(DTYPES, value)) return value;
  throw new InvalidArgumentError(`expected ${Object.keys(DTYPES).join(' or ')}`);
}

function targets(value: string): string[] {
  const names = value.split(',').map((name) => name.trim());
  if (names.every((name) => LORA_TARGETS.includes(name))) return names;
  throw new InvalidArgumentError(`expected some of ${LORA_TARGETS.join(',')}`);
}

type Given = Omit<Options, 'dtype' | 'folder' | 'lora' | 'text' | 'tokens'> & {
  dtype: string;
  lora?: number;
  loraAlpha: number;
  loraTargets: string[];
  text?: string;
  tokens?: string;
};

function makeProgram(): Command {
  return new Command('finetune-llama')
    .argument('<folder>', 'of Hugging Face: config.json and model*.safetensors')
    .option('--steps <n>', 'training steps in all', count(1), 100)
    .option('--batch <n>', 'sequences a step, over all ranks', count(1), 8)
    .option('--context <n>', 'tokens of a sequence', count(1), 128)
    .option('--device <name>', 'cpu or cuda', deviceType, cuda.isAvailable() ? 'cuda' : 'cpu')
    .option('--ranks <n>', 'ranks that shard the model and the batch', count(1), 1)
    .option('--dtype <name>', 'of compute: float32 or bfloat16', dtypeName, 'float32')
    .option('--lora <rank>', 'train low-rank additions to frozen weights', count(1))
    .option('--lora-alpha <n>', 'the additions are multiplied by alpha / rank', rate, 16)
    .option('--lora-targets <names>', 'the layers that get one', targets, ['q_proj', 'v_proj'])
    .option('--recompute', 'compute activations again in backward, for less memory', false)
    .option('--lr <rate>', 'learning rate', rate, 1e-4)
    .option('--seed <n>', 'of batches and of LoRA', count(0), 1337)
    .option('--text <file>', 'what to learn, byte by byte (default: Moby-Dick)')
    .option('--tokens <file>', 'what to learn, as a JSON list of token ids')
    .option('--save-every <n>', 'steps between checkpoints', count(1), 50)
    .option('--resume', 'go on from the last checkpoint', false)
    .option('--json', 'one JSON object a step instead of a progress bar', false)
    .option('--out <folder>', 'for checkpoints and the model', path.join('runs', 'llama'));
}

/** Reads the command line; prints errors and exits with 1. */
export function parseOptions(argv: readonly string[] = process.argv): Options {
  const program = makeProgram().parse(argv);
  const { lora, loraAlpha: alpha, loraTargets, ...given } = program.opts<Given>();
  const { batch, ranks, text = null, tokens = null } = given;
  if (batch % ranks !== 0)
    program.error(`error: --batch ${batch} does not divide into ${ranks} shares; give a multiple`);
  if (text !== null && tokens !== null)
    program.error('error: --text and --tokens exclude each other; give one of them');
  return {
    ...given,
    dtype: DTYPES[given.dtype] as DType,
    folder: program.args[0] as string,
    lora: lora === undefined ? null : { rank: lora, alpha, targets: loraTargets },
    text,
    tokens,
  };
}
