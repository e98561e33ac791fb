/**
 * Runs as one of two ranks connected by gloo and prints the outcome: as the second rank, or as the
 * first with an unknown client at its port, whose behavior is named.
 */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { GlooWorld } from '../../../lib/distributed/engines/gloo-engine.js';
import { FileStore } from '../../../lib/distributed.js';

const LISTENS = '0A';
/** 127.0.0.1 as the system writes it. */
const LOOPBACK = '0100007F:';
/** For gloo's thread to see them. */
const SETTLED_MS = 100;

/**
 * The ports of 127.0.0.1 that this process listens at, as anybody of the machine reads them. A child
 * also has the sockets that NCCL opened in its parent, at another address.
 */
function listeningPorts(): number[] {
  const inodes = new Set<string>();
  for (const fd of readdirSync('/proc/self/fd')) {
    try {
      inodes.add(/^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1] ?? '');
    } catch {
      // closed meanwhile
    }
  }
  const rows = readFileSync('/proc/self/net/tcp', 'utf8').trim().split('\n').slice(1);
  const fields = rows.map(
    (row) => row.trim().split(/\s+/) as [string, string, string, string, ...string[]],
  );
  return fields
    .filter(([, local, , state]) => state === LISTENS && local.startsWith(LOOPBACK))
    .filter((row) => inodes.has(row[9] as string))
    .map(([, local]) => Number.parseInt(local.split(':')[1] as string, 16));
}

function connected(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => resolve(socket));
    socket.on('error', reject);
  });
}

const strangers: Record<string, (port: number) => Promise<unknown>> = {
  reset: async (port) => (await connected(port)).resetAndDestroy(),
  close: async (port) => (await connected(port)).end(),
  hold: connected,
  crowd: (port) => Promise.all(Array.from({ length: 200 }, () => connected(port))),
  guess: async (port) => {
    const socket = await connected(port);
    socket.write(Buffer.concat([Buffer.of(1, 0, 0, 0), Buffer.alloc(1000, 7)]));
  },
};

const [role, folder] = process.argv.slice(2) as [string, string];
const store = new FileStore(path.join(folder, 'store'), 2);

async function open(rank: number): Promise<string> {
  try {
    const world = await GlooWorld.open({
      op: 'initProcessGroup',
      store,
      rank,
      worldSize: 2,
      address: '127.0.0.1',
      timeoutMs: 5_000,
    });
    world.leave();
    return 'connected';
  } catch (error) {
    return (error as Error).message;
  }
}

if (role === 'second') {
  await store.wait(['come'], 20_000);
  console.log(await open(1));
} else {
  const outcome = open(0);
  while ((await store.numKeys()) === 0) await sleep(1);
  await Promise.all(listeningPorts().map(strangers[role] as (port: number) => Promise<unknown>));
  await sleep(SETTLED_MS);
  await store.set('come', '');
  console.log(await outcome);
}
process.exit();
