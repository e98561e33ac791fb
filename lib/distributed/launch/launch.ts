/**
 * `launch`: runs a function as `local` ranks of this process or as processes, or a file as
 * processes.
 */
import { existsSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { ArgumentError, DistributedError } from '../../core/errors.js';
import {
  checkFlag,
  checkNumber,
  checkOneOf,
  checkTimeout,
  unexpected,
  withDefaults,
} from '../../core/options.js';
import { reportUse } from '../../core/unrepeatable.js';
import { namedDevices, parseBackend } from '../engines/select.js';
import type { RankFault } from '../local-ranks/fault-injection.js';
import { type LocalOptions, type RankFunction, runLocalRanks } from '../local-ranks/run.js';
import { findContext } from '../process-group/rank-context.js';
import { DEFAULT_TIMEOUT_MS } from './init-options.js';
import { type NodePlan, runNode } from './node-launcher.js';
import { sentError } from './serialize-error.js';
import {
  earlierOutcome,
  type FunctionReport,
  launchedCall,
  type Outcome,
  runLaunchedFunction,
  type SentOutcome,
  thrownBy,
} from './worker-main.js';
import { describeRankFailure, type RankProgram } from './worker-processes.js';

/** Options of {@link launch}. */
export interface LaunchOptions {
  /**
   * `'local'`: ranks are asynchronous functions of this process. `'process'`: each rank is a
   * process. By default local for functions and process for files.
   */
  mode?: 'local' | 'process' | null;
  /** The backend, as for `initProcessGroup`; chosen for each device if left out. */
  backend?: string | null;
  /** Timeout of the rendezvous and of collectives, in milliseconds. Half an hour by default. */
  timeoutMs?: number;
  /** Arguments of a file. */
  args?: readonly string[];
  /** Environment variables for the processes, in addition to those of this process. */
  env?: Readonly<Record<string, string>>;
  /** Whether each line of output begins with its rank. True by default. */
  prefixOutput?: boolean;
  /**
   * Runs `local` ranks one at a time, in an order drawn from the seed. The same seed gives the same
   * order, so a race can be reproduced, and a deadlock is reported immediately. Also seeds the
   * random numbers, unless the program has.
   */
  seed?: number | null;
  /** Injects faults into `local` ranks: delays, losses and reorderings. */
  faults?: readonly RankFault[] | null;
}

type Settings = Required<LaunchOptions>;

/** The limit of a group with shared memory. */
const MOST_RANKS = 64;
const OP = 'launch';

/**
 * Runs `fn` on `worldSize` ranks; resolves to the results in the order of ranks. The ranks need no
 * `initProcessGroup`.
 *
 * In mode `'process'` each rank is a process that runs the main module of this process again, with
 * the same arguments, up to the same call of `launch`; there it runs `fn` and exits. So the program
 * must always reach its calls of `launch` in the same order, and be no test runner: tests have
 * `withRanks`. Earlier calls return what they
 * returned in this process. Results are copied by structured clone, which excludes tensors; return
 * their `tolist()`.
 *
 * @param worldSize - from 1 to 64
 * @throws DistributedError naming the rank that failed first, with its error as `cause`, or a test
 * runner; ArgumentError for bad options
 * @see PyTorch `torch.multiprocessing.spawn`
 * @example
 * await launch(2, async (rank, worldSize) => `${rank} of ${worldSize}`); // ['0 of 2', '1 of 2']
 */
export function launch<T>(
  worldSize: number,
  fn: RankFunction<T>,
  options?: LaunchOptions,
): Promise<T[]>;
/**
 * Runs a program as `worldSize` processes, with the Node arguments of this process and torchrun's
 * environment variables, which `initProcessGroup()` reads. The first failure ends the other ranks,
 * and so does the end of this process.
 *
 * @param file - path or file URL
 * @throws DistributedError naming the rank that failed first, with exit code or signal and the last
 * lines of its stderr
 */
export function launch(
  worldSize: number,
  file: string | URL,
  options?: LaunchOptions,
): Promise<void>;
export function launch<T>(
  worldSize: number,
  fnOrFile: RankFunction<T> | string | URL,
  options: LaunchOptions = {},
): Promise<T[] | void> {
  reportUse(OP);
  return start(worldSize, fnOrFile, options);
}

async function start<T>(
  worldSize: number,
  fnOrFile: RankFunction<T> | string | URL,
  options: LaunchOptions,
): Promise<T[] | void> {
  const settings = readOptions(worldSize, fnOrFile, options);
  if (findContext() !== null)
    throw new DistributedError(
      `${OP}: this is rank ${findContext()?.rank} already, and a rank cannot launch ranks. Use ` +
        'newGroup() for a group of some ranks.',
      { op: OP },
    );
  if (typeof fnOrFile !== 'function') return counted(() => runFile(worldSize, fnOrFile, settings));
  if (settings.mode === 'local') return runLocalRanks(worldSize, fnOrFile, localOptions(settings));
  return counted((call) =>
    launchFunction(String(call), worldSize, fnOrFile, settings, mainProgram()),
  );
}

function readOptions(worldSize: number, fnOrFile: unknown, options: LaunchOptions): Settings {
  checkNumber(OP, 'worldSize', worldSize, { from: 1, to: MOST_RANKS, whole: true });
  const isFile = typeof fnOrFile === 'string' || fnOrFile instanceof URL;
  if (!isFile && typeof fnOrFile !== 'function')
    throw unexpected(OP, 'the second argument', 'a function or a file', fnOrFile);
  const defaults: Settings = {
    mode: null,
    backend: null,
    timeoutMs: DEFAULT_TIMEOUT_MS,
    args: [],
    env: {},
    prefixOutput: true,
    seed: null,
    faults: null,
  };
  const read = withDefaults<Settings>(OP, defaults, options);
  const mode = read.mode ?? (isFile ? 'process' : 'local');
  checkOneOf(OP, 'mode', mode, ['local', 'process']);
  if (isFile && mode === 'local')
    throw new ArgumentError(`${OP}: a file runs as processes; give a function for local ranks`, {
      op: OP,
      argument: 'mode',
      value: mode,
    });
  parseBackend(OP, read.backend ?? undefined);
  checkReplay(OP, { ...read, mode });
  checkTimeout(OP, read.timeoutMs, { from: 1, whole: true });
  checkFlag(OP, 'prefixOutput', read.prefixOutput);
  if (!Array.isArray(read.args) || read.args.some((arg) => typeof arg !== 'string'))
    throw unexpected(OP, 'args', 'a list of strings', read.args);
  if (
    typeof read.env !== 'object' ||
    read.env === null ||
    Object.values(read.env).some((value) => typeof value !== 'string')
  ) {
    throw unexpected(OP, 'env', 'an object of strings', read.env);
  }
  return { ...read, mode };
}

/** @throws ArgumentError for a seed or faults without `local` ranks @internal */
export function checkReplay(
  op: string,
  { mode, seed, faults }: Pick<Settings, 'seed' | 'faults'> & { readonly mode: string },
): void {
  if (mode !== 'process' || (seed === null && faults === null)) return;
  throw new ArgumentError(
    `${op}: seed and faults need mode 'local', in which this process schedules the ranks`,
    { op, mode },
  );
}

function localOptions({ timeoutMs, seed, faults, backend }: Settings): LocalOptions {
  const parsed = parseBackend(OP, backend ?? undefined);
  const { cpu, cuda } = parsed;
  const backends = {
    ...(cpu === undefined ? {} : { hostBackend: cpu }),
    ...(cuda === undefined ? {} : { deviceBackend: cuda }),
  };
  return {
    timeoutMs,
    ...(seed === null ? {} : { seed }),
    ...(faults === null ? {} : { faults }),
    named: namedDevices(parsed),
    ...backends,
  };
}

/** Outcomes of the calls that started processes, by number. */
const outcomes: (Outcome | undefined)[] = [];

/**
 * Numbers the call. A process that runs this program again finds its call by the number, and asks
 * for the outcomes of earlier calls.
 */
async function counted<T>(run: (call: number) => Promise<T>): Promise<T> {
  const call = outcomes.push(undefined) - 1;
  const own = launchedCall();
  if (own !== null && !/^\d+$/.test(own)) {
    throw new DistributedError(
      `${OP}: this process runs one test of withRanks; move calls of launch that start processes ` +
        'into separate tests',
      { op: OP },
    );
  }
  if (own === null && process.env['SHARDWISE_LAUNCHER_PID'] === String(process.ppid)) {
    throw new DistributedError(
      `${OP}: this process is rank ${process.env['RANK']} of a launch already, and a rank cannot ` +
        'launch ranks: each would launch more. Launch from a separate program, or use mode ' +
        "'local'.",
      { op: OP },
    );
  }
  if (own !== null && own !== String(call)) return (await earlierOutcome(call)) as T;
  try {
    const value = await run(call);
    outcomes[call] = { value };
    return value;
  } catch (error) {
    outcomes[call] = { error };
    throw error;
  }
}

async function runFile(worldSize: number, file: string | URL, settings: Settings): Promise<void> {
  const program = {
    nodeArgs: nodeArguments(),
    file: file instanceof URL ? fileURLToPath(file) : path.resolve(file),
    args: settings.args,
  };
  if (!existsSync(program.file))
    throw new ArgumentError(`${OP}: there is no file ${program.file}`, {
      op: OP,
      file: program.file,
    });
  const outcome = await runNode(planOf(worldSize, program, settings));
  if (outcome !== null && 'failure' in outcome) throw describeRankFailure(OP, outcome.failure);
}

function sentOutcome(outcome: Outcome | undefined): SentOutcome | null {
  if (outcome === undefined) return null;
  return 'error' in outcome ? { error: sentError(outcome.error) } : outcome;
}

/**
 * Runs `fn` in processes that run `program`, which reaches this call and recognizes it by `key`.
 * @internal
 */
export async function launchFunction<T>(
  key: string,
  worldSize: number,
  fn: RankFunction<T>,
  settings: Pick<Settings, 'timeoutMs' | 'backend' | 'env' | 'prefixOutput'>,
  program: RankProgram,
): Promise<T[]> {
  if (launchedCall() === key) return runLaunchedFunction(fn);
  const reports: (FunctionReport | undefined)[] = [];
  const plan = planOf(worldSize, program, {
    ...settings,
    env: { ...settings.env, SHARDWISE_LAUNCH_CALL: key },
  });
  const outcome = await runNode({
    ...plan,
    onMessage(rank, message, reply) {
      const { shardwise } = message as FunctionReport;
      if (shardwise === 'result' || shardwise === 'thrown')
        reports[rank] = message as FunctionReport;
      if (shardwise === 'outcomes?')
        reply({ shardwise: 'outcomes', outcomes: outcomes.map(sentOutcome) });
    },
  });
  if (outcome !== null && 'failure' in outcome)
    throw describeRankFailure(OP, outcome.failure, thrownBy(reports[outcome.failure.rank]));
  const silent = Array.from({ length: worldSize }, (_, rank) => rank).find(
    (rank) => reports[rank]?.shardwise !== 'result',
  );
  if (silent !== undefined) {
    throw new DistributedError(
      `${OP}: rank ${silent} ended without an error before it reached this call of launch. In ` +
        `mode 'process' each rank runs ${program.file} again: does it reach the same calls of ` +
        'launch, in the same order?',
      { op: OP, rank: silent },
    );
  }
  return reports.map((report) => (report as FunctionReport & { value: T }).value);
}

function planOf(
  worldSize: number,
  program: RankProgram,
  {
    env,
    timeoutMs,
    backend,
    prefixOutput,
  }: Pick<Settings, 'timeoutMs' | 'backend' | 'env' | 'prefixOutput'>,
): NodePlan {
  const variables = {
    ...env,
    SHARDWISE_TIMEOUT_MS: String(timeoutMs),
    ...(backend === null ? {} : { SHARDWISE_BACKEND: backend }),
  };
  const alone = {
    nodes: 1,
    nodeRank: 0,
    masterAddr: '127.0.0.1',
    masterPort: 0,
    maxRestarts: 0,
    joinTimeoutMs: timeoutMs,
  };
  return { op: OP, program, ranksHere: worldSize, ...alone, prefixOutput, env: variables };
}

/** This process's program. @throws DistributedError if it is not a file, or a test runner */
function mainProgram(): RankProgram {
  const [, file, ...args] = process.argv;
  if (file === undefined || process.execArgv.some((arg) => PROGRAM_FLAG.test(arg))) {
    throw new DistributedError(
      `${OP}: in mode 'process' each rank runs the main file of the program again, and this ` +
        "program is not a file. Put it into a file, or use mode 'local'.",
      {
        op: OP,
      },
    );
  }
  // A file may be given without its extension.
  const runner = TEST_RUNNER.exec(existsSync(file) ? realpathSync(file) : file)?.[1];
  if (runner !== undefined)
    throw new DistributedError(
      `${OP}: in mode 'process' each rank runs the main file of the program again, which is the ` +
        `test runner ${runner} here: each rank would run all tests. In mocha, pass ` +
        "withRanks(2, fn, { mode: 'process' }) of shardwise/testing to it(): its ranks run that " +
        "one test. Or give launch a file, or use mode 'local'.",
      { op: OP, runner },
    );
  return { nodeArgs: nodeArguments(), file, args };
}

/** Where test runners and their workers are. */
const TEST_RUNNER =
  /[\\/]node_modules[\\/](mocha|jest(?:-worker|-cli)?|vitest|tinypool|ava|jasmine|tap|uvu)[\\/]/;

/** Node's flags of a program that is not a file. */
const PROGRAM_FLAG = /^(-e|-p|-pe|--eval|--print)(=|$)/;

/**
 * Node's arguments for the ranks: without debugger ports, which only one process can have, and
 * without a program that is not a file, which each rank would run.
 */
export function nodeArguments(given: readonly string[] = process.execArgv): string[] {
  const isText = (i: number): boolean =>
    PROGRAM_FLAG.test(given[i - 1] ?? '') && !given[i - 1]?.includes('=');
  return given.filter(
    (arg, i) =>
      !PROGRAM_FLAG.test(arg) &&
      !isText(i) &&
      !/^(--(inspect|input-type|interactive)|-i$)/.test(arg),
  );
}
