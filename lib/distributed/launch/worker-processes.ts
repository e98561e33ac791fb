/**
 * Processes that are ranks, and their end: if one fails, all do, and none outlives the process that
 * made them.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { DistributedError } from '../../core/errors.js';
import { removeSegmentsOf } from '../engines/shm-segments.js';
import { RankOutput } from './worker-output.js';

/** What every rank runs. @internal */
export interface RankProgram {
  /** Of Node itself, before the file. */
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
  /** Who asks, for errors. */
  readonly op: string;
  /** Whether lines are printed behind the rank's number. */
  readonly prefixOutput: boolean;
  /** How long the others have to say why they fail as well, before they are told to end. */
  readonly settleMs?: number;
  /** How long they have to end by SIGTERM, before they are killed. */
  readonly graceMs?: number;
  /** A rank has ended without an error. */
  readonly onEnd?: (rank: number) => void;
  /** Messages of a rank that are not ours. */
  readonly onMessage?: (rank: number, message: unknown, reply: (answer: object) => void) => void;
}

/** How a rank failed. @internal */
export interface RankFailure {
  readonly rank: number;
  readonly pid: number | undefined;
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  /** What it threw, if that is known. */
  readonly message: string | null;
  readonly lastLines: readonly string[];
  /** In milliseconds: the first of several failures is the cause of the others. */
  readonly at: number;
}

const SETTLE_MS = 1_500;
/**
 * For what a rank has printed to arrive, where a process that it left behind keeps its output open.
 */
const OUTPUT_MS = 500;
const GRACE_MS = 5_000;
/** Other ranks may see that one was killed, and end, before its end is told here. */
const NOTICE_MS = 1_000;
/** Of Node. */
const UNSETTLED_AWAIT = 13;
const forwarded: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

interface Rank {
  readonly number: number;
  readonly child: ChildProcess;
  /** What it writes to stderr; null for one that could not be started. */
  readonly errors: RankOutput | null;
  readonly closed: Promise<void>;
  threw: { at: number; message: string | null } | null;
  running: boolean;
}

const now = (): number => performance.timeOrigin + performance.now();

/** The processes of this machine's ranks. @internal */
export class RankProcesses {
  /** Resolves when all have ended: to the first failure, or null. */
  readonly ended: Promise<RankFailure | null>;
  private readonly options: Supervision;
  private readonly ranks: Rank[] = [];
  private readonly failures: RankFailure[] = [];
  private readonly timers = new Set<NodeJS.Timeout>();
  private signal: NodeJS.Signals | null = null;
  private stopping = false;
  private over = false;
  private readonly listeners = new Map<NodeJS.Signals, () => void>();
  private readonly killAll = (): void => this.kill('SIGKILL');

  constructor(program: RankProgram, settings: readonly RankSettings[], options: Supervision) {
    this.options = options;
    // Of this process: it ends as it would have, once the ranks have.
    for (const signal of forwarded) this.listen(signal);
    process.once('exit', this.killAll);
    for (const each of settings) if (!this.start(program, each)) break;
    this.ended = this.end();
  }

  /** Ends all ranks: what they do is of no use any more. */
  stop(): void {
    if (this.stopping || this.over) return;
    this.stopping = true;
    this.kill('SIGTERM');
    this.kill('SIGCONT'); // a process that is stopped would not hear of it
    this.after(this.options.graceMs ?? GRACE_MS, this.killAll);
  }

  /** Whether it could be started. If not, that is its failure, as any other. */
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
        lastLines: [],
        at: now(),
      });
      this.stop();
      return false;
    }
    const label = this.options.prefixOutput ? `[${settings.rank}] ` : '';
    // Where descriptors are lacking, Node gives back a process without streams and says so by an
    // event.
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
    const made: Rank = { number: settings.rank, child, errors, closed, threw: null, running: true };
    child.on('message', (message) => this.receive(made, message));
    child.once('exit', (code, signal) => this.exited(made, code, signal));
    child.once('error', (error) => this.failed(made, null, null, error.message));
    this.ranks.push(made);
    return child.pid !== undefined;
  }

  private spawn({ nodeArgs, file, args }: RankProgram, { env }: RankSettings): ChildProcess {
    return spawn(
      process.execPath,
      [...nodeArgs, '--import', pathToFileURL(childModule()).href, file, ...args],
      {
        env: { ...process.env, ...env },
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
    message: string | null,
  ): void {
    rank.running = false;
    const { threw, errors, child, number } = rank;
    const ended = signal !== null && !this.stopping ? now() - NOTICE_MS : now();
    this.failures.push({
      rank: number,
      pid: child.pid,
      exitCode,
      signal,
      message: threw?.message ?? message,
      lastLines: errors?.lastLines ?? [],
      at: threw?.at ?? ended,
    });
    if (child.pid === undefined)
      this.stop(); // the others would wait for it
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
      this.signal = signal;
      this.kill(signal);
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

/** Beside this file where sources run, at a place of its own where the package is bundled. */
function childModule(): string {
  const here = fileURLToPath(import.meta.url);
  const beside = path.join(path.dirname(here), `worker-preload${path.extname(here)}`);
  if (existsSync(beside)) return beside;
  const dist = here.slice(0, here.lastIndexOf(`${path.sep}dist${path.sep}`) + 6);
  return path.join(dist, 'distributed', 'launch', 'worker-preload.js');
}

/** The error of a run of which a rank has failed. @internal */
export function describeRankFailure(
  op: string,
  failure: RankFailure,
  cause?: unknown,
): DistributedError {
  const { rank, pid, exitCode, signal, message, lastLines } = failure;
  const meaning =
    exitCode === UNSETTLED_AWAIT ? ' (an await at the top of its program never ended)' : '';
  const how =
    signal !== null
      ? `was ended by ${signal}`
      : exitCode !== null
        ? `ended with exit code ${exitCode}${meaning}`
        : 'could not be run';
  const exhausted = /\bE[MN]FILE$/.test(message ?? '')
    ? '. This process may open no more files; raise the limit: ulimit -n'
    : '';
  const text = [
    `${op}: rank ${rank}${pid === undefined ? '' : ` (process ${pid})`} ${how}${message === null ? '' : `: ${message}`}${exhausted}`,
  ];
  if (cause === undefined && lastLines.length > 0)
    text.push('  what it wrote last to stderr:', ...lastLines.map((line) => `    ${line}`));
  return new DistributedError(
    text.join('\n'),
    { op, rank, pid, exitCode, signal, stderr: [...lastLines] },
    cause === undefined ? undefined : { cause },
  );
}
