/** By which of its addresses other machines reach this one. */
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { isIPv6 } from 'node:net';
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';
import { DistributedError } from '../../core/errors.js';

/** The first that is set names the network interfaces to use: the first of them that there is. */
const VARIABLES = ['SHARDWISE_SOCKET_IFNAME', 'GLOO_SOCKET_IFNAME'];
const LOOPBACK = '127.0.0.1';
/** Any: nothing is sent. */
const DISCARD_PORT = 9;

type Interfaces = Readonly<Record<string, readonly NetworkInterfaceInfo[] | undefined>>;

/**
 * The named interface's, else that of the way to the host where the ranks meet, else that of any
 * interface; loopback among ranks of one machine.
 *
 * @throws DistributedError if none of the named interfaces is there
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
  // A machine may know its own name as loopback, which others cannot reach.
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
  const there = Object.keys(interfaces).join(', ');
  throw new DistributedError(
    `${op}: no network interface '${names}' with an address, as ${variable} names it. There are: ${there}.`,
    { op, variable, names },
  );
}

/** All ranks need addresses of one kind: IPv4 if there is one. */
function preferred(addresses: readonly NetworkInterfaceInfo[]): string | null {
  const usable = addresses.filter(({ address }) => !address.startsWith('fe80:'));
  return (usable.find(({ family }) => family === 'IPv4') ?? usable[0])?.address ?? null;
}

const isLoopback = (address: string): boolean => address.startsWith('127.') || address === '::1';

/** The own address that packets to the host would have; null if there is no way. */
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
