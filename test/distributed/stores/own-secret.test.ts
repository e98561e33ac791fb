/**
 * Stores without a given secret: on one machine the server publishes one that no other user can
 * read.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { findSecret, publishSecret } from '../../../lib/distributed/stores/own-secret.js';
import { type Store, StoreError, TCPStore } from '../../../lib/distributed.js';
import { programArguments, runProgram } from '../../run-program.js';
import { prove } from '../support/raw-store-client.js';

const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-secret-'));
const variables = ['XDG_RUNTIME_DIR', 'SHARDWISE_STORE_SECRET'] as const;
const given = variables.map((name) => process.env[name]);
const open: Store[] = [];

const files = (): string[] =>
  readdirSync(folder).filter((name) => name.startsWith('shardwise-store-'));

async function opened<S extends TCPStore>(store: S): Promise<S> {
  open.push(store);
  return store.ready();
}

describe('a TCPStore on 127.0.0.1 without a given secret', function () {
  this.timeout(30_000);

  beforeEach(() => {
    process.env['XDG_RUNTIME_DIR'] = folder;
    delete process.env['SHARDWISE_STORE_SECRET'];
  });
  afterEach(async () => {
    for (const store of open.splice(0).reverse()) await store.close();
    for (const [i, name] of variables.entries()) {
      if (given[i] === undefined) delete process.env[name];
      else process.env[name] = given[i];
    }
  });
  after(() => rmSync(folder, { recursive: true }));

  it('publishes a secret in a file of mode 600, and refuses clients without it', async () => {
    const keeper = await opened(new TCPStore('127.0.0.1', 0, { isServer: true }));
    const [name, ...others] = files() as [string, ...string[]];
    assert.deepEqual(others, []);
    assert.equal(statSync(path.join(folder, name)).mode & 0o777, 0o600);
    await opened(new TCPStore('127.0.0.1', keeper.port));
    await opened(new TCPStore('localhost', keeper.port));
    const { answer, socket } = await prove(keeper.port, ''); // what another user knows
    assert.equal(answer?.length, 0);
    socket.destroy();
    await assert.rejects(
      new TCPStore('127.0.0.1', keeper.port, { secret: '' }).ready(),
      /has a different secret/,
    );
    await keeper.close();
    assert.deepEqual(files(), []);
  });

  it('ignores files that other users could have written or replaced', async () => {
    const keeper = await opened(new TCPStore('127.0.0.1', 0, { isServer: true }));
    const [name] = files() as [string];
    const prefix = name.slice(0, -16);
    const forged = [`${prefix}open`, `${prefix}link`].map((each) => path.join(folder, each)) as [
      string,
      string,
    ];
    writeFileSync(forged[0], '1 1 forged');
    chmodSync(forged[0], 0o644);
    writeFileSync(path.join(folder, 'elsewhere'), '1 1 forged', { mode: 0o600 });
    symlinkSync(path.join(folder, 'elsewhere'), forged[1]);
    assert.equal(
      findSecret(keeper.port),
      readFileSync(path.join(folder, name), 'utf8').split(' ')[2],
    );
    await opened(new TCPStore('127.0.0.1', keeper.port));
    for (const file of forged) rmSync(file);
  });

  it('reports a store of another user, or with a given secret', async () => {
    const keeper = await opened(new TCPStore('127.0.0.1', 0, { isServer: true, secret: 'given' }));
    assert.deepEqual(files(), []);
    const began = Date.now();
    const error = await new TCPStore('127.0.0.1', keeper.port)
      .ready()
      .catch((thrown: unknown) => thrown as Error);
    assert.ok(
      error instanceof StoreError &&
        /no secret of this user.*SHARDWISE_STORE_SECRET/.test(error.message),
      String(error),
    );
    assert.ok(Date.now() - began < 5_000);
    const everybody = await opened(new TCPStore('127.0.0.1', 0, { isServer: true, secret: '' }));
    await opened(new TCPStore('127.0.0.1', everybody.port, { secret: '' }));
  });

  it('uses the secret of the current run, and removes files of killed runs', async () => {
    const child = spawn(
      process.execPath,
      [...programArguments('distributed/programs/store-server')],
      {
        stdio: ['pipe', 'pipe', 'inherit'],
      },
    );
    const port = Number(await new Promise((resolve) => child.stdout.once('data', resolve)));
    const gone = new Promise((resolve) => child.once('exit', resolve));
    await opened(new TCPStore('127.0.0.1', port));
    child.kill('SIGKILL');
    await gone;
    assert.equal(files().length, 1);
    const keeper = await opened(new TCPStore('127.0.0.1', port, { isServer: true }));
    await opened(new TCPStore('127.0.0.1', port));
    assert.equal(files().length, 1);
    const newer = publishSecret(keeper.port);
    assert.equal(newer?.secret, findSecret(keeper.port));
    newer?.withdraw();
    assert.equal(files().length, 1);
  });

  it('serves ranks started by RANK and WORLD_SIZE alone, which leave no file', async () => {
    const keeper = await opened(new TCPStore('127.0.0.1', 0, { isServer: true, secret: '' }));
    const { port } = keeper;
    await keeper.close();
    const environment = { WORLD_SIZE: '2', MASTER_ADDR: '127.0.0.1', MASTER_PORT: String(port) };
    const ranks = ['0', '1'].map((rank) =>
      runProgram<number>(
        'distributed/programs/by-environment',
        JSON.stringify({ ...environment, RANK: rank }),
      ),
    );
    assert.deepEqual(await Promise.all(ranks), [3, 3]);
    assert.deepEqual(files(), []);
  });
});
