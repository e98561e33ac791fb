/**
 * The `shm` engine: collectives of ranks of one host, through the memory of one process or through
 * shared memory of several. GPU tensors use it, too, if NCCL cannot be used.
 */
import { CollectiveError } from '../../core/errors.js';
import { identify, identityOf } from '../../core/unobserved-failures.js';
import { nativeCall, writer } from '../../eager/submit.js';
import {
  type CreatedGroup,
  type EngineFactory,
  type GroupPlan,
  labelOf,
  NO_CALL,
  WORLD,
} from './engine.js';
import { leaveStream, NativeEngine, streamOfGroup, writeRanks } from './native-engine.js';

/** The addon's code for how much memory a group needs. */
function useOf(plan: GroupPlan): number {
  if (plan.isRendezvous === true) return 2;
  return labelOf(plan) === WORLD ? 0 : 1;
}

/** The shared memory of a group, and its users. */
interface LocalRegion {
  readonly id: number;
  /** Ranks of the group that have joined. */
  readonly joined: Set<number>;
  /** Memberships that have not ended; a rank has one for each device. */
  members: number;
}

/** The memory of the groups of `local` ranks, by group name. @internal */
export class LocalRegions {
  private readonly regions = new Map<string, LocalRegion>();
  private readonly worldSize: number;

  /** @param worldSize - 0: the groups do not belong to a world */
  constructor(worldSize = 0) {
    this.worldSize = worldSize;
  }

  /** The group's memory, for one more membership. */
  join(plan: GroupPlan): number {
    const region = this.find(plan.name, plan.ranks, useOf(plan), labelOf(plan));
    region.joined.add(plan.rank);
    region.members++;
    return region.id;
  }

  /**
   * Frees the memory of a group once all of its ranks have left; the world's memory is freed by
   * {@link drop}.
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

  /** The memory of the world; 0 for the world itself, and without a world. */
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

  /** Frees all memory, once all ranks have joined their groups or never will. */
  drop(): void {
    for (const { id } of this.regions.values()) writer.addon.dropRegion(id);
    this.regions.clear();
  }
}

/** @param world - this rank's member of the world; 0 without one */
function publishGroup(
  world: number,
  { rank, number, name, ranks, title, where, creation }: CreatedGroup,
): void {
  if (world === 0) return;
  writeRanks(ranks);
  try {
    nativeCall(
      () => writer.addon.publishGroup(world, rank, number, ranks.length, name, where),
      title,
    );
  } catch (error) {
    if (!(error instanceof CollectiveError)) throw error;
    const numbered = new CollectiveError(error.message, { ...error.details, sequence: creation });
    identify(numbered, identityOf(error));
    throw numbered;
  }
}

/** Engines of ranks that share this process. @internal */
export function localEngines(regions: LocalRegions, timeoutMs: number): EngineFactory {
  return (plan, device) => {
    const stream = streamOfGroup(plan, device);
    const [region, world] = [regions.join(plan), regions.worldOf(plan)];
    writeRanks(plan.ranks);
    const join = (): number =>
      writer.addon.joinLocal(region, plan.rank, plan.ranks.length, stream, timeoutMs, world);
    return new NativeEngine('shm', nativeCall(join, 'newGroup'), stream, () => {
      regions.leave(plan);
      leaveStream(plan, stream);
    });
  };
}

/**
 * Engines of ranks that are processes of one host. `token` distinguishes runs that use the same
 * names. @internal
 */
export function sharedEngines(
  nameOf: (plan: GroupPlan) => string,
  token: number,
  timeoutMs: number,
): EngineFactory {
  let world = 0;
  const make: EngineFactory = (plan, device) => {
    const stream = streamOfGroup(plan, device);
    const name = nameOf(plan);
    writeRanks(plan.ranks);
    const { name: first, where, timeoutMs: joinTimeoutMs = timeoutMs } = plan.firstCall ?? NO_CALL;
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
        joinTimeoutMs,
      );
    const member = nativeCall(join, 'newGroup');
    if (plan.name === WORLD) world = member;
    return new NativeEngine('shm', member, stream, () => leaveStream(plan, stream));
  };
  return Object.assign(make, { publish: (group: CreatedGroup) => publishGroup(world, group) });
}
