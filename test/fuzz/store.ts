/**
 * Fuzzes a TCPStore in its own process with hostile clients, on 127.0.0.1 and bounded in number and
 * time. The store must keep running, answer nobody without the secret, serve true ranks correctly,
 * and leak no memory or descriptors.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { GREETING_BYTES, NONCE_BYTES } from '../../lib/distributed/stores/authentication.js';
import {
  encodeFields,
  encodeRequest,
  LONGEST_MESSAGE,
  type StoreRequest,
} from '../../lib/distributed/stores/protocol.js';
import { StoreError, TCPStore } from '../../lib/distributed.js';
import {
  closed,
  connectRaw,
  frame,
  nextBody,
  prove,
} from '../distributed/support/raw-store-client.js';
import { programArguments } from '../run-program.js';
import { describeError, Finding, Rng } from './rng.js';

const SECRET = 'of the campaign';
const MIB = 1 << 20;
const ATTACKERS = 4;
const MOST_ATTACKS = 100_000;
/** Deadline for the server to accept and answer a true rank. */
const DEADLINE_MS = 20_000;
const MOST_SERVER_BYTES = 1_024 * MIB;
/** Descriptors of a process beside connections. */
const MOST_SPARE_DESCRIPTORS = 40;
/** Time after which the server has disconnected all strangers. */
const STRANGERS_MS = 6_000;

/** Counts of a campaign. */
export interface StoreCounts {
  /** Attacks by kind. */
  readonly attacks: Readonly<Record<string, number>>;
  /** Rounds of the true ranks; `slowestMs` is the slowest. */
  readonly rounds: number;
  readonly slowestMs: number;
  /** Peak memory of the server. */
  readonly serverBytes: number;
  readonly findings: readonly string[];
}

type Attack = (rng: Rng, port: number) => Promise<void>;

const bytes = (rng: Rng, length: number): Buffer =>
  Buffer.from(rng.list(length, () => rng.int(0, 255)));

/**
 * A client without the secret. It must receive the server's nonce, and at most that its proof is
 * wrong.
 */
async function strange(
  rng: Rng,
  port: number,
  send: (socket: Socket) => Promise<unknown> | unknown,
): Promise<void> {
  const socket = connectRaw(port);
  socket.allowHalfOpen = true;
  let received = 0;
  socket.on('data', (chunk) => {
    received += chunk.length;
  });
  await send(socket);
  await Promise.race([closed(socket), sleep(rng.int(0, 300))]);
  if (rng.chance(0.3)) socket.resetAndDestroy();
  else socket.destroy();
  if (received > 8 + NONCE_BYTES + 8) throw new Finding(`a stranger received ${received} bytes`);
}

/**
 * A client with the secret that sends anything. Each request must be answered or end the
 * connection.
 */
async function known(
  port: number,
  act: (socket: Socket, answer: () => Promise<Buffer | null>) => Promise<void>,
): Promise<void> {
  const { socket, reader, answer } = await prove(port, SECRET);
  try {
    if (answer !== null) await act(socket, () => nextBody(socket, reader));
  } finally {
    socket.destroy();
  }
}

const keys = ['', '__proto__', 'constructor', 'a', 'b', '\u0000', 'x'.repeat(3_000)];
const words = [
  Buffer.alloc(0),
  Buffer.from('1'),
  Buffer.from('9007199254740991'),
  Buffer.from('NaN'),
  Buffer.from('x'),
];

function anyRequest(rng: Rng): StoreRequest {
  const [key, value] = [rng.pick(keys), rng.pick(words)];
  return rng.pick<StoreRequest>([
    { op: 'set', key, value },
    { op: 'append', key, value },
    { op: 'add', key, amount: rng.pick([1, -1, 2 ** 53 - 1]) },
    { op: 'compareSet', key, expected: value, desired: rng.pick(words) },
    { op: 'get', key },
    { op: 'delete', key },
    { op: 'check', keys },
    { op: 'count' },
    { op: 'wait', keys: [key, 'never'], timeoutMs: rng.pick([0, 1, 2e9]) },
  ]);
}

/** Bytes of a damaged request. */
function damaged(rng: Rng): Buffer {
  const body = Buffer.from(encodeRequest(anyRequest(rng)));
  switch (rng.int(0, 4)) {
    case 0:
      return body.subarray(0, rng.int(0, body.length));
    case 1:
      body[rng.int(0, body.length - 1)] = rng.int(0, 255);
      return body;
    case 2:
      return Buffer.concat([Buffer.of(rng.int(0, 255)), bytes(rng, rng.int(0, 60))]);
    case 3:
      return Buffer.concat([
        Buffer.of(rng.int(0, 8)),
        encodeFields(rng.list(rng.int(0, 5), () => rng.pick(words))),
      ]);
    default:
      // many empty fields
      return Buffer.concat([Buffer.of(rng.pick([6, 8])), Buffer.alloc(rng.int(0, 1 << 20))]);
  }
}

