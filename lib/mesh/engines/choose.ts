/** Which engine moves the tensors of which device: by the backend that the program names, and by where the ranks are. */
import type { Device, DeviceType } from '../../core/device.js';
import { ArgumentError, DistributedError } from '../../core/errors.js';
import { shown } from '../../core/options.js';
import type { Agreement } from '../rendezvous.js';
import { segmentName } from '../shared-memory.js';
import { withDevices } from './device-engine.js';
import type { BackendName, Engine, EngineFactory, GroupPlan } from './engine.js';
import { LocalRegions, localEngines, sharedEngines } from './host-engine.js';

const names: readonly BackendName[] = ['shm', 'nccl', 'gloo', 'fake'];
const deviceTypes: readonly DeviceType[] = ['cpu', 'cuda'];
/** What a backend that is named alone is for. */
const devicesOf: Readonly<Record<BackendName, readonly DeviceType[]>> = { shm: deviceTypes, gloo: ['cpu'], nccl: ['cuda'], fake: deviceTypes };

/** A backend for each kind of device; none where the program has named none. @internal */
export type Backends = Readonly<Partial<Record<DeviceType, BackendName>>>;

/**
 * `undefined` (chosen for each device), `'shm'`, or `'cpu:shm,cuda:nccl'`.
 *
 * @throws ArgumentError for names that there are not, DistributedError for engines that this version does not have
 */
export function parseBackend(op: string, backend: string | undefined): Backends {
  if (backend === undefined) return { cpu: 'shm' };
  if (typeof backend !== 'string' || backend === '') throw unknown(op, backend);
  const chosen: Partial<Record<DeviceType, BackendName>> = {};
  for (const part of backend.split(',')) {
    const [first = '', second] = part.trim().split(':');
    const name = (second ?? first) as BackendName;
    if (!names.includes(name)) throw unknown(op, backend);
    const devices = second === undefined ? devicesOf[name] : deviceTypes.filter((type) => type === first);
    if (devices.length === 0) throw unknown(op, backend);
    for (const type of devices) {
      if (!devicesOf[name].includes(type))
        throw new ArgumentError(`${op}: the backend '${name}' moves ${devicesOf[name].join(' and ')} tensors, not ${type}`, { op, argument: 'backend', value: backend });
      chosen[type] = name;
    }
  }
  for (const name of Object.values(chosen)) requireEngine(op, name);
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

/** The engines that are there; what is added to {@link chooseEngines} goes from this list of those that are not. */
function requireEngine(op: string, name: BackendName): void {
  if (name !== 'gloo') return;
  throw new DistributedError(`${op}: this version has no '${name}' engine yet. 'shm' moves CPU tensors between ranks of one machine.`, { op, backend: name });
}

/** @throws DistributedError where the ranks are on several machines, which no engine of this version reaches */
export function chooseEngines(op: string, backends: Backends, agreement: Agreement, timeoutMs: number): EngineFactory {
  const { hosts, hostNames, pids, run, token } = agreement;
  // The engines that reach other machines belong here: gloo for CPU tensors, nccl for those on GPUs.
  const far = hosts.findIndex((host) => host !== hosts[0]);
  if (far >= 0 && backends.cpu === 'shm') {
    throw new DistributedError(
      `${op}: rank 0 (on ${hostNames[0]}) and rank ${far} (on ${hostNames[far]}) share no memory: they are on several machines, in several containers, or of several users. The shm engine needs one machine; across machines it takes gloo for CPU tensors and nccl for those on GPUs.`,
      { op, ranks: [0, far], hosts: [hostNames[0], hostNames[far]] },
    );
  }
  const between = sharedEngines((plan) => segmentName(pids[plan.ranks[0] as number] as number, run, plan.name), token, timeoutMs);
  const here = (plan: GroupPlan, device: Device): Engine => (plan.ranks.length === 1 ? alone(plan, device, timeoutMs) : between(plan, device));
  const ranksHere = hosts.filter((host) => host === hosts[0]).length;
  const all = withDevices(here, { backend: backends.cuda ?? null, ranksHere, timeoutMs });
  return (plan, device: Device) => {
    if (backends[device.type] === undefined && device.type === 'cpu') {
      throw new DistributedError(
        `group "${plan.name}" has no engine for CPU tensors: initProcessGroup was given a backend for ${Object.keys(backends).join(', ')} only. Name one for the CPU as well, such as 'cpu:shm'.`,
        {
          group: plan.name,
        },
      );
    }
    return all(plan, device);
  };
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
