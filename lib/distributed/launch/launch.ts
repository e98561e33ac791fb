/**
 * Starting ranks from a program: a function as ranks of this process or of processes of their own,
 * or a file as processes.
 */
import { existsSync } from 'node:fs';
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
import { namedDevices, parseBackend } from '../engines/select.js';
import type { RankFault } from '../local-ranks/fault-injection.js';
import { type LocalOptions, type RankFunction, runLocalRanks } from '../local-ranks/run.js';
import { findContext } from '../process-group/rank-context.js';
import { DEFAULT_TIMEOUT_MS } from './init-process-group.js';
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
   * `'local'`: asynchronous functions of this process. `'process'`: a process each. By default
   * local for functions, process for files.
   */
  mode?: 'local' | 'process' | null;
  /** As of `initProcessGroup`; chosen for each device if left out. */
  backend?: string | null;
  /** How long ranks wait for each other, in milliseconds. Half an hour by default. */
  timeoutMs?: number;
  /** Arguments of the program, for files. */
  args?: readonly string[];
  /** Environment variables of the processes, beside those of this one. */
  env?: Readonly<Record<string, string>>;
  /** Whether lines that processes print have the rank's number before them. True by default. */
  prefixOutput?: boolean;
  /**
   * Of `local` ranks: runs one at a time, in an order drawn from the seed. The same seed gives the
   * same order, so a race that was found can be found again; ranks that wait for each other for
   * ever are an error at once. Random numbers begin by it, unless the program has seeded them.
   */
  seed?: number | null;
  /** Of `local` ranks: delays, losses and reorderings, each at a call of a rank. */
  faults?: readonly RankFault[] | null;
}

type Settings = Required<LaunchOptions>;

/** Of processes of one machine: as many as a group with shared memory can have. */
const MOST_RANKS = 64;
const OP = 'launch';

/**
 * Runs `fn` on `worldSize` ranks; resolves to what they return, in the order of ranks. All is set
 * up for them: no `initProcessGroup`.
 *
 * In mode `'process'` each rank is a process that runs the main module of this one again, with the
 * same arguments, up to the same call of `launch`, where it runs `fn` and ends. So the program has
 * to come to its calls of `launch` in one order whatever happens before; calls before it give what
 * they gave in this process. Results pass as by `structuredClone`: tensors do not, their `tolist()`
 * does.
 *
 * @param worldSize - from 1 to 64
 * @throws DistributedError naming the rank that failed first, with its error as `cause`;
 * ArgumentError for bad options
 * @see PyTorch `torch.multiprocessing.spawn`
 */
export function launch<T>(
  worldSize: number,
  fn: RankFunction<T>,
  options?: LaunchOptions,
): Promise<T[]>;
/**
 * Runs a program as `worldSize` processes, with Node's arguments of this one and torchrun's
 * environment variables, which `initProcessGroup()` reads. The first that fails ends the others,
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
export async function launch<T>(
  worldSize: number,
  fnOrFile: RankFunction<T> | string | URL,
  options: LaunchOptions = {},
): Promise<T[] | void> {
  const settings = readOptions(worldSize, fnOrFile, options);
  if (findContext() !== null)
    throw new DistributedError(
      `${OP}: this is rank ${findContext()?.rank} already, and ranks launch no ranks. Make a group with newGroup().`,
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
    throw new ArgumentError(
      `${OP}: files run as processes; for ranks of this process give a function`,
      { op: OP, argument: 'mode', value: mode },
    );
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

/** @throws ArgumentError for what only `local` ranks can repeat @internal */
export function checkReplay(
  op: string,
  { mode, seed, faults }: Pick<Settings, 'seed' | 'faults'> & { readonly mode: string },
): void {
  if (mode !== 'process' || (seed === null && faults === null)) return;
  throw new ArgumentError(
    `${op}: seed and faults are for local ranks, whose order this process decides`,
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

/** Outcomes of the calls that made processes, by number. */
const outcomes: (Outcome | undefined)[] = [];

/**
 * Numbers the call: processes that run this program again find theirs by it, and are told what came
 * of those before.
 */
async function counted<T>(run: (call: number) => Promise<T>): Promise<T> {
  const call = outcomes.push(undefined) - 1;
  const own = launchedCall();
  if (own !== null && !/^\d+$/.test(own)) {
    throw new DistributedError(
      `${OP}: this process runs one test of withRanks, so calls of launch that make processes belong into tests of their own`,
      { op: OP },
    );
  }
  if (own === null && process.env['SHARDWISE_LAUNCHER_PID'] === String(process.ppid)) {
    throw new DistributedError(
      `${OP}: this process is rank ${process.env['RANK']} of a launch already, and ranks launch no ranks: each would launch more, without end. Launch from a program of its own, or use mode 'local'.`,
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
 * As ranks in processes that run `program`, which comes to this call and knows it by `key`.
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
      `${OP}: rank ${silent} ended without an error and without coming to this call of launch. In mode 'process' each rank runs ${program.file} again: does it come to the same calls of launch, in the same order?`,
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

/** This process's own program. @throws DistributedError where there is no file to run again */
function mainProgram(): RankProgram {
  const [, file, ...args] = process.argv;
  if (file === undefined || process.execArgv.some((arg) => PROGRAM_FLAG.test(arg))) {
    throw new DistributedError(
      `${OP}: in mode 'process' each rank runs the main file of the program again, and there is none. Put the program into a file, or use mode 'local'.`,
      {
        op: OP,
      },
    );
  }
  return { nodeArgs: nodeArguments(), file, args };
}

/** Of a program that is no file. */
const PROGRAM_FLAG = /^(-e|-p|-pe|--eval|--print)(=|$)/;

/**
 * Node's own arguments, but for debuggers' ports, which one process has, and a program that is no
 * file, which each rank would run again.
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