const attacks: Readonly<Record<string, Attack>> = {
  noise: (rng, port) =>
    strange(rng, port, (socket) => {
      for (let i = rng.int(1, 4); i > 0; i--) socket.write(bytes(rng, rng.int(1, 300)));
    }),
  'announced length': (rng, port) =>
    strange(rng, port, (socket) =>
      socket.write(
        frame(
          0,
          Buffer.alloc(rng.int(0, 40)),
          rng.pick([GREETING_BYTES, LONGEST_MESSAGE, 2 ** 32 - 1]),
        ),
      ),
    ),
  'wrong proof': (rng, port) =>
    strange(rng, port, (socket) =>
      socket.write(
        Buffer.concat(rng.list(rng.int(1, 3), () => frame(0, bytes(rng, GREETING_BYTES)))),
      ),
    ),
  'slow loris': (rng, port) =>
    strange(rng, port, async (socket) => {
      for (let i = rng.int(1, 50); i > 0 && !socket.destroyed; i--) {
        socket.write(Buffer.of(0));
        await sleep(5);
      }
    }),
  'half-open': (rng, port) =>
    strange(rng, port, (socket) => socket.end(rng.chance(0.5) ? bytes(rng, 10) : Buffer.alloc(0))),
  flood: async (rng, port) => {
    const sockets = rng.list(200, () => connectRaw(port));
    await sleep(rng.int(0, 200));
    for (const socket of sockets) {
      if (rng.chance(0.5)) socket.resetAndDestroy();
      else socket.destroy();
    }
  },
  garbage: (rng, port) =>
    known(port, async (socket) => {
      socket.resume();
      for (let i = rng.int(1, 40); i > 0 && !socket.destroyed; i--) {
        socket.write(frame(i, damaged(rng)));
        if (rng.chance(0.2)) await sleep(rng.int(0, 20));
      }
    }),
  'too long': (rng, port) =>
    known(port, async (socket) => {
      socket.write(
        frame(
          1,
          bytes(rng, rng.int(0, 100)),
          rng.pick([LONGEST_MESSAGE, LONGEST_MESSAGE + 1, 2 ** 32 - 1]),
        ),
      );
      await sleep(rng.int(0, 50));
    }),
  'growing value': (rng, port) =>
    known(port, async (socket, answer) => {
      const key = `grows ${rng.int(0, 2 ** 31)}`;
      const part = Buffer.alloc(rng.int(15, 40) * MIB);
      let text = '';
      for (let i = 0; i < 6 && !text.startsWith('E'); i++) {
        socket.write(frame(i, encodeRequest({ op: 'append', key, value: part })));
        text = String(await answer());
      }
      socket.write(frame(9, encodeRequest({ op: 'delete', key })));
      if (String(await answer()) !== 't' || !text.startsWith('E'))
        throw new Finding(`a value that grows is answered with ${text.slice(0, 80)}`);
    }),
  'unread replies': (rng, port) =>
    known(port, async (socket, answer) => {
      const key = `unread ${rng.int(0, 2 ** 31)}`;
      socket.write(frame(0, encodeRequest({ op: 'set', key, value: Buffer.alloc(8 * MIB) })));
      await answer();
      socket.pause();
      for (let i = 1; i < 200; i++) socket.write(frame(i, encodeRequest({ op: 'get', key })));
      await sleep(rng.int(50, 300));
      socket.destroy();
      await known(port, async (other, done) => {
        other.write(frame(0, encodeRequest({ op: 'delete', key })));
        await done();
      });
    }),
  'waits and a reset': (rng, port) =>
    known(port, async (socket) => {
      for (let i = 0; i < 1_000; i++)
        socket.write(frame(i, encodeRequest({ op: 'wait', keys: [`never ${i}`], timeoutMs: 2e9 })));
      await sleep(rng.int(0, 100));
      socket.resetAndDestroy();
    }),
};

/** The process of the store. */
class Server {
  readonly child: ChildProcess;
  mostBytes = 0;

  constructor() {
    // Allows fewer descriptors than a flood has connections.
    const command = [
      '-c',
      'ulimit -n 512; exec "$0" "$@"',
      process.execPath,
      ...programArguments('distributed/programs/store-server'),
      SECRET,
    ];
    this.child = spawn('/bin/sh', command, { stdio: ['pipe', 'pipe', 'inherit'] });
  }

