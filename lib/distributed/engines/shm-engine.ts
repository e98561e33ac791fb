/**
 * The `shm` engine: tensors between ranks of one host, in the memory of one process or in shared
 * memory of several. Those of a GPU go through it as well, where nothing better is there.
 */
import { CollectiveError } from '../../core/errors.js';
import { nativeCall, streamOf, writer } from '../../eager/submit.js';
import {
  type EngineFactory,
  type GroupPlan,
  labelOf,
  type MadeGroup,
  NO_CALL,
  WORLD,
} from './engine.js';
import { NativeEngine, writeRanks } from './native-engine.js';

/** How much memory a group needs: as the addon counts. */
function useOf(plan: GroupPlan): number {
  if (plan.meets === true) return 2;
  return labelOf(plan) === WORLD ? 0 : 1;
}

/** The shared memory of a group, and who uses it. */
interface LocalRegion {
  readonly id: number;
  /** Ranks of the group that have joined it. */
  readonly joined: Set<number>;
  /** Memberships that have not ended: a rank has one for each device. */
  members: number;
}

/** Groups of ranks that share this process: what one made, the others find here. @internal */
export class LocalRegions {
  private readonly regions = new Map<string, LocalRegion>();
  private readonly worldSize: number;

  /** @param worldSize - 0: the group's ranks are not of a world */
  constructor(worldSize = 0) {
    this.worldSize = worldSize;
  }

  /** The group's memory for one more of its members. */
  join(plan: GroupPlan): number {
    const region = this.find(plan.name, plan.ranks, useOf(plan), labelOf(plan));
    region.joined.add(plan.rank);
    region.members++;
    return region.id;
  }

  /**
   * The memory of a group that all of its ranks have left is given back, that of the world with the
   * world.
   */
  leave({ name, ranks }: GroupPlan): void {
    const region = this.regions.get(name);
    if (
      region === undefined ||
      --region.members > 0 ||
      region.joined.size < ranks.length ||
      name === WORLD
    )
      return;
    writer.addon.dropRegion(region.id);
    this.regions.delete(name);
  }

  /** Of the group that all ranks are in; 0 for itself, and where there is none. */
  worldOf(plan: GroupPlan): number {
    if (plan.name === WORLD || this.worldSize === 0) return 0;
    const ranks = Array.from({ length: this.worldSize }, (_, rank) => rank);
    return this.find(WORLD, ranks, 0, WORLD).id;
  }

  private find(name: string, ranks: readonly number[], use: number, label: string): LocalRegion {
    let region = this.regions.get(name);
    if (region === undefined) {
      writeRanks(ranks);
      region = {
        id: nativeCall(() => writer.addon.localRegion(ranks.length, use, label), 'newGroup'),
        joined: new Set(),
        members: 0,
      };
      this.regions.set(name, region);
    }
    return region;
  }

  /** All have joined, or nobody will any more. */
  drop(): void {
    for (const { id } of this.regions.values()) writer.addon.dropRegion(id);
    this.regions.clear();
  }
}

/** `world`: the member of the group of all ranks; 0 where there is none. */
function announce(
  world: number,
  { rank, number, name, ranks, title, where, making }: MadeGroup,
): void {
  if (world === 0) return;
  writeRanks(ranks);
  try {
    nativeCall(
      () => writer.addon.announceGroup(world, rank, number, ranks.length, name, where),
      title,
    );
  } catch (error) {
    throw error instanceof CollectiveError
      ? new CollectiveError(error.message, { ...error.details, sequence: making })
      : error;
  }
}

/** For ranks that share this process. @internal */
export function localEngines(regions: LocalRegions, timeoutMs: number): EngineFactory {
  return (plan, device) => {
    const stream = streamOf(device);
    const [region, world] = [regions.join(plan), regions.worldOf(plan)];
    writeRanks(plan.ranks);
    const join = (): number =>
      writer.addon.joinLocal(region, plan.rank, plan.ranks.length, stream, timeoutMs, world);
    return new NativeEngine('shm', nativeCall(join, 'newGroup'), stream, () => regions.leave(plan));
  };
}

/**
 * For ranks that are processes of one host. `token` tells runs apart that use one name. @internal
 */
export function sharedEngines(
  nameOf: (plan: GroupPlan) => string,
  token: number,
  timeoutMs: number,
): EngineFactory {
  let world = 0;
  const make: EngineFactory = (plan, device) => {
    const stream = streamOf(device);
    const name = nameOf(plan);
    writeRanks(plan.ranks);
    const { name: first, where } = plan.firstCall ?? NO_CALL;
    const join = (): number =>
      writer.addon.joinShared(
        plan.rank,
        plan.ranks.length,
        stream,
        timeoutMs,
        token,
        useOf(plan),
        world,
        name,
        labelOf(plan),
        first,
        where,
      );
    const member = nativeCall(join, 'newGroup');
    if (plan.name === WORLD) world = member;
    return new NativeEngine('shm', member, stream);
  };
  return Object.assign(make, { announce: (group: MadeGroup) => announce(world, group) });
}
