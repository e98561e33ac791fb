/**
 * Starts and supervises the processes of ranks. If one fails, all are ended, and none outlives the
 * launcher.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { pathToFileURL } from 'node:url';
import { DistributedError } from '../../core/errors.js';
import { findAddon, moduleFile } from '../../native/load.js';
import { removeSegmentsOf } from '../engines/shm-segments.js';
import { RankOutput } from './worker-output.js';

/** The command of every rank. @internal */
export interface RankProgram {
  /** Arguments of Node, before the file. */
  readonly nodeArgs: readonly string[];
  readonly file: string;
  readonly args: readonly string[];
}

/** @internal */
export interface RankSettings {
  readonly rank: number;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** @internal */
export interface Supervision {
  /** The public function or command, for errors. */
  readonly op: string;
  /** Whether each line of output begins with its rank. */
  readonly prefixOutput: boolean;
  /** Time for the other ranks to report their own failures, before they get SIGTERM. */
  readonly settleMs?: number;
  /** Time between SIGTERM and SIGKILL. */
  readonly graceMs?: number;
  /** Called when a rank has ended without an error. */
  readonly onEnd?: (rank: number) => void;
  /** Called with the messages of a rank. */
  readonly onMessage?: (rank: number, message: unknown, reply: (answer: object) => void) => void;
}

/** How a rank failed. @internal */
export interface RankFailure {
  readonly rank: number;
  readonly pid: number | undefined;
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  /** The message of its error, if known. */
  readonly message: string | null;
  /** The code of its system error, such as `EMFILE`, if it could not be run. */
  readonly systemCode?: string | undefined;
  readonly lastLines: readonly string[];
  /** Time in milliseconds: the first of several failures is the cause of the others. */
  readonly at: number;
}

const SETTLE_MS = 1_500;
/** Time for the last output of a rank whose child process keeps the pipe open. */
const OUTPUT_MS = 500;
const GRACE_MS = 5_000;
/** Other ranks may notice a killed rank and end before its end is reported here. */
const NOTICE_MS = 1_000;
/** Node's exit code. */
const UNSETTLED_AWAIT = 13;
const forwarded: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'];

interface Rank {
  readonly number: number;
  readonly child: ChildProcess;
  /** Its stderr; null if it could not be started. */
  readonly errors: RankOutput | null;
  readonly closed: Promise<void>;
  threw: { at: number; message: string | null } | null;
  running: boolean;
}

/** What the process of each rank runs first. */
const PRELOAD = 'distributed/launch/worker-preload';

const now = (): number => performance.timeOrigin + performance.now();

/** The processes of this machine's ranks. @internal */
export class RankProcesses {
  /** Resolves when all have ended, to the first failure or null. */
  readonly ended: Promise<RankFailure | null>;
  private readonly options: Supervision;
  private readonly ranks: Rank[] = [];
  private readonly failures: RankFailure[] = [];
  private readonly timers = new Set<NodeJS.Timeout>();
  private signal: NodeJS.Signals | null = null;
  private stopping = false;
  /** Whether a rank has said that it saves a checkpoint when it gets a signal. */
  private savesOnSignals = false;
  private over = false;
  private readonly listeners = new Map<NodeJS.Signals, () => void>();
  private readonly killAll = (): void => this.kill('SIGKILL');

  constructor(program: RankProgram, settings: readonly RankSettings[], options: Supervision) {
    this.options = options;
    // Forwards signals to the ranks; this process ends by the signal once the ranks have ended.
    for (const signal of forwarded) this.listen(signal);
    process.once('exit', this.killAll);
    for (const each of settings) if (!this.start(program, each)) break;
    this.ended = this.end();
  }

  /** Ends all ranks. */
  stop(): void {
    if (this.stopping || this.over) return;
    this.stopping = true;
    this.kill('SIGTERM');
    // A stopped process would not receive SIGTERM; Windows stops none.
    if (process.platform !== 'win32') this.kill('SIGCONT');
    this.after(this.options.graceMs ?? GRACE_MS, this.killAll);
  }

  /** Starts a rank; returns false, and records the failure, if that is not possible. */
  private start(program: RankProgram, settings: RankSettings): boolean {
    let child: ChildProcess;
    try {
      child = this.spawn(program, settings);
    } catch (error) {
      this.failures.push({
        rank: settings.rank,
        pid: undefined,
        exitCode: null,
        signal: null,
        message: (error as Error).message,
        systemCode: (error as NodeJS.ErrnoException).code,
        lastLines: [],
        at: now(),
      });
      this.stop();
      return false;
    }
    const label = this.options.prefixOutput ? `[${settings.rank}] ` : '';
    // Without free descriptors Node returns a process without streams and emits an error event.
    const errors = child.stderr ? new RankOutput(child.stderr, process.stderr, label) : null;
    const output = child.stdout ? new RankOutput(child.stdout, process.stdout, label) : null;
    const exited = new Promise<void>((resolve) => {
      child.once('exit', () => resolve());
      child.once('error', () => resolve());
    });
    const closed = exited
      .then(() =>
        Promise.race([Promise.all([errors?.ended, output?.ended]), this.pause(OUTPUT_MS)]),
      )
      .then(() => {});
    const rank: Rank = { number: settings.rank, child, errors, closed, threw: null, running: true };
    child.on('message', (message) => this.receive(rank, message));
    child.once('exit', (code, signal) => this.exited(rank, code, signal));
    child.once('error', (error) => this.failed(rank, null, null, error));
    this.ranks.push(rank);
    return child.pid !== undefined;
  }

