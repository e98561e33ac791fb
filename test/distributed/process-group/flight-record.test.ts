/** A failure writes the last collectives of all ranks, and its error names the file. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import getPort from 'get-port';
import { programArguments } from '../../run-program.js';
import { skipWithoutGloo } from '../support/skip-without-gloo.js';

const RANKS = [0, 1, 2];
const DEVIANT = 1;

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

interface Said {
  readonly rank: number;
  readonly message: string;
  readonly file: string;
}

const linesOf = (file: string): Line[] =>
  readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line);

const lastOf = (lines: readonly Line[], rank: number): Line | undefined =>
  lines.findLast((line) => line.rank === rank && line.group === 'world');

describe('a flight record', () => {
  let folder: string;
  let children: ChildProcess[] = [];
  const errors: string[] = [];

  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'shardwise-flight-'));
  });
  afterEach(() => {
    for (const child of children) child.kill('SIGKILL');
    children = [];
    rmSync(folder, { recursive: true });
  });

  /** What the ranks say that the fault leaves alive. */
  async function run(fault: string, backend: string): Promise<Said[]> {
    const port = await getPort();
    const ended = RANKS.map((rank) => {
      const child = spawn(
        process.execPath,
        [...programArguments('distributed/programs/flight-record'), fault, backend],
        {
          env: {
            ...process.env,
            RANK: String(rank),
            WORLD_SIZE: String(RANKS.length),
            MASTER_ADDR: '127.0.0.1',
            MASTER_PORT: String(port),
            SHARDWISE_FLIGHT_RECORD: folder,
          },
        },
      );
      children.push(child);
      let text = '';
      child.stdout.on('data', (chunk) => (text += chunk));
      errors[rank] = '';
      child.stderr.on('data', (chunk) => (errors[rank] += chunk));
      return new Promise<string>((resolve) => child.once('close', () => resolve(text)));
    });
    const others = ended.filter((_, rank) => fault === 'deviates' || rank !== DEVIANT);
    const texts = await Promise.all(others);
    if (fault === 'crashes') await ended[DEVIANT];
    return texts.map((text, i) => {
      assert.notEqual(text, '', `no error of a rank: ${errors.join('\n')} ${i}`);
      return JSON.parse(text) as Said;
    });
  }

  function checkOwn(said: readonly Said[]): void {
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

  for (const backend of ['shm', 'gloo']) {
    it(`over ${backend} shows the call of a rank that deviates`, async function () {
      if (backend === 'gloo') skipWithoutGloo(this);
      const said = await run('deviates', backend);
      checkOwn(said);
      assert.equal(said.length, RANKS.length);
      // Over gloo each rank finds such a failure by itself.
      const folders = new Set(said.map(({ file }) => path.dirname(file)));
      assert.equal(folders.size, backend === 'shm' ? 1 : RANKS.length);
      for (const each of folders) assert.equal(statSync(each).mode & 0o777, 0o700);
      assert.equal(statSync((said[0] as Said).file).mode & 0o777, 0o600);
    });

    it(`over ${backend} is written by the others when a rank is killed`, async function () {
      if (backend === 'gloo') skipWithoutGloo(this);
      checkOwn(await run('dies', backend));
    });
  }

  for (const fault of ['dies', 'hangs'])
    it(`shows the last call of a rank that ${fault}, from the memory that ranks share`, async () => {
      const said = await run(fault, 'shm');
      checkOwn(said);
      for (const { file } of said) {
        const last = lastOf(linesOf(file), DEVIANT);
        assert.deepEqual(
          [last?.sequence, last?.op, last?.purpose, last?.end],
          [3, 'allReduce', 'of step 2', 'finished'],
        );
      }
    });

  it('is written by a rank that gets a fatal signal', async () => {
    await run('crashes', 'shm');
    const file = /The last collectives are in (.*)/.exec(errors[DEVIANT] as string)?.[1];
    const lines = linesOf(String(file));
    assert.equal(lines[0]?.failure, 'signal 11');
    assert.equal(lastOf(lines, DEVIANT)?.sequence, 3);
  });
});
