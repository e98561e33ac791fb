/** `shardwise run`: runs a program as ranks on one or several machines, with torchrun's options. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism, constants } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { type Command, Option } from 'commander';
import { ArgumentError } from '../core/errors.js';
import { type NodeOutcome, runNode } from '../distributed/launch/node-launcher.js';
import { describeRankFailure } from '../distributed/launch/worker-processes.js';
import { wholeNumber } from './whole-number.js';

interface RunOptions {
  nprocPerNode: number | 'cpu' | 'gpu' | 'auto';
  nnodes: number;
  nodeRank: number;
  masterAddr?: string;
  masterPort?: number;
  maxRestarts: number;
  standalone: boolean;
  prefix: boolean;
}

const OP = 'shardwise run';
const JOIN_TIMEOUT_MS = 300_000;
/** torchrun's default, for several machines. */
const DEFAULT_PORT = 29_500;
const MOST_RANKS = 64;
/** What runs this file as TypeScript, from Node's arguments, runs programs too. */
const IS_TYPESCRIPT = import.meta.url.endsWith('.ts');

/** Adds the command to `shardwise`. */
export function addRun(program: Command): void {
  const options = [
    new Option(
      '--nproc-per-node <n>',
      'ranks on this machine: a number, "cpu" (one per processor), "gpu", or ' +
        '"auto" (gpu, else cpu)',
    )
      .argParser(ranksOf)
      .default(1),
    new Option('--nnodes <n>', 'number of machines').argParser(wholeNumber(1, 4096)).default(1),
    new Option('--node-rank <n>', 'index of this machine')
      .argParser(wholeNumber(0, 4095))
      .default(0),
    new Option('--master-addr <host>', 'the machine with node rank 0'),
    new Option(
      '--master-port <port>',
      `a free port of that machine (default: any for one machine, ${DEFAULT_PORT} for several)`,
    ).argParser(wholeNumber(1, 65_535)),
    new Option('--max-restarts <n>', 'how often all ranks are restarted after a failure')
      .argParser(wholeNumber(0, 1_000_000))
      .default(0),
    new Option('--standalone', 'one machine, and any free port').default(false),
  ];
  const command = program
    .command('run')
    .description('run a program as several ranks; the first failure ends the others')
    .argument('<script>', 'a JavaScript or TypeScript file')
    .argument('[args...]', 'arguments of the script')
    .passThroughOptions();
  for (const option of options) {
    command.addOption(option);
    // torchrun takes both spellings.
    const flags = option.flags.replace(
      /^--[\w-]+/,
      (name) => `--${name.slice(2).replaceAll('-', '_')}`,
    );
    if (flags !== option.flags) command.addOption(twin(option, flags, command));
  }
  command.option('--no-prefix', "print lines without the rank's number");
  command.action(async (script: string, args: string[], given: RunOptions) => {
    process.exitCode = await run(script, args, given);
  });
}

/** A hidden option with another spelling, which sets the original option. */
function twin(option: Option, flags: string, command: Command): Option {
  const parse = option.parseArg;
  const hidden = new Option(flags).hideHelp();
  hidden.argParser((text: string) => {
    command.setOptionValueWithSource(
      option.attributeName(),
      parse === undefined ? text : parse(text, undefined),
      'cli',
    );
    return text;
  });
  return hidden;
}

function ranksOf(text: string): RunOptions['nprocPerNode'] {
  return text === 'cpu' || text === 'gpu' || text === 'auto'
    ? text
    : wholeNumber(1, MOST_RANKS)(text);
}