  private spawn({ nodeArgs, file, args }: RankProgram, { env }: RankSettings): ChildProcess {
    return spawn(
      process.execPath,
      [...nodeArgs, '--import', pathToFileURL(moduleFile(PRELOAD)).href, file, ...args],
      {
        env: { ...process.env, ...env, SHARDWISE_LAUNCHER_ADDON: findAddon() ?? '' },
        stdio: ['ignore', this.options.prefixOutput ? 'pipe' : 'inherit', 'pipe', 'ipc'],
        serialization: 'advanced',
      },
    );
  }

  private receive(rank: Rank, message: unknown): void {
    const {
      shardwise,
      at,
      message: text,
    } = message as { shardwise?: unknown; at?: unknown; message?: unknown };
    if (
      shardwise === 'failed' &&
      typeof at === 'number' &&
      (typeof text === 'string' || text === null)
    )
      rank.threw ??= { at, message: text };
    if (shardwise === 'saves on signals') this.savesOnSignals = true;
    const reply = (answer: object): void => {
      if (rank.child.connected) rank.child.send(answer);
    };
    this.options.onMessage?.(rank.number, message, reply);
  }

  private exited(rank: Rank, code: number | null, signal: NodeJS.Signals | null): void {
    rank.running = false;
    if (code !== 0) this.failed(rank, code, signal, null);
    else this.options.onEnd?.(rank.number);
  }

  private failed(
    rank: Rank,
    exitCode: number | null,
    signal: NodeJS.Signals | null,
    error: NodeJS.ErrnoException | null,
  ): void {
    rank.running = false;
    const { threw, errors, child, number } = rank;
    // Windows has no signals: a killed rank ends there with a code, and has not said why.
    const killed = signal !== null || (process.platform === 'win32' && threw === null);
    const ended = killed && !this.stopping ? now() - NOTICE_MS : now();
    this.failures.push({
      rank: number,
      pid: child.pid,
      exitCode,
      signal,
      message: threw?.message ?? error?.message ?? null,
      systemCode: error?.code,
      lastLines: errors?.lastLines ?? [],
      at: threw?.at ?? ended,
    });
    if (child.pid === undefined)
      this.stop(); // the other ranks would wait for it
    else if (!this.stopping) this.after(this.options.settleMs ?? SETTLE_MS, () => this.stop());
  }

  private async end(): Promise<RankFailure | null> {
    await Promise.all(this.ranks.map((rank) => rank.closed));
    this.over = true;
    for (const timer of this.timers) clearTimeout(timer);
    for (const { child } of this.ranks)
      for (const stream of [child.stdout, child.stderr]) stream?.destroy();
    removeSegmentsOf(this.ranks.flatMap(({ child }) => child.pid ?? []));
    process.removeListener('exit', this.killAll);
    for (const [signal, listener] of this.listeners) process.removeListener(signal, listener);
    if (this.signal !== null && process.listenerCount(this.signal) === 0)
      process.kill(process.pid, this.signal);
    return this.failures.sort((a, b) => a.at - b.at)[0] ?? null;
  }

  private listen(signal: NodeJS.Signals): void {
    const listener = (): void => {
      const isSecond = this.signal !== null;
      this.signal = signal;
      this.kill(signal);
      // Ranks that save first take the time that they need; a second signal ends them.
      if (!this.savesOnSignals || isSecond)
        this.after(this.options.graceMs ?? GRACE_MS, this.killAll);
    };
    this.listeners.set(signal, listener);
    process.on(signal, listener);
  }

  private kill(signal: NodeJS.Signals): void {
    for (const { child, running } of this.ranks) if (running) child.kill(signal);
  }

  private after(ms: number, action: () => void): void {
    this.timers.add(setTimeout(action, ms));
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => this.after(ms, resolve));
  }
}

/** The error of a run in which a rank failed. @internal */
export function describeRankFailure(
  op: string,
  failure: RankFailure,
  cause?: unknown,
): DistributedError {
  const { rank, pid, exitCode, signal, message, systemCode, lastLines } = failure;
  const meaning =
    exitCode === UNSETTLED_AWAIT ? ' (a top-level await of its program never resolved)' : '';
  const how =
    signal !== null
      ? `was ended by ${signal}`
      : exitCode !== null
        ? `ended with exit code ${exitCode}${meaning}`
        : 'could not be run';
  const exhausted =
    systemCode === 'EMFILE' || systemCode === 'ENFILE'
      ? '. This process cannot open more files; raise the limit: ulimit -n'
      : '';
  const text = [
    `${op}: rank ${rank}${pid === undefined ? '' : ` (process ${pid})`} ` +
      `${how}${message === null ? '' : `: ${message}`}${exhausted}`,
  ];
  if (cause === undefined && lastLines.length > 0)
    text.push('  last lines of its stderr:', ...lastLines.map((line) => `    ${line}`));
  return new DistributedError(
    text.join('\n'),
    { op, rank, pid, exitCode, signal, stderr: [...lastLines] },
    cause === undefined ? undefined : { cause },
  );
}
