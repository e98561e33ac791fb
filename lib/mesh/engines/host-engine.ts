/** The `shm` engine: CPU tensors between ranks of one host, in the memory of one process or in shared memory of several. */
import type { Device } from '../../core/device.js';
import { DistributedError } from '../../core/errors.js';
import { nativeCall, streamOf, writer } from '../../eager/submit.js';
import type { EngineFactory, GroupPlan } from './engine.js';
import { NativeEngine } from './native-engine.js';

function requireCpu(plan: GroupPlan, device: Device): void {
  if (device.type === 'cpu') return;
  throw new DistributedError(
    `the shm engine of group "${plan.name}" moves CPU tensors, this one is on ${device}. Use the backend 'nccl' for tensors on GPUs, or move it with .cpu().`,
    {
      group: plan.name,
      device: String(device),
    },
  );
}

/** Groups of ranks that share this process: what one made, the others find here. @internal */
export class LocalRegions {
  private readonly regions = new Map<string, number>();

  /** The group's memory for one more of its members. */
  join(plan: GroupPlan): number {
    const size = plan.ranks.length;
    let region = this.regions.get(plan.name);
    if (region === undefined) {
      region = nativeCall(() => writer.addon.localRegion(size), 'newGroup');
      this.regions.set(plan.name, region);
    }
    return region;
  }

  /** All have joined, or nobody will any more. */
  drop(): void {
    for (const id of this.regions.values()) writer.addon.dropRegion(id);
    this.regions.clear();
  }
}

/** For ranks that share this process. @internal */
export function localEngines(regions: LocalRegions, timeoutMs: number): EngineFactory {
  return (plan, device) => {
    requireCpu(plan, device);
    const stream = streamOf(device);
    const region = regions.join(plan);
    return new NativeEngine(
      'shm',
      nativeCall(() => writer.addon.joinLocal(region, plan.rank, plan.ranks.length, stream, timeoutMs), 'newGroup'),
      stream,
    );
  };
}

/** For ranks that are processes of one host. `token` tells runs apart that use one name. @internal */
export function sharedEngines(nameOf: (plan: GroupPlan) => string, token: number, timeoutMs: number): EngineFactory {
  return (plan, device) => {
    requireCpu(plan, device);
    const stream = streamOf(device);
    const name = nameOf(plan);
    return new NativeEngine(
      'shm',
      nativeCall(() => writer.addon.joinShared(plan.rank, plan.ranks.length, stream, timeoutMs, timeoutMs, token, name), 'newGroup'),
      stream,
    );
  };
}
