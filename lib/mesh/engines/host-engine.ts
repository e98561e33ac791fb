/**
 * The `shm` engine: tensors between ranks of one host, in the memory of one process or in shared memory of several. Those of a GPU go
 * through it as well, where nothing better is there.
 */
import { nativeCall, streamOf, writer } from '../../eager/submit.js';
import type { EngineFactory, GroupPlan } from './engine.js';
import { NativeEngine } from './native-engine.js';

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
    const stream = streamOf(device);
    const name = nameOf(plan);
    return new NativeEngine(
      'shm',
      nativeCall(() => writer.addon.joinShared(plan.rank, plan.ranks.length, stream, timeoutMs, timeoutMs, token, name), 'newGroup'),
      stream,
    );
  };
}
