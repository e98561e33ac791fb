/**
 * Selects the engine of each kind of device from the backend that the program names and from the
 * hosts of the ranks.
 */
import { type Device, type DeviceType, deviceTypes } from '../../core/device.js';
import { ArgumentError, DistributedError } from '../../core/errors.js';
import { shown } from '../../core/options.js';
import { writer } from '../../eager/submit.js';
import { describeTried, openGloo } from '../../native/gloo.js';
import type { Store } from '../stores/index.js';
import { requireNccl, withDevices } from './cuda-engine.js';
import type {
  Agreement,
  BackendName,
  BackendText,
  Engine,
  EngineFactory,
  Engines,
  GroupPlan,
} from './engine.js';
import { GlooWorld } from './gloo-engine.js';
import { ownAddress } from './network-address.js';
import { LocalRegions, localEngines, sharedEngines } from './shm-engine.js';
import { segmentName } from './shm-segments.js';

const names: readonly BackendName[] = ['shm', 'nccl', 'gloo', 'fake'];
/** The devices that each backend supports. */
const devicesOf: Readonly<Record<BackendName, readonly DeviceType[]>> = {
  shm: deviceTypes,
  gloo: ['cpu'],
  nccl: ['cuda'],
  fake: deviceTypes,
};

/** The backends that the program named, by device; empty if it named none. @internal */
export type Backends = Readonly<Partial<Record<DeviceType, BackendName>>>;

/**
 * Parses `undefined` (chosen for each device), `'shm'`, or `'cpu:shm,cuda:nccl'`. @throws
 * ArgumentError for unknown names
 */
export function parseBackend(op: string, backend: string | undefined): Backends {
  if (backend === undefined) return {};
  if (typeof backend !== 'string' || backend === '') throw unknown(op, backend);
  const chosen: Partial<Record<DeviceType, BackendName>> = {};
  for (const part of backend.split(',')) {
    const [first = '', second] = part.trim().split(':');
    const name = (second ?? first) as BackendName;
    if (!names.includes(name)) throw unknown(op, backend);
    const devices =
      second === undefined ? devicesOf[name] : deviceTypes.filter((type) => type === first);
    if (devices.length === 0) throw unknown(op, backend);
    for (const type of devices) {
      if (!devicesOf[name].includes(type))
        throw new ArgumentError(
          `${op}: the backend '${name}' supports ${devicesOf[name].join(' and ')} ` +
            `tensors, not ${type}`,
          { op, argument: 'backend', value: backend },
        );
      chosen[type] = name;
    }
  }
  return chosen;
}

function unknown(op: string, backend: unknown): ArgumentError {
  return new ArgumentError(
    `${op}: expected backend to be ${names.map((name) => `'${name}'`).join(', ')} or one for ` +
      `each device such as 'cpu:shm,cuda:nccl', got ${shown(backend)}`,
    {
      op,
      argument: 'backend',
      value: backend,
    },
  );
}

/** The inverse of {@link parseBackend}. @internal */
export function backendText({ cpu, cuda }: Backends): BackendText {
  if (cpu === undefined || cuda === undefined || cpu === cuda) return (cpu ?? cuda) as BackendName;
  return `cpu:${cpu},cuda:${cuda}`;
}

/** The devices that the program named backends for; null if it named none. @internal */
export function namedDevices(backends: Backends): readonly DeviceType[] | null {
  const named = deviceTypes.filter((type) => backends[type] !== undefined);
  return named.length === 0 ? null : named;
}

/**
 * Whether CPU tensors have an engine: false if the program named backends for other devices only.
 * @internal
 */
export const movesCpuTensors = (backends: Backends): boolean =>
  namedDevices(backends)?.includes('cpu') ?? true;

/** What is known after the rendezvous. @internal */
export interface EngineContext {
  readonly agreement: Agreement;
  readonly rank: number;
  readonly store: Store;
  /** Host of the store; null if the store has no address. */
  readonly host: string | null;
  readonly timeoutMs: number;
}

