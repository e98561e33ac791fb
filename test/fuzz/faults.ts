/**
 * Sends signals to ranks and their launcher at random moments. All processes must end, nothing may
 * stay behind, and an error must name the right rank or none. Seed and number repeat a trial as far
 * as the machine is deterministic.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isRunning } from '../distributed/support/is-running.js';
import { loader, programArguments } from '../run-program.js';
import { Rng } from './rng.js';

const WORLD_SIZE = 4;
const TIMEOUT_MS = 3_000;
/** Maximal time to start on a busy machine, and to end after the timeout. */
const START_MS = 40_000;
const END_MS = TIMEOUT_MS + 20_000;
/** Time that a launcher is stopped before it continues. */
const STOPPED_MS = 1_500;
const LAUNCHER = -1;
const main = path.join(
  import.meta.dirname,
  '..',
  '..',
  'lib',
  'cli',
  `main${path.extname(import.meta.filename)}`,
);

export interface Trial {
  readonly number: number;
  readonly backend: 'shm' | 'gloo';
  readonly launched: boolean;
  readonly mode: 'await' | 'item' | 'lazy' | 'dtensor';
  readonly grouped: boolean;
  readonly signal: 'SIGKILL' | 'SIGSTOP' | 'SIGINT' | 'SIGTERM';
  /** The rank that gets the signal; -1 for the launcher. */
  readonly victim: number;
  /** The phase of all ranks when the signal is sent. */
  readonly moment: 'joining' | 'running';
  readonly delayMs: number;
}

export interface Outcome {
  readonly trial: Trial;
  readonly ended: boolean;
  readonly left: readonly string[];
  /** Errors of other ranks that name another rank than the victim. */
  readonly wrong: readonly string[];
  /** Errors of other ranks that name no rank. */
  readonly unnamed: readonly string[];
  readonly named: number;
  readonly seconds: number;
}

export function trialOf(seed: number, number: number): Trial {
  const rng = new Rng(seed, number);
  const launched = rng.chance(0.5);
  const moment = rng.pick(['joining', 'running'] as const);
  return {
    number,
    backend: rng.pick(['shm', 'gloo'] as const),
    launched,
    mode: rng.pick(['await', 'item', 'lazy', 'dtensor'] as const),
    grouped: rng.chance(0.5),
    signal: rng.pick(['SIGKILL', 'SIGSTOP', 'SIGINT', 'SIGTERM'] as const),
    victim: launched && rng.chance(0.3) ? LAUNCHER : rng.int(0, WORLD_SIZE - 1),
    moment,
    delayMs: rng.int(0, moment === 'joining' ? 500 : 1_500),
  };
}

export function shownTrial({
  number,
  backend,
  launched,
  mode,
  grouped,
  signal,
  victim,
  moment,
  delayMs,
}: Trial): string {
  const whom = victim === LAUNCHER ? 'the launcher' : `rank ${victim}`;
  return (
    `#${number} ${backend}${launched ? ' launched' : ''} ${mode}${grouped ? ' in groups' : ''}: ` +
    `${signal} for ${whom} ${delayMs} ms after ${moment}`
  );
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

async function until(what: () => boolean, ms: number): Promise<boolean> {
  for (const end = Date.now() + ms; !what(); await sleep(5)) if (Date.now() > end) return false;
  return true;
}

function signalTo(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // it has ended
  }
}

/** The processes of a trial, and the folder of their files. */
class Ranks {
  readonly folder = mkdtempSync(path.join(tmpdir(), 'shardwise-faults-'));
  private readonly children: ChildProcess[] = [];
  private readonly trial: Trial;
  output = '';

  constructor(trial: Trial) {
    this.trial = trial;
    mkdirSync(this.temporary);
  }

  private get temporary(): string {
    return path.join(this.folder, 'tmp');
  }