  async port(): Promise<number> {
    const [text] = await once(this.child.stdout as NonNullable<ChildProcess['stdout']>, 'data');
    return Number(text);
  }

  /** Checks the process. @throws Finding */
  look(): void {
    const { exitCode, signalCode, pid } = this.child;
    if (exitCode !== null || signalCode !== null)
      throw new Finding(`the server has ended: ${exitCode ?? signalCode}`);
    const [, kilobytes] =
      /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
    const used = Number(kilobytes) * 1024;
    this.mostBytes = Math.max(this.mostBytes, used);
    if (used > MOST_SERVER_BYTES) throw new Finding(`the server has ${Math.round(used / MIB)} MiB`);
  }

  get descriptors(): number {
    return readdirSync(`/proc/${this.child.pid}/fd`).length;
  }
}

/** One round of the true ranks: one that is connected, and one that connects. */
async function trueRound(old: TCPStore, port: number, round: number): Promise<void> {
  const coming = await new TCPStore('127.0.0.1', port, {
    secret: SECRET,
    timeoutMs: DEADLINE_MS,
  }).ready();
  try {
    const [key, value] = [`true/${round}`, `value ${round}`];
    const got = coming.get(key);
    await old.set(key, value);
    if (String(await got) !== value) throw new Finding(`true ranks: ${key} is ${await got}`);
    const sum = await coming.add('true/rounds', 1);
    if (sum !== round + 1) throw new Finding(`true ranks: round ${round} is counted as ${sum}`);
    if (!(await old.deleteKey(key))) throw new Finding(`true ranks: ${key} was gone`);
  } finally {
    await coming.close();
  }
}

/** Runs four attacks at a time, chosen by the seed, until the time is over or the first finding. */
export async function storeCampaign(
  seed: number,
  seconds: number,
  trace: (line: string) => void = () => {},
): Promise<StoreCounts> {
  const server = new Server();
  const findings: string[] = [];
  const done: Record<string, number> = Object.fromEntries(
    Object.keys(attacks).map((name) => [name, 0]),
  );
  let [index, rounds, slowestMs] = [0, 0, 0];
  const port = await server.port();
  const old = await new TCPStore('127.0.0.1', port, {
    secret: SECRET,
    timeoutMs: DEADLINE_MS,
  }).ready();
  const end = Date.now() + seconds * 1_000;
  const goesOn = (): boolean => Date.now() < end && findings.length === 0;

  const attacker = async (): Promise<void> => {
    while (goesOn() && index < MOST_ATTACKS) {
      const number = index++;
      const rng = new Rng(seed, number);
      const name = rng.pick(Object.keys(attacks));
      trace(`${number}: ${name}`);
      await attempt(`attack ${number} (${name})`, () => (attacks[name] as Attack)(rng, port));
      done[name] = (done[name] ?? 0) + 1;
    }
  };
  const trueRanks = async (): Promise<void> => {
    while (goesOn()) {
      const began = Date.now();
      await attempt(`round ${rounds} of true ranks`, async () => {
        await trueRound(old, port, rounds++);
        server.look();
      });
      slowestMs = Math.max(slowestMs, Date.now() - began);
      await sleep(20);
    }
  };
  const attempt = async (what: string, run: () => Promise<void>): Promise<void> => {
    try {
      await run();
    } catch (error) {
      findings.push(
        `${what}: ` +
          `${error instanceof Finding || error instanceof StoreError ? error.message : describeError(error)}`,
      );
    }
  };

  await Promise.all([trueRanks(), ...Array.from({ length: ATTACKERS }, attacker)]);
  await attempt('afterwards', async () => {
    for (
      const last = Date.now() + STRANGERS_MS;
      server.descriptors > MOST_SPARE_DESCRIPTORS && Date.now() < last;
    )
      await sleep(50);
    if (server.descriptors > MOST_SPARE_DESCRIPTORS)
      throw new Finding(`the server has ${server.descriptors} descriptors open`);
    await trueRound(old, port, rounds++);
    server.look();
  });
  await old.close();
  server.child.stdin?.end();
  const kill = setTimeout(() => server.child.kill('SIGKILL'), DEADLINE_MS);
  if (server.child.exitCode === null && server.child.signalCode === null)
    await once(server.child, 'exit');
  clearTimeout(kill);
  return { attacks: done, rounds, slowestMs, serverBytes: server.mostBytes, findings };
}