/**
 * Creates this rank's engines. Ranks of one host use shared memory; ranks of several use gloo.
 *
 * @throws DistributedError if the ranks are on several hosts and gloo cannot be used @internal
 */
export async function chooseEngines(
  op: string,
  backends: Backends,
  context: EngineContext,
): Promise<Engines> {
  const { agreement, timeoutMs } = context;
  const { hosts, pids, run, token } = agreement;
  const ranksHere = Math.max(
    ...hosts.map((host) => hosts.filter((other) => other === host).length),
  ); // the largest host, so that all ranks choose the same engine
  if (backends.cuda === 'nccl' && backends.cpu === undefined) requireNccl(op, ranksHere);
  const remote = hosts.findIndex((host) => host !== hosts[0]);
  if (remote >= 0 && backends.cpu !== 'gloo') checkReach(op, backends, agreement, remote);
  const gloo =
    hosts.length > 1 && (backends.cpu === 'gloo' || remote >= 0)
      ? await connectByGloo(op, context, remote < 0)
      : null;
  const shared = sharedEngines(
    (plan) => segmentName(pids[plan.ranks[0] as number] as number, run, plan.name),
    token,
    timeoutMs,
  );
  const between =
    gloo === null
      ? shared
      : backends.cpu === 'gloo'
        ? gloo.engines()
        : byHost(hosts, shared, gloo.engines());
  const make = (plan: GroupPlan, device: Device): Engine =>
    plan.ranks.length === 1 ? singleRank(plan, device, timeoutMs) : between(plan, device);
  const backendFor = (plan: GroupPlan): BackendName =>
    backends.cpu ?? (isOneHost(hosts, plan) ? 'shm' : 'gloo');
  const here = Object.assign(make, { publish: shared.publish, backendFor });
  return {
    make: withDevices(here, { backend: backends.cuda ?? null, ranksHere, timeoutMs }),
    leave: () => gloo?.leave(),
  };
}

function checkReach(
  op: string,
  backends: Backends,
  { hostNames }: Agreement,
  remote: number,
): void {
  const search = backends.cpu === undefined ? openGloo(writer.addon) : null;
  if (search !== null && search.path !== null) return;
  const advice =
    search === null
      ? "Name no backend, or 'cpu:gloo'."
      : 'Install libgloo0 on all machines (to build the engine: libgloo-dev).' +
        describeTried(search);
  throw new DistributedError(
    `${op}: rank 0 (on ${hostNames[0]}) and rank ${remote} (on ${hostNames[remote]}) share no ` +
      'memory: they are on several machines, in several containers, or of several users. The shm ' +
      'engine needs one machine. Several machines need gloo for CPU tensors and for the ' +
      `rendezvous of nccl. ${advice}`,
    {
      op,
      ranks: [0, remote],
      hosts: [hostNames[0], hostNames[remote]],
    },
  );
}

async function connectByGloo(
  op: string,
  { agreement, rank, store, host, timeoutMs }: EngineContext,
  oneMachine: boolean,
): Promise<GlooWorld> {
  const address = await ownAddress(op, host, oneMachine);
  return GlooWorld.open({ op, store, rank, worldSize: agreement.hosts.length, address, timeoutMs });
}

const isOneHost = (hosts: readonly string[], { ranks }: GroupPlan): boolean =>
  ranks.every((rank) => hosts[rank] === hosts[ranks[0] as number]);

/** Groups within one host use shared memory. */
function byHost(
  hosts: readonly string[],
  shared: EngineFactory,
  gloo: EngineFactory,
): EngineFactory {
  return (plan, device) => (isOneHost(hosts, plan) ? shared : gloo)(plan, device);
}

/** The engine of a group of one rank, which needs no shared memory. */
function singleRank(plan: GroupPlan, device: Device, timeoutMs: number): Engine {
  const regions = new LocalRegions();
  try {
    return localEngines(regions, timeoutMs)(plan, device);
  } finally {
    regions.drop();
  }
}
