/** Ranks that fail, and the flight records that their errors name. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import getPort from 'get-port';
import { programArguments } from '../../run-program.js';

export const RANKS = [0, 1, 2];
/** The rank that does something else than the others. */
export const DEVIANT = 1;

interface Line {
  readonly failure?: string;
  readonly rank?: number;
  readonly group?: string;
  readonly sequence?: number;
  readonly op?: string;
  readonly dtype?: string;
  readonly input?: number[];
  readonly purpose?: string;
  readonly start?: string;
  readonly end?: string;
}

export interface Said {
  readonly rank: number;
  readonly message: string;
  readonly file: string;
}

export const linesOf = (file: string): Line[] =>
  readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line);

export const lastOf = (lines: readonly Line[], rank: number): Line | undefined =>
  lines.findLast((line) => line.rank === rank && line.group === 'world');

/** The ranks of one test at a time. */
export class FailingRanks {
  readonly errors: string[] = [];
  private readonly folder = mkdtempSync(path.join(tmpdir(), 'shardwise-flight-'));
  private readonly children: ChildProcess[] = [];

  /** Ends all. */
  end(): void {
    for (const child of this.children) child.kill('SIGKILL');
    rmSync(this.folder, { recursive: true });
  }

  /** What the ranks say that the fault leaves alive. */
  async run(fault: string, backend: string, device = 'cpu'): Promise<Said[]> {
    const port = await getPort();
    const ended = RANKS.map((rank) => {
      const child = spawn(
        process.execPath,
        [...programArguments('distributed/programs/flight-record'), fault, backend, device],
        {
          env: {
            ...process.env,
            RANK: String(rank),
            WORLD_SIZE: String(RANKS.length),
            MASTER_ADDR: '127.0.0.1',
            MASTER_PORT: String(port),
            SHARDWISE_FLIGHT_RECORD: this.folder,
          },
        },
      );
      this.children.push(child);
      let text = '';
      child.stdout.on('data', (chunk) => (text += chunk));
      this.errors[rank] = '';
      child.stderr.on('data', (chunk) => (this.errors[rank] += chunk));
      return new Promise<string>((resolve) => child.once('close', () => resolve(text)));
    });
    const others = ended.filter((_, rank) => fault === 'deviates' || rank !== DEVIANT);
    const texts = await Promise.all(others);
    if (fault === 'crashes') await ended[DEVIANT];
    return texts.map((text, i) => {
      assert.notEqual(text, '', `no error of a rank: ${this.errors.join('\n')} ${i}`);
      return JSON.parse(text) as Said;
    });
  }
}

/** Checks the calls of the ranks themselves in their records. */
export function checkOwn(said: readonly Said[]): void {
  for (const { rank, message, file } of said) {
    assert.ok(message.includes(`last collectives: ${file}`), message);
    const lines = linesOf(file);
    assert.match(String(lines[0]?.failure), /allReduce/);
    const own = lines.filter((line) => line.rank === rank && line.start !== undefined);
    assert.deepEqual(
      own.map(({ sequence, op, purpose }) => [sequence, op, purpose]),
      [1, 2, 3, 4].map((n) => [n, 'allReduce', n < 4 ? `of step ${n - 1}` : 'of the last step']),
    );
    assert.deepEqual(
      own.map(({ end }) => end === 'not finished'),
      [false, false, false, true],
    );
    assert.equal(own[0]?.dtype, 'float32');
    assert.deepEqual(own[0]?.input, [2, 3]);
    assert.deepEqual(own[3]?.input, rank === DEVIANT ? [5] : [2, 3]);
    assert.ok(Math.abs(Date.parse(String(own[3]?.start)) - Date.now()) < 60_000);
  }
}