async function run(script: string, args: readonly string[], options: RunOptions): Promise<number> {
  const { nnodes, nodeRank, maxRestarts, prefix } = options;
  try {
    checkNodes(options);
    const file = path.resolve(script);
    if (!existsSync(file))
      throw new ArgumentError(`${OP}: there is no file ${file}`, { op: OP, file });
    const outcome = await runNode({
      op: OP,
      program: { nodeArgs: [...process.execArgv, ...loaderOf(file)], file, args },
      ranksHere: await countRanks(options.nprocPerNode),
      nodes: nnodes,
      nodeRank,
      masterAddr: options.masterAddr ?? '127.0.0.1',
      masterPort: options.masterPort ?? (nnodes === 1 ? 0 : DEFAULT_PORT),
      maxRestarts,
      onRestart: (restart, ended) =>
        console.error(
          `${OP}: restart ${restart} of ${maxRestarts} of all ranks, because ${reasonOf(ended)}`,
        ),
      joinTimeoutMs: JOIN_TIMEOUT_MS,
      prefixOutput: prefix,
      env: {},
    });
    return report(outcome);
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error));
    return 1;
  }
}

function checkNodes({ nnodes, nodeRank, masterAddr, masterPort, standalone }: RunOptions): void {
  if (standalone && (nnodes > 1 || masterAddr !== undefined || masterPort !== undefined)) {
    throw new ArgumentError(
      `${OP}: --standalone is for one machine and any port; leave out --nnodes, --master-addr ` +
        'and --master-port, or leave out --standalone',
      { op: OP },
    );
  }
  if (nodeRank >= nnodes)
    throw new ArgumentError(
      `${OP}: expected --node-rank from 0 to ${nnodes - 1}, because --nnodes is ` +
        `${nnodes}, got ${nodeRank}`,
      { op: OP, nodeRank, nnodes },
    );
  if (nnodes > 1 && masterAddr === undefined)
    throw new ArgumentError(
      `${OP}: several machines need --master-addr, the name or address of the one ` +
        'with --node-rank 0',
      { op: OP },
    );
}

async function countRanks(given: RunOptions['nprocPerNode']): Promise<number> {
  if (typeof given === 'number') return given;
  const processors = Math.min(MOST_RANKS, availableParallelism());
  if (given === 'cpu') return processors;
  const { examine } = await import('./doctor.js');
  const gpus = examine('').cuda.devices.length;
  if (gpus === 0 && given === 'gpu') {
    throw new ArgumentError(
      `${OP}: --nproc-per-node gpu needs a CUDA device, and none can be used: see \`npx ` +
        'shardwise doctor`. Use --nproc-per-node auto to fall back to processors.',
      {
        op: OP,
      },
    );
  }
  return gpus === 0 ? processors : gpus;
}

/**
 * Node's arguments for the file. @throws ArgumentError for TypeScript if neither Node nor tsx can
 * run it
 */
function loaderOf(file: string): string[] {
  const runsBy = IS_TYPESCRIPT || process.execArgv.some((arg) => /\btsx\b/.test(arg));
  if (runsBy || !/\.[cm]?tsx?$/.test(file)) return [];
  for (const folder of [path.dirname(file), process.cwd()]) {
    try {
      return [
        '--import',
        pathToFileURL(createRequire(path.join(folder, 'package.json')).resolve('tsx')).href,
      ];
    } catch {
      // tsx is not installed there
    }
  }
  if ((process.features as { typescript?: unknown }).typescript) return [];
  throw new ArgumentError(
    `${OP}: Node ${process.version} does not run TypeScript, and tsx is not installed for ` +
      `${file}. Run npm install --save-dev tsx.`,
    { op: OP, file },
  );
}

/** `rank 1 (process 4711) ended with exit code 7: …` */
function reasonOf(outcome: NonNullable<NodeOutcome>): string {
  if ('remote' in outcome) return `${outcome.remote.text} on node ${outcome.remote.node}`;
  // Without the lines of stderr, which were already printed.
  return describeRankFailure(OP, { ...outcome.failure, lastLines: [] }).message.slice(
    `${OP}: `.length,
  );
}

/** Prints which rank failed; returns its exit code, or 128 plus its signal. */
function report(outcome: NodeOutcome): number {
  if (outcome === null) return 0;
  console.error(
    'remote' in outcome
      ? `${OP}: ended because ${reasonOf(outcome)}`
      : `${OP}: ${reasonOf(outcome)}`,
  );
  if ('remote' in outcome) return 1;
  const { failure } = outcome;
  if (failure.signal !== null) return 128 + constants.signals[failure.signal];
  return failure.exitCode ?? 1;
}
