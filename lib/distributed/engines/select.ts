/**
 * Which engine moves the tensors of which device: by the backend that the program names, and by
 * where the ranks are.
 */
import { type Device, type DeviceType, deviceTypes } from '../../core/device.js';
import { ArgumentError, DistributedError } from '../../core/errors.js';
import { shown } from '../../core/options.js';
import { writer } from '../../eager/submit.js';
import { describeTried, openGloo } from '../../native/gloo.js';
import type { Agreement } from '../launch/rendezvous.js';
import type { Store } from '../stores/index.js';
import { requireNccl, withDevices } from './cuda-engine.js';
import type {
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
/** What a backend that is named alone is for. */
const devicesOf: Readonly<Record<BackendName, readonly DeviceType[]>> = {
  shm: deviceTypes,
  gloo: ['cpu'],
  nccl: ['cuda'],
  fake: deviceTypes,
};

/**
 * A backend for each kind of device that the program has named one for; none at all: they are
 * chosen. @internal
 */
export type Backends = Readonly<Partial<Record<DeviceType, BackendName>>>;

/**
 * `undefined` (chosen for each device), `'shm'`, or `'cpu:shm,cuda:nccl'`. @throws ArgumentError
 * for names that there are not
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
          `${op}: the backend '${name}' moves ${devicesOf[name].join(' and ')} tensors, not ${type}`,
          { op, argument: 'backend', value: backend },
        );
      chosen[type] = name;
    }
  }
  return chosen;
}

function unknown(op: string, backend: unknown): ArgumentError {
  return new ArgumentError(
    `${op}: expected backend to be ${names.map((name) => `'${name}'`).join(', ')} or one for each device such as 'cpu:shm,cuda:nccl', got ${shown(backend)}`,
    {
      op,
      argument: 'backend',
      value: backend,
    },
  );
}

/** As {@link parseBackend} reads it. @internal */
export function backendText({ cpu, cuda }: Backends): BackendText {
  if (cpu === undefined || cuda === undefined || cpu === cuda) return (cpu ?? cuda) as BackendName;
  return `cpu:${cpu},cuda:${cuda}`;
}

/** The devices that the program has named backends for; null for none at all. @internal */
export function namedDevices(backends: Backends): readonly DeviceType[] | null {
  const named = deviceTypes.filter((type) => backends[type] !== undefined);
  return named.length === 0 ? null : named;
}

/**
 * Whether the program's CPU tensors have an engine: unless it has named backends for other devices
 * only. @internal
 */
export const movesCpuTensors = (backends: Backends): boolean =>
  namedDevices(backends)?.includes('cpu') ?? true;

/** What is known when the ranks have met. @internal */
export interface Surroundings {
  readonly agreement: Agreement;
  readonly rank: number;
  readonly store: Store;
  /** Where the ranks met; null where that is no address. */
  readonly host: string | null;
  readonly timeoutMs: number;
}

/**
 * @throws DistributedError where the ranks are on several machines and nothing reaches these
 * @internal
 */
export async function chooseEngines(
  op: string,
  backends: Backends,
  around: Surroundings,
): Promise<Engines> {
  const { agreement, timeoutMs } = around;
  const { hosts, pids, run, token } = agreement;
  const ranksHere = Math.max(
    ...hosts.map((host) => hosts.filter((other) => other === host).length),
  ); // all ranks choose alike
  if (backends.cuda === 'nccl' && backends.cpu === undefined) requireNccl(op, ranksHere);
  const far = hosts.findIndex((host) => host !== hosts[0]);
  if (far >= 0 && backends.cpu !== 'gloo') checkReach(op, backends, agreement, far);
  const gloo =
    hosts.length > 1 && (backends.cpu === 'gloo' || far >= 0)
      ? await meetByGloo(op, around, far < 0)
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
        : nearOrFar(hosts, shared, gloo.engines());
  const alike = (plan: GroupPlan, device: Device): Engine =>
    plan.ranks.length === 1 ? alone(plan, device, timeoutMs) : between(plan, device);
  const backendFor = (plan: GroupPlan): BackendName =>
    backends.cpu ?? (isNear(hosts, plan) ? 'shm' : 'gloo');
  const here = Object.assign(alike, { announce: shared.announce, backendFor });
  return {
    make: withDevices(here, { backend: backends.cuda ?? null, ranksHere, timeoutMs }),
    leave: () => gloo?.leave(),
  };
}

function checkReach(op: string, backends: Backends, { hostNames }: Agreement, far: number): void {
  const search = backends.cpu === undefined ? openGloo(writer.addon) : null;
  if (search !== null && search.path !== null) return;
  const apart = `${op}: rank 0 (on ${hostNames[0]}) and rank ${far} (on ${hostNames[far]}) share no memory: they are on several machines, in several containers, or of several users.`;
  const mend =
    search === null
      ? "Name no backend, or 'cpu:gloo'."
      : `Install libgloo0 on all machines (to build the engine: libgloo-dev).${describeTried(search)}`;
  throw new DistributedError(
    `${apart} The shm engine needs one machine; across machines it takes gloo for CPU tensors, also for those on GPUs to meet by nccl. ${mend}`,
    {
      op,
      ranks: [0, far],
      hosts: [hostNames[0], hostNames[far]],
    },
  );
}

async function meetByGloo(
  op: string,
  { agreement, rank, store, host, timeoutMs }: Surroundings,
  oneMachine: boolean,
): Promise<GlooWorld> {
  const address = await ownAddress(op, host, oneMachine);
  return GlooWorld.open({ op, store, rank, worldSize: agreement.hosts.length, address, timeoutMs });
}

const isNear = (hosts: readonly string[], { ranks }: GroupPlan): boolean =>
  ranks.every((rank) => hosts[rank] === hosts[ranks[0] as number]);

/** Ranks that share memory use it. */
function nearOrFar(
  hosts: readonly string[],
  near: EngineFactory,
  far: EngineFactory,
): EngineFactory {
  return (plan, device) => (isNear(hosts, plan) ? near : far)(plan, device);
}

/** A group of one rank needs no shared memory. */
function alone(plan: GroupPlan, device: Device, timeoutMs: number): Engine {
  const regions = new LocalRegions();
  try {
    return localEngines(regions, timeoutMs)(plan, device);
  } finally {
    regions.drop();
  }
}