  async start(): Promise<void> {
    const { backend, mode, grouped, launched } = this.trial;
    const [program, ...rest] = [
      ...programArguments('fuzz/fault-rank').slice(loader.length),
      this.folder,
      backend,
      mode,
      String(grouped),
      String(TIMEOUT_MS),
    ];
    const port = String(await freePort());
    if (launched)
      return this.spawn(
        [main, 'run', '--nproc-per-node', String(WORLD_SIZE), program as string, ...rest],
        {},
      );
    const rankless = {
      WORLD_SIZE: String(WORLD_SIZE),
      LOCAL_WORLD_SIZE: String(WORLD_SIZE),
      MASTER_ADDR: '127.0.0.1',
      MASTER_PORT: port,
    };
    for (let rank = 0; rank < WORLD_SIZE; rank++)
      this.spawn([program as string, ...rest], {
        ...rankless,
        RANK: String(rank),
        LOCAL_RANK: String(rank),
      });
  }

  private spawn(args: string[], env: Record<string, string>): void {
    const kept = Object.fromEntries(
      Object.entries(process.env).filter(
        ([name]) => !/^(RANK|WORLD_SIZE|LOCAL_\w+|MASTER_\w+)$/.test(name),
      ),
    );
    // Ranks of a launcher have Node's arguments of its own.
    const child = spawn(process.execPath, [...loader, ...args], {
      env: { ...kept, NODE_OPTIONS: loader.join(' '), TMPDIR: this.temporary, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (data: Buffer) => void (this.output += data));
    this.children.push(child);
  }

  haveAllSaid(what: string): boolean {
    return Array.from({ length: WORLD_SIZE }).every((_, rank) => this.hasSaid(what, rank));
  }

  hasSaid(what: string, rank: number): boolean {
    return existsSync(path.join(this.folder, `${what}-${rank}`));
  }

  pidOf(rank: number): number {
    if (rank === LAUNCHER) return this.children[0]?.pid ?? 0;
    return Number(
      this.hasSaid('joining', rank)
        ? readFileSync(path.join(this.folder, `joining-${rank}`), 'utf8')
        : 0,
    );
  }

  pids(): number[] {
    const ranks = Array.from({ length: WORLD_SIZE }, (_, rank) => this.pidOf(rank));
    return [...new Set([...ranks, ...this.children.map(({ pid }) => pid ?? 0)])].filter(
      (pid) => pid > 0,
    );
  }

  running(): number[] {
    return this.pids().filter(isRunning);
  }

  errorOf(rank: number): { message: string; ranks: number[] } | null {
    return this.hasSaid('error', rank)
      ? JSON.parse(readFileSync(path.join(this.folder, `error-${rank}`), 'utf8'))
      : null;
  }

  /**
   * Files that a trial left behind. Files of tsx do not count, nor flight records, nor the secret
   * of a store whose process was killed: the next store of the user removes it.
   */
  left(): string[] {
    const pids = new Set(this.pids());
    const isSecretOfKilled = (name: string): boolean =>
      this.trial.victim === 0 && name.startsWith('shardwise-store-');
    const memory = readdirSync('/dev/shm').filter((name) =>
      pids.has(Number(/^shardwise-\d+-(\d+)-/.exec(name)?.[1])),
    );
    return [
      ...this.running().map((pid) => `process ${pid}`),
      ...memory,
      ...readdirSync(this.temporary).filter(
        (name) => !/^(tsx-|shardwise-failure-)/.test(name) && !isSecretOfKilled(name),
      ),
    ];
  }

  remove(): void {
    for (const pid of this.running()) signalTo(pid, 'SIGKILL');
    // A rank that has not written its number yet may still write.
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

/** Sorts the errors of the other ranks: those that name a wrong rank, and those that name none. */
function judged(
  ranks: Ranks,
  { victim, launched }: Trial,
): Pick<Outcome, 'wrong' | 'unnamed' | 'named'> {
  const [wrong, unnamed]: string[][] = [[], []];
  let named = 0;
  for (let rank = 0; rank < WORLD_SIZE; rank++) {
    if (rank === victim || victim === LAUNCHER) continue;
    const error = ranks.errorOf(rank);
    const said = `rank ${rank}: ${error?.message ?? 'ended without an error'}`;
    const blamed = new Set(error?.ranks);
    const names =
      blamed.has(victim) || new RegExp(`\\brank ${victim}\\b`, 'i').test(error?.message ?? '');
    if (error !== null && blamed.size > (blamed.has(victim) ? 1 : 0))
      wrong?.push(`${said} [${[...blamed].join()}]`);
    else if (names || (launched && error === null))
      named++; // the launcher ends ranks without an error, and names the victim itself
    else unnamed?.push(said);
  }
  if (
    launched &&
    victim !== LAUNCHER &&
    !new RegExp(`\\brank ${victim}\\b`, 'i').test(ranks.output)
  )
    unnamed?.push(`the launcher: ${ranks.output.slice(-1000)}`);
  return { wrong: wrong as string[], unnamed: unnamed as string[], named };
}

/** Runs a trial; null if the ranks did not reach the phase. */
export async function runTrial(trial: Trial): Promise<Outcome | null> {
  const { victim, signal, moment, delayMs } = trial;
  const ranks = new Ranks(trial);
  try {
    await ranks.start();
    await until(() => ranks.haveAllSaid(moment) || ranks.running().length === 0, START_MS);
    if (!ranks.haveAllSaid(moment)) return null;
    await sleep(delayMs);
    const begin = Date.now();
    signalTo(ranks.pidOf(victim), signal);
    const stopped = signal === 'SIGSTOP' ? ranks.pidOf(victim) : 0;
    if (victim === LAUNCHER && stopped > 0) {
      await sleep(STOPPED_MS);
      signalTo(stopped, 'SIGCONT');
      signalTo(stopped, 'SIGTERM');
    }
    const haveOthersEnded = await until(
      () => ranks.running().every((pid) => pid === stopped),
      END_MS,
    );
    const seconds = (Date.now() - begin) / 1000;
    // A stopped process that continues must end, too.
    if (stopped > 0) signalTo(stopped, 'SIGCONT');
    const ended = (await until(() => ranks.running().length === 0, END_MS)) && haveOthersEnded;
    return { trial, ended, left: ranks.left(), seconds, ...judged(ranks, trial) };
  } finally {
    ranks.remove();
  }
}

export const isFault = ({ ended, left, wrong }: Outcome): boolean =>
  !ended || left.length > 0 || wrong.length > 0;

/** Runs trials until the time is over, or the one of a number. Prints the outcome of each. */
export async function faultsCampaign(
  seed: number,
  seconds: number,
  only: number | null,
  say: (line: string) => void,
): Promise<Outcome[]> {
  const end = Date.now() + seconds * 1000;
  const outcomes: Outcome[] = [];
  for (let number = only ?? 0; ; number++) {
    const trial = trialOf(seed, number);
    const outcome = await runTrial(trial);
    if (outcome !== null) {
      outcomes.push(outcome);
      const { ended, left, wrong, unnamed, named } = outcome;
      say(
        `${isFault(outcome) ? 'FOUND ' : ''}${shownTrial(trial)}: ` +
          `${ended ? 'all ended' : 'NOT ENDED'} after ${outcome.seconds.toFixed(1)} s, named by ` +
          `${named}`,
      );
      for (const line of [
        ...left.map((name) => `left: ${name}`),
        ...wrong.map((said) => `names another: ${said}`),
        ...unnamed.map((said) => `names nobody: ${said}`),
      ])
        say(`  ${line}`);
    } else
      say(
        `${shownTrial(trial)}: not tried, the ranks did not come so far in ${START_MS / 1000} ` +
          's, or in their timeout',
      );
    if (only !== null || Date.now() > end) return outcomes;
  }
}

/** One line for each kind of start. */
export function countsOf(outcomes: readonly Outcome[]): string[] {
  const rows = [];
  for (const backend of ['shm', 'gloo']) {
    for (const launched of [false, true]) {
      for (const moment of ['joining', 'running']) {
        const of = outcomes.filter(
          ({ trial }) =>
            trial.backend === backend && trial.launched === launched && trial.moment === moment,
        );
        if (of.length === 0) continue;
        const count = (holds: (outcome: Outcome) => boolean): number => of.filter(holds).length;
        const [ended, clean, right] = [
          count((o) => o.ended),
          count((o) => o.left.length === 0),
          count((o) => o.wrong.length === 0),
        ];
        const named = count((o) => o.wrong.length + o.unnamed.length === 0);
        rows.push(
          `${backend}, ${launched ? 'launcher' : 'no launcher'}, ${moment}: ${of.length} hit, ` +
            `${ended} ended, ${clean} left nothing, ${named} named the rank in all errors, ` +
            `${right} named no other`,
        );
      }
    }
  }
  return rows;
}
