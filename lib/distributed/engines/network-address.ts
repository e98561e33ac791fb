/** Finds the address by which other machines reach this one. */
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { isIPv6 } from 'node:net';
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';
import { DistributedError } from '../../core/errors.js';

/** The first variable that is set lists network interfaces; the first that exists is used. */
const VARIABLES = ['SHARDWISE_SOCKET_IFNAME', 'GLOO_SOCKET_IFNAME'];
const LOOPBACK = '127.0.0.1';
/** Any port: nothing is sent. */
const DISCARD_PORT = 9;

type Interfaces = Readonly<Record<string, readonly NetworkInterfaceInfo[] | undefined>>;

/**
 * The address of the interface that the environment names; else the source address of packets to
 * the store's host; else that of any interface. Loopback if all ranks are on one machine.
 *
 * @throws DistributedError if no interface that the environment names exists
 * @internal
 */
export async function ownAddress(
  op: string,
  host: string | null,
  oneMachine: boolean,
  interfaces: Interfaces = networkInterfaces(),
  env = process.env,
): Promise<string> {
  const variable = VARIABLES.find((name) => env[name]);
  if (variable !== undefined) return addressOf(op, variable, env[variable] as string, interfaces);
  if (oneMachine) return LOOPBACK;
  const route = host === null ? null : await routeTo(host);
  if (route !== null && !isLoopback(route)) return route;
  // A machine may resolve its own name to loopback, which others cannot reach.
  const outward = Object.values(interfaces).flatMap((addresses) =>
    (addresses ?? []).filter((each) => !each.internal),
  );
  return preferred(outward) ?? LOOPBACK;
}

function addressOf(op: string, variable: string, names: string, interfaces: Interfaces): string {
  for (const name of names.split(',')) {
    const found = preferred(interfaces[name.trim()] ?? []);
    if (found !== null) return found;
  }
  const known = Object.keys(interfaces).join(', ');
  throw new DistributedError(
    `${op}: ${variable} names the network interface '${names}', which does not exist or has no ` +
      `address. This machine has ${known}.`,
    { op, variable, names },
  );
}

/** An IPv4 address if there is one, because all ranks need addresses of one kind. */
function preferred(addresses: readonly NetworkInterfaceInfo[]): string | null {
  const usable = addresses.filter(({ address }) => !address.startsWith('fe80:'));
  return (usable.find(({ family }) => family === 'IPv4') ?? usable[0])?.address ?? null;
}

const isLoopback = (address: string): boolean => address.startsWith('127.') || address === '::1';

/** The source address of packets to the host; null if there is no route. */
async function routeTo(host: string): Promise<string | null> {
  try {
    const { address } = await lookup(host);
    const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
    try {
      await new Promise<void>((resolve, reject) => {
        socket.once('error', reject);
        socket.connect(DISCARD_PORT, address, resolve);
      });
      return socket.address().address;
    } finally {
      socket.close();
    }
  } catch {
    return null;
  }
}
